#!/usr/bin/env python3
"""Prints the name of the recipe for a training script's variables and KEY=VALUE words.

The words are those that SWE-PDB's scripts pass to rLLM and verl. `--keys` lists them. Without words this is
the shipped recipe. Words that change the recipe make a new recipe in configs/rl/.
"""

import argparse
import copy
import os
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(1, str(ROOT / "swe-rl"))
from rl_recipe import add_recipe, number, save_recipe, set_key, weights  # noqa: E402

from swelab.configs import recipes  # noqa: E402
from swelab.console.terminal import run_script  # noqa: E402
from swelab.records import InputError  # noqa: E402

MODEL = "actor_rollout_ref"
KEYS = {
    "data.train_batch_size": "rollouts.prompts",
    "data.max_prompt_length": "verl.prompt_tokens",
    f"{MODEL}.model.path": "start",
    f"{MODEL}.actor.optim.lr": "train.lr",
    f"{MODEL}.actor.loss_agg_mode": "method.aggregation",
    f"{MODEL}.actor.clip_ratio_low": "method.clip_low",
    f"{MODEL}.actor.clip_ratio_high": "method.clip_high",
    f"{MODEL}.actor.clip_ratio_c": "method.dual_clip",
    f"{MODEL}.actor.entropy_coeff": "method.entropy",
    f"{MODEL}.actor.ppo_max_token_len_per_gpu": "train.batch_tokens",
    f"{MODEL}.actor.ulysses_sequence_parallel_size": "verl.trainer.sequence_parallel",
    f"{MODEL}.model.enable_gradient_checkpointing": "train.activation_checkpointing",
    f"{MODEL}.rollout.tensor_model_parallel_size": "verl.rollout.tensor_parallel",
    f"{MODEL}.rollout.gpu_memory_utilization": "verl.rollout.memory",
    f"{MODEL}.rollout.temperature": "rollouts.temperature",
    f"{MODEL}.rollout.n": "rollouts.samples",
    f"{MODEL}.rollout.val_kwargs.temperature": "validation.temperature",
    "rllm.agent.engine_args.n_parallel_agents": "rollouts.at_once",
    "trainer.nnodes": "verl.trainer.nodes",
    "trainer.save_freq": "verl.save",
    "trainer.test_freq": "validation.every",
    "trainer.max_actor_ckpt_to_keep": "train.keep_checkpoints",
    "trainer.total_training_steps": "train.steps",
    "algorithm.adv_estimator": "method.advantage",
}
"""Maps keys of rLLM and verl to keys of a recipe."""
ESTIMATORS = {"grpo": "grpo", "rloo": "leave-one-out"}
OWN = {
    "data.train_files": "subset: rows to learn on",
    "data.val_files": "validation.subset: rows to validate on",
    "data.max_response_length": "rollouts.context_length, with data.max_prompt_length",
    f"{MODEL}.actor.use_kl_loss": "method.kl is 0 without it",
    f"{MODEL}.actor.kl_loss_coef": "method.kl, where use_kl_loss is True",
    "rllm.disable_thinking": "rollouts.thinking",
    "rllm.agent.max_steps": "step_limit of a scaffold of its own",
    "rllm.agent.trajectory_timeout": "wall_seconds of a scaffold of its own",
    "rllm.agent.overlong_filter": "method.failures.mask",
    "rllm.env.env_args.enable_pdb": "scaffold: debugger or debugger-rewrite",
    "rllm.env.env_args.enable_grep": "tools of a scaffold of its own",
    "rllm.env.env_args.enable_bash": "tools of a scaffold of its own",
    "rllm.env.env_args.persistent_breakpoints": "persistent_breakpoints of a scaffold of its own",
    f"{MODEL}.actor.ppo_mini_batch_size": "train.minibatches: data.train_batch_size divided by it",
    f"{MODEL}.actor.fsdp_config.param_offload": "verl.trainer.offload: all, with the next",
    f"{MODEL}.actor.fsdp_config.optimizer_offload": "verl.trainer.offload: optimizer",
    "trainer.default_local_dir": "as CHECKPOINT_DIR: a link",
    "trainer.rollout_data_dir": "as ROLLOUT_DATA_DIR: a link",
    "trainer.validation_data_dir": "as VALIDATION_DATA_DIR",
    "trainer.n_gpus_per_node": "verl.gpus, job.gpus",
    "trainer.project_name": "as PROJECT_NAME: part of the links' names",
    "trainer.experiment_name": "as EXPERIMENT_NAME",
}
REASONS = {
    "verl lays its work out by train.batch_tokens and verl.rollout": "ray_init.num_cpus"
    f" {MODEL}.hybrid_engine {MODEL}.model.use_remove_padding {MODEL}.actor.use_dynamic_bsz"
    f" {MODEL}.actor.ppo_micro_batch_size_per_gpu {MODEL}.rollout.log_prob_use_dynamic_bsz"
    f" {MODEL}.rollout.log_prob_micro_batch_size_per_gpu {MODEL}.rollout.enforce_eager"
    f" {MODEL}.rollout.max_num_batched_tokens {MODEL}.rollout.max_num_seqs"
    f" {MODEL}.ref.fsdp_config.param_offload",
    "sglang serves": f"{MODEL}.rollout.name {MODEL}.rollout.mode {MODEL}.rollout.disable_log_stats",
    "weights are always a folder": f"{MODEL}.model.local_files_only",
    "the one divergence is low_var_kl, in the loss": f"{MODEL}.actor.kl_loss_type algorithm.kl_ctrl.kl_coef",
    "there is no critic": "trainer.critic_warmup trainer.max_critic_ckpt_to_keep",
    "a validation attempts each task once, the start too": "data.val_batch_size trainer.val_before_train"
    f" {MODEL}.rollout.val_kwargs.n",
    "an attempt whose messages are too long ends with context_limit": "data.filter_overlong_prompts"
    " data.filter_overlong_prompts_workers",
    "figures are always kept; wandb of a recipe names a project": "trainer.logger",
    "checkpoints are kept on this file system": "trainer.default_hdfs_dir",
    "trainer.total_training_steps says how long it trains": "trainer.total_epochs",
    "rollouts.at_once bounds what runs": "rllm.agent.engine_args.max_workers",
    "rllm.agent.overlong_filter says what is masked": "rllm.mask_truncated_samples",
    "the scaffold says who acts; enable_pdb chooses it": "rllm.env.name rllm.agent.name"
    " rllm.agent.agent_args.scaffold rllm.agent.agent_args.use_tool_call_format",
    "the agent debugger does it in one way (docs/debugger.md)": "rllm.env.env_args.show_directory_tree"
    " rllm.env.env_args.show_current_breakpoints rllm.env.env_args.auto_eval_on_rewrite",
    "SWELAB_BACKEND names the sandboxes, and files are in the rows": "rllm.env.env_args.backend"
    " rllm.env.env_args.data_path",
}
NONE = {word: why for why, words in REASONS.items() for word in words.split()}
"""Maps keys without a counterpart to the reason."""
VARIABLES = {
    "SWE_PDB_MODEL_PATH": f"{MODEL}.model.path",
    "TRAIN_DATA_FILES": "data.train_files",
    "VAL_DATA_FILES": "data.val_files",
    "N_PARALLEL": f"{MODEL}.rollout.n",
    "MAX_STEPS": "rllm.agent.max_steps",
}
"""Maps the variables of SWE-PDB's scripts to the keys that the scripts set from them."""
MASKED = ["context_limit", "step_limit", "time_limit"]
TOOLS = {"enable_grep": "grep", "enable_bash": "bash"}


