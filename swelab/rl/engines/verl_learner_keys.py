"""Translates a recipe's learner settings to verl 0.9.1: model, passes, optimizer, loss and method."""

from collections.abc import Mapping
from typing import Any

from swelab.configs.kinds.rl import Rl

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
NAME = "swelab"
"""verl's name for our agent loop and for our advantage estimator."""
NO_DUAL_CLIP = 1e6
"""verl requires a bound on the loss of tokens with a negative advantage. No loss reaches this bound."""
LOSSES = {"clipped": "vanilla", "gspo": "gspo", "cispo": "cispo"}
FAR = 1e6
"""Replaces a missing upper bound of a ratio. The inverse replaces a missing lower bound. verl requires
both."""

Keys = Mapping[str, Any]


def learner_keys(recipe: Rl) -> Keys:
    """Returns the learner's settings with their names in verl. A name that begins with + has no default in
    verl."""
    return {**_model(recipe), **_actor(recipe), **_loss(recipe), **_algorithm(recipe)}


def _model(recipe: Rl) -> Keys:
    """Returns settings of the model and of its distribution over GPUs."""
    train, trainer = recipe.train, recipe.cluster.trainer
    shared = {
        "actor_rollout_ref.model.enable_gradient_checkpointing": train.activation_checkpointing,
        "actor_rollout_ref.model.use_remove_padding": train.device != "cpu",
        f"{ROLLOUT}.dtype": "float32" if train.dtype == "fp32" else "bfloat16",
    }
    return {**shared, **(_megatron(recipe) if trainer.backend == "megatron" else _fsdp2(recipe))}


def _megatron(recipe: Rl) -> Keys:
    trainer, whole = recipe.cluster.trainer, recipe.cluster.trainer.offload == "all"
    part, optimizer = f"{ACTOR}.megatron", f"+{ACTOR}.optim.override_optimizer_config"
    keys: dict[str, Any] = {
        "model_engine": "megatron",
        f"{part}.tensor_model_parallel_size": trainer.tensor_parallel,
        f"{part}.context_parallel_size": trainer.context_parallel,
        f"{part}.sequence_parallel": trainer.tensor_parallel > 1,
        f"{part}.param_offload": whole,
        f"{part}.optimizer_offload": whole,
        f"{ACTOR}.optim.lr_decay_style": "constant",
    }
    if trainer.offload == "optimizer":  # the optimizer step runs on the CPUs
        keys |= {
            f"{optimizer}.optimizer_cpu_offload": True,
            f"{optimizer}.optimizer_offload_fraction": 1.0,
            f"{ACTOR}.optim.use_precision_aware_optimizer": True,
        }
    if recipe.train.activation_checkpointing:
        again = f"{part}.override_transformer_config.recompute"
        keys |= {f"{again}_granularity": "full", f"{again}_method": "uniform", f"{again}_num_layers": 1}
    return keys


def _fsdp2(recipe: Rl) -> Keys:
    trainer, part = recipe.cluster.trainer, f"{ACTOR}.fsdp_config"
    keys: dict[str, Any] = {
        "model_engine": "dp",
        f"{ACTOR}.strategy": "fsdp2",
        f"{part}.strategy": "fsdp2",
        "actor_rollout_ref.ref.fsdp_config.strategy": "fsdp2",
        f"{ACTOR}.ulysses_sequence_parallel_size": trainer.sequence_parallel,
        f"{part}.param_offload": trainer.offload == "all",
        f"{part}.optimizer_offload": trainer.offload != "none",
        f"{ACTOR}.optim.lr_scheduler_type": "constant",
        f"{ACTOR}.grad_clip": recipe.train.max_grad_norm,
    }
    if recipe.train.dtype == "fp32":  # if only dtype were set, forward passes would use bf16
        keys[f"{part}.dtype"] = "float32"
        parts = ("param_dtype", "reduce_dtype", "buffer_dtype")
        keys |= {f"+{part}.mixed_precision.{each}": "fp32" for each in parts}
    return keys


def _actor(recipe: Rl) -> Keys:
    """Returns settings of forward passes and of the optimizer."""
    train = recipe.train
    return {
        f"{ACTOR}.ppo_epochs": 1,
        f"{ACTOR}.ppo_mini_batch_size": recipe.rollouts.prompts // train.minibatches,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": train.batch_tokens,
        f"{ACTOR}.data_loader_seed": train.seed,
        f"{ACTOR}.optim.lr": train.lr,
        f"{ACTOR}.optim.lr_warmup_steps": train.warmup_steps,
        f"{ACTOR}.optim.betas": train.betas,
        f"{ACTOR}.optim.weight_decay": train.weight_decay,
        f"{ACTOR}.optim.clip_grad": train.max_grad_norm,
        f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"],
    }


def _loss(recipe: Rl) -> Keys:
    method = recipe.method
    keys: dict[str, Any] = {
        f"{ACTOR}.policy_loss.loss_mode": LOSSES[method.loss],
        f"{ACTOR}.clip_ratio": method.clip_low,
        f"{ACTOR}.clip_ratio_low": method.clip_low,
        f"{ACTOR}.clip_ratio_high": method.clip_high,
        f"{ACTOR}.clip_ratio_c": method.dual_clip or NO_DUAL_CLIP,
        f"{ACTOR}.loss_agg_mode": method.aggregation,
        f"{ACTOR}.entropy_coeff": method.entropy,
        f"{ACTOR}.use_kl_loss": method.kl > 0,
    }
    if method.horizon:
        keys[f"{ACTOR}.loss_scale_factor"] = method.horizon
    if method.kl:
        keys |= {f"{ACTOR}.kl_loss_coef": method.kl, f"{ACTOR}.kl_loss_type": "low_var_kl"}
    return keys


def _algorithm(recipe: Rl) -> Keys:
    return {
        "algorithm.adv_estimator": NAME,
        "+algorithm.weigh": recipe.method.weigh,
        "algorithm.norm_adv_by_std_in_grpo": recipe.method.advantage == "grpo",
        "algorithm.use_kl_in_reward": False,
        "algorithm.rollout_correction.bypass_mode": False,
        **_mismatch(recipe),
    }


def _mismatch(recipe: Rl) -> Keys:
    """Returns settings that correct the mismatch between trainer and engine by weighing or masking tokens.

    rollout_is weighs tokens. If rollout_is has one bound, verl truncates larger weights. If rollout_is has
    two bounds, verl sets weights outside of the bounds to 0 (IcePop). rollout_rs masks tokens, and its bounds
    apply to the ratio engine / trainer. verl's means exclude masked tokens.
    """
    rule, part = recipe.method.mismatch, "algorithm.rollout_correction.rollout"
    low, high, most = rule.mask_below, rule.mask_above, rule.truncate
    keys: dict[str, Any] = {f"{part}_is": None, f"{part}_rs": None}
    if most is not None:
        keys |= {f"{part}_is": "token", f"{part}_is_threshold": float(most)}
    if low is None and high is None:
        return keys
    low, high = low or 1 / FAR, high or FAR
    if most is not None and high <= most < FAR:
        return {**keys, f"{part}_is_threshold": f"{float(low)}_{float(high)}"}
    masked = {"token": "token_k1", "sequence": "seq_mean_k1"}[rule.level]
    return {**keys, f"{part}_rs": masked, f"{part}_rs_threshold": f"{1 / high}_{1 / low}"}
