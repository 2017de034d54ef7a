"""Translates an RL recipe to settings of verl 0.9.1, as hydra overrides of its `ppo_trainer` configuration.

The overrides contain all settings for the learner and the servers. The remaining settings are read from the
recipe. Our agent loop reads the settings of rollouts (turns, history, rewards, concurrency). Our estimator
reads the settings of advantages.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swelab.configs import recipes
from swelab.configs.kinds.rl import Rl
from swelab.lineage import weights_paths
from swelab.models.model_values import load_named_policy
from swelab.records import InputError

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


EMBEDDED_ONLY = ("job.servers", "listen")
"""Keys that only the embedded engine uses."""


@dataclass(frozen=True)
class JudgeModel:
    """The policy that judges steps: the folder of its weights, and its sampling settings."""

    weights: Path
    max_tokens: int
    temperature: float

    @classmethod
    def of(cls, recipe: Rl, configs: Path = recipes.CONFIGS) -> "JudgeModel | None":
        """Returns the judge if verl must serve it. Returns None if the recipe has no judge, or if another
        server serves it. Raises InputError."""
        policy = load_named_policy(recipe.judge.policy, configs) if recipe.judge else None
        if policy is None or policy.kind != "checkpoint" or policy.endpoint:
            return None
        asked = policy.sampling
        return cls(Path(weights_paths(policy.weights)[0]), asked.max_tokens, asked.temperature)


@dataclass(frozen=True)
class RunFiles:
    """Files that a run on verl reads and writes.

    name: the recipe's name. weights: the checkpoint from which the run starts. tasks, held_out: files with
    the rows of the training tasks and the validation tasks. loops: file that names our agent loop. folder:
    folder for verl's checkpoints.
    """

    name: str
    weights: Path
    tasks: Path
    held_out: Path
    loops: Path
    folder: Path
    judge: JudgeModel | None = None


def overrides(recipe: Rl, files: RunFiles) -> list[str]:
    """Returns overrides `key=value` for `python -m verl.trainer.main_ppo` or for hydra's compose.

    Raises InputError if the recipe is for another engine, or if verl must serve a judge, but `files` does not
    contain the judge's weights.
    """
    if recipe.engine != "verl":
        raise InputError(f"engine: {recipe.engine}", files.name, "engine: verl")
    keys: dict[str, Any] = {
        **_data(recipe, files),
        "actor_rollout_ref.model.path": files.weights,
        **learner_keys(recipe),
        **_rollout(recipe, files),
        **_trainer(recipe, files),
        **_mode(recipe),
        **_judge(recipe, files),
    }
    return [f"{key}={hydra_value(value)}" for key, value in keys.items()]


def too_few(recipe: Rl, places: int | None) -> str:
    """Returns a message if the pool can run fewer sandboxes than the run has concurrent rollouts, otherwise
    "". places: number of sandboxes that the pool can run at once, or None if unknown."""
    if places is None or places >= recipe.rollouts.at_once:
        return ""
    what = f"rollouts.at_once {recipe.rollouts.at_once}, but the pool has {places} places"
    return f"{what}: rollouts would wait for a place while their time runs; lower it, or add hosts"


def unheard(recipe: Rl) -> list[str]:
    """Returns one line for each key of a recipe that the recipe's engine ignores."""
    if recipe.engine == "embedded":
        return ["verl: engine embedded does not look at it; engine: verl does"] if recipe.verl else []
    given = {*recipe.model_fields_set, *(f"job.{key}" for key in recipe.job.model_fields_set)}
    return [f"{key}: engine verl does not look at it" for key in EMBEDDED_ONLY if key in given]


def hydra_value(value: Any) -> str:
    """Formats a value for a hydra override. Text that is not a plain word is quoted."""
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(hydra_value, value))}]"
    if isinstance(value, (bool, int, float)):
        return str(value)
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*", text)
    if plain and text.lower() not in ("null", "true", "false", "nan", "inf"):
        return text
    escaped = re.sub(r"(\\+)(?=')|(\\+)$", lambda match: match[0] * 2, text).replace("'", "\\'")
    return f"'{escaped}'"


def _data(recipe: Rl, files: RunFiles) -> Keys:
    rollouts = recipe.rollouts
    prompt = recipe.cluster.prompt_tokens or rollouts.context_length // 4
    return {
        "data.train_files": files.tasks,
        "data.val_files": files.held_out,
        "data.train_batch_size": rollouts.prompts,
        "data.max_prompt_length": prompt,
        "data.max_response_length": rollouts.context_length - prompt,
        "data.return_raw_chat": True,
        "data.filter_overlong_prompts": False,
        "data.shuffle": False,  # the rows are in the recipe's order
        "data.validation_shuffle": False,
        "data.dataloader_num_workers": 0,
        "data.seed": recipe.train.seed,
    }