def main():
    name = Path(os.environ.get("STANDS_FOR", sys.argv[0])).name
    usage = "%(prog)s [KEY=VALUE]...; swe-pdb/rl_recipe.py --keys lists the keys"
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(name, usage, __doc__, formatter_class=form, allow_abbrev=False)
    add = parser.add_argument
    add("--recipe", help="a recipe of configs/rl")
    add("--configs", type=Path, default=ROOT / "configs", help="folder of recipes")
    add("--gpus", action="store_true", help="print how many GPUs the recipe trains on, and stop")
    add("--keys", action="store_true", help="print the words that are known, and stop")
    add("words", nargs="*", metavar="KEY=VALUE", help="as the scripts pass them to rLLM")
    args = parser.parse_args()
    if args.keys:
        print("\n".join(f"{theirs} {ours}" for theirs, ours in sorted((KEYS | OWN).items())))
        return
    if not args.recipe:
        raise InputError("no --recipe", expected="a recipe of configs/rl")
    base = recipes.read_yaml(recipes.path_of("rl", args.recipe, args.configs))
    if "verl" not in base:
        raise InputError(f"the recipe {args.recipe} does not train on verl", expected="one of swepdb-*")
    if args.gpus:
        print(base["verl"]["gpus"])
        return
    recipe = apply_values(base, settings(args.words), args)
    print(save_recipe(base, recipe, args))


def settings(words):
    """Maps keys to values, from variables and words. Words take precedence. Raises InputError."""
    values = {key: os.environ[name] for name, key in VARIABLES.items() if os.environ.get(name)}
    for name in ("N_PARALLEL", "MAX_STEPS"):
        if os.environ.get(name):
            number(name, os.environ[name])
    for word in words:
        key, equals, value = word.lstrip("+").partition("=")
        if key in NONE:
            raise InputError(f"{key} has no counterpart: {NONE[key]}", expected="it left out")
        if not equals or key not in KEYS | OWN:
            unknown = f"{key}: no setting of these scripts, or one that changes nothing here"
            what = unknown if equals and key else f"{word!r}"
            raise InputError(what, expected="KEY=VALUE; swe-pdb/rl_recipe.py --keys lists them")
        values[key] = value
    return {key: parse(value) for key, value in values.items()}


def parse(text):
    """Parses a value as Hydra does, which also reads 1e-6 as a number. Raises InputError."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"the value {text!r}", expected="a number, True, False or a word") from None
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def apply_values(base, values, args):
    """Returns the recipe, changed by the given values. Raises InputError."""
    recipe = copy.deepcopy(base)
    for theirs, ours in KEYS.items():
        if theirs in values:
            set_key(recipe, ours, values[theirs], theirs)
    if f"{MODEL}.model.path" in values:
        path = str(values[f"{MODEL}.model.path"] or "")
        variable = os.environ.get("SWE_PDB_MODEL_PATH") == path
        recipe["start"] = weights("SWE_PDB_MODEL_PATH" if variable else f"{MODEL}.model.path", path)
    estimator = values.get("algorithm.adv_estimator")
    if estimator is not None:
        if estimator not in list(ESTIMATORS):
            raise InputError(f"algorithm.adv_estimator={estimator}", expected=" or ".join(ESTIMATORS))
        recipe["method"]["advantage"] = ESTIMATORS[estimator]
    set_subsets(recipe, values, args)
    set_context(recipe, base, values)
    set_batches(recipe, values)
    if "rllm.disable_thinking" in values:
        recipe["rollouts"]["thinking"] = not is_on(values, "rllm.disable_thinking")
    if "rllm.agent.overlong_filter" in values:
        recipe["method"]["failures"] = {"mask": MASKED if is_on(values, "rllm.agent.overlong_filter") else []}
    if is_on(values, f"{MODEL}.actor.use_kl_loss"):
        recipe["method"]["kl"] = values.get(f"{MODEL}.actor.kl_loss_coef", 0.001)
    if (gpus := values.get("trainer.n_gpus_per_node")) is not None:
        recipe["verl"]["gpus"] = recipe["job"]["gpus"] = gpus
    if (nodes := values.get("trainer.nnodes", 1)) != 1:
        recipe["job"]["nodes"] = nodes
    recipe["scaffold"] = scaffold(recipe["scaffold"], values, args)
    return recipe


def set_subsets(recipe, values, args):
    """Uses the user's files of rows as subsets. Raises InputError."""
    train, held_out = values.get("data.train_files"), values.get("data.val_files")
    if train:
        recipe["subset"] = subset(train, recipe["subset"], "train" if not held_out else None, args)
    if held_out:
        recipe["validation"]["subset"] = subset(held_out, recipe["validation"]["subset"], None, args)
        recipe["validation"].pop("limit", None)
    elif train:
        recipe["validation"]["subset"] = subset(train, recipe["validation"]["subset"], "heldout", args)