def _rollout(recipe: Rl, files: RunFiles) -> Keys:
    """Returns settings of the servers, of sampling, and of the agent loops that make rollouts."""
    rollouts, rollout, judged = recipe.rollouts, recipe.cluster.rollout, recipe.validation
    warm = judged.temperature if judged else 0.0
    keys: dict[str, Any] = {
        f"{ROLLOUT}.name": "sglang",
        f"{ROLLOUT}.n": rollouts.samples,
        f"{ROLLOUT}.temperature": rollouts.temperature,
        f"{ROLLOUT}.top_p": rollouts.top_p,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.max_model_len": rollouts.context_length,
        f"{ROLLOUT}.gpu_memory_utilization": rollout.memory,
        f"{ROLLOUT}.tensor_model_parallel_size": rollout.tensor_parallel,
        f"{ROLLOUT}.agent.num_workers": rollout.loops,
        f"{ROLLOUT}.agent.default_agent_loop": NAME,
        f"{ROLLOUT}.agent.agent_loop_config_path": files.loops,
        f"{ROLLOUT}.val_kwargs.n": 1,
        f"{ROLLOUT}.val_kwargs.do_sample": warm > 0,
        f"{ROLLOUT}.val_kwargs.temperature": warm,
    }
    if rollouts.max_total_tokens:
        keys[f"+{ROLLOUT}.engine_kwargs.sglang.max_total_tokens"] = rollouts.max_total_tokens
    return keys


def _trainer(recipe: Rl, files: RunFiles) -> Keys:
    """Returns settings of training steps, machines, checkpoints and logging."""
    train, verl = recipe.train, recipe.cluster
    resumed = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": verl.resume_from}
    return {
        "trainer.device": "cpu" if train.device == "cpu" else "cuda",
        "trainer.nnodes": verl.trainer.nodes,
        "trainer.n_gpus_per_node": verl.gpus,
        "trainer.total_training_steps": train.steps,
        "trainer.total_epochs": 1,  # the rows of all steps are in the file
        "trainer.save_freq": verl.save,
        "trainer.max_actor_ckpt_to_keep": train.keep_checkpoints,
        "trainer.test_freq": recipe.validation.every if recipe.validation else -1,
        "trainer.default_local_dir": files.folder,
        "trainer.project_name": recipe.wandb or NAME,
        "trainer.experiment_name": files.name,
        "trainer.logger": ["console", "file"],  # swelab writes the curves
        **(resumed if verl.resume_from else {"trainer.resume_mode": "auto"}),
    }


def _mode(recipe: Rl) -> Keys:
    """Returns settings for the trainer's mode. The mode determines whether the same GPUs train and serve, and
    how many steps ahead of training rollouts may start."""
    verl, ahead, part = recipe.cluster, recipe.rollouts.ahead, "trainer.v1"
    if verl.mode == "sync":
        return {f"{part}.trainer_mode": "sync", f"{part}.sampler.sync_refill_failed_groups": True}
    return {
        f"{part}.trainer_mode": "separate_async",
        f"{part}.separate_async.parameter_sync_step": recipe.train.minibatches,
        f"{part}.separate_async.num_warmup_batches": ahead,
        f"{part}.sampler.max_off_policy_threshold": ahead + 1,
        f"{part}.sampler.max_off_policy_strategy": "wait",
        "actor_rollout_ref.hybrid_engine": False,
        f"{ROLLOUT}.nnodes": verl.rollout.nodes,
        f"{ROLLOUT}.n_gpus_per_node": verl.gpus,
        f"{ROLLOUT}.checkpoint_engine.backend": verl.transfer,
    }


def _judge(recipe: Rl, files: RunFiles) -> Keys:
    """Returns settings of the nodes that serve the judge. Raises InputError if the judge's weights are not
    given."""
    if not (judge := recipe.cluster.judge):
        return {}
    if files.judge is None:
        raise InputError("verl.judge without the judge's weights", files.name, "a judge of kind checkpoint")
    part = "reward.reward_model"
    return {
        f"{part}.enable": True,
        f"{part}.enable_resource_pool": True,
        f"{part}.nnodes": judge.nodes,
        f"{part}.n_gpus_per_node": recipe.cluster.gpus,
        f"{part}.model_path": files.judge.weights,
        f"{part}.rollout.name": "sglang",
        f"{part}.rollout.tensor_model_parallel_size": judge.tensor_parallel,
        f"{part}.rollout.gpu_memory_utilization": judge.memory,
        f"{part}.rollout.response_length": files.judge.max_tokens,
        f"{part}.rollout.temperature": files.judge.temperature,
    }