def subset(path, shipped, side, args):
    """Adds a subset of the rows at a path. Returns its name. side: a part of the rows, or None for all."""
    if not isinstance(path, str) or not Path(path).exists():
        raise InputError(f"{path}: no such file; expected KodCode rows or task folders")
    recipe = recipes.read_yaml(recipes.path_of("subset", shipped, args.configs))
    recipe |= {"path": str(Path(path).resolve())}
    if side is None:
        recipe = {
            key: value for key, value in recipe.items() if key not in ("side", "heldout_share", "limit")
        }
    else:
        recipe["side"] = side
    return add_recipe("subset", shipped, recipe, args)


def set_batches(recipe, values):
    """Sets the optimizer steps per batch, and what is offloaded to main memory. Raises InputError."""
    each, prompts = values.get(f"{MODEL}.actor.ppo_mini_batch_size"), recipe["rollouts"]["prompts"]
    if each is not None:
        if not isinstance(each, int) or each < 1 or prompts % each:
            what = f"{MODEL}.actor.ppo_mini_batch_size={each} with {prompts} tasks a step"
            raise InputError(what, expected="a number that divides them")
        recipe["train"]["minibatches"] = prompts // each
    words = [f"{MODEL}.actor.fsdp_config.{part}_offload" for part in ("param", "optimizer")]
    if not set(words) & set(values):
        return
    offload = recipe["verl"]["trainer"].get("offload", "none")
    before = {words[0]: offload == "all", words[1]: offload != "none"}
    weights_too, moments = (is_on(before | values, word) for word in words)
    if weights_too and not moments:
        raise InputError(f"{words[0]}=True without {words[1]}", expected="both, or the second alone")
    recipe["verl"]["trainer"]["offload"] = "all" if weights_too else "optimizer" if moments else "none"


def set_context(recipe, base, values):
    """Sets the context length: tokens of the first messages plus all later ones. Raises InputError."""
    prompt = base["verl"]["prompt_tokens"]
    tokens_of = {"data.max_prompt_length": prompt}
    tokens_of |= {"data.max_response_length": base["rollouts"]["context_length"] - prompt}
    tokens_of |= {key: values[key] for key in tokens_of if key in values}
    for key, tokens in tokens_of.items():
        if not isinstance(tokens, int) or tokens < 1:
            raise InputError(f"{key}={tokens}", expected="a whole number of tokens")
    recipe["rollouts"]["context_length"] = sum(tokens_of.values())


def scaffold(shipped, values, args):
    """Returns the name of the shipped scaffold, or of one with other limits and tools. Raises InputError."""
    env = "rllm.env.env_args."
    if f"{env}enable_pdb" in values:
        shipped = "debugger" if is_on(values, f"{env}enable_pdb") else "debugger-rewrite"
    base = recipes.read_yaml(recipes.path_of("scaffold", shipped, args.configs))
    settings = copy.deepcopy(base)
    for theirs, ours in (
        ("rllm.agent.max_steps", "step_limit"),
        ("rllm.agent.trajectory_timeout", "wall_seconds"),
    ):
        if theirs in values:
            settings[ours] = values[theirs]
    if f"{env}persistent_breakpoints" in values and not is_on(values, f"{env}persistent_breakpoints"):
        settings["persistent_breakpoints"] = False
    for name, tool in TOOLS.items():
        if f"{env}{name}" in values:
            others = [each for each in settings["tools"] if each != tool]
            settings["tools"] = [*others, tool] if is_on(values, f"{env}{name}") else others
    same = settings == base or (settings | {"tools": sorted(settings["tools"])}) == (
        base | {"tools": sorted(base["tools"])}
    )
    return shipped if same else add_recipe("scaffold", shipped, settings, args)


def is_on(values, key):
    """Returns whether a switch is on. Raises InputError if its value is not True or False."""
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{key}={value}", expected="True or False")
    return value


if __name__ == "__main__":
    run_script(main)
