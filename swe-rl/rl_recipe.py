#!/usr/bin/env python3
"""Prints the name of the recipe for a training script's options and variables.

The options are those of slime and Miles. Without options this is the shipped recipe. Options that change the
recipe make a new recipe in configs/rl/.
"""

import argparse
import copy
import os
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from rl_layout import colocate, set_key, set_layout, set_nodes  # noqa: E402
from rl_names import ESTIMATORS, NUMBERS, add_options, number, rows, weights, words_of  # noqa: E402

from swelab.configs import recipes  # noqa: E402
from swelab.console.terminal import run_script  # noqa: E402
from swelab.records import InputError, digest, write_bytes  # noqa: E402

JUDGE = "swe-rl-judge"
DEBUG_STEPS = {"swerl-32b-8nodes": 40, "swerl-32b-8nodes-resume": 40}
"""Number of steps with DEBUG_MODE=1. The other scripts of SWE-RL make 80."""


def main():
    name = Path(os.environ.get("STANDS_FOR", sys.argv[0])).name
    usage = "%(prog)s [OPTION VALUE]...; --help lists the options"
    parser = argparse.ArgumentParser(name, usage, __doc__, allow_abbrev=False)
    parser.add_argument("--recipe", required=True, help="a recipe of configs/rl")
    parser.add_argument("--configs", type=Path, default=ROOT / "configs", help="folder of recipes")
    add_options(parser)
    args = parser.parse_args()
    base = recipes.read_yaml(recipes.path_of("rl", args.recipe, args.configs))
    args = parser.parse_args(words_of(os.environ, "judge" in base) + sys.argv[1:])
    recipe = apply_options(base, args)
    check_weights(base, args)
    print(save_recipe(base, recipe, args))


def apply_options(base, args):
    """Returns the recipe, apply_options by options and variables. Raises InputError."""
    recipe = copy.deepcopy(base)
    apply_variables(recipe, args)
    set_layout(recipe, os.environ)
    if (gpus := args.actor_num_gpus_per_node) is not None:
        if gpus < 1:
            raise InputError(f"--actor-num-gpus-per-node {gpus}", expected="1 or more")
        recipe["verl"]["gpus"] = recipe["job"]["gpus"] = gpus
    if args.prompt_data is not None:
        data = {"source": "dataset", "path": rows("--prompt-data", args.prompt_data), "images": "swe-gym"}
        recipe["subset"] = add_recipe("subset", "prompts", data | {"validate": {"gold_runs": 1}}, args)
    options = (args.prm_model_path, args.prm_num_gpus, args.prm_temperature, args.prm_max_new_tokens)
    if args.prm_enable or any(each is not None for each in options):
        add_judge(recipe, args)
    for name, (key, _) in NUMBERS.items():
        if (value := getattr(args, name.replace("-", "_"))) is not None:
            set_key(recipe, key, value, name)
    if args.hf_checkpoint is not None:
        recipe["start"] = weights("--hf-checkpoint", args.hf_checkpoint)
    if args.global_batch_size is not None:
        minibatches(recipe, args.global_batch_size)
    apply_flags(recipe, args)
    if args.colocate:
        colocate(recipe)
    set_nodes(recipe, None if args.colocate else args.rollout_num_gpus)
    return recipe


def check_weights(base, args):
    """Raises InputError if the user names no weights and the recipe's weights do not exist."""
    if not os.environ.get("HF_CKPT") and args.hf_checkpoint is None:
        require_weights("HF_CKPT", f"configs/rl/{args.recipe}.yaml", base["start"])
    judge = "judge" in base and os.environ.get("PRM_ENABLE") != "0"
    if (judge or args.prm_enable) and args.prm_model_path is None:
        policy = base.get("judge", {"policy": JUDGE})["policy"]
        folder = recipes.read_yaml(recipes.path_of("policy", policy, args.configs)).get("weights")
        if folder:
            require_weights("--prm-model-path", f"configs/policies/{policy}.yaml", folder)


def require_weights(name, file, folder):
    """Raises InputError if a recipe's weights do not exist. name: the option that names other weights."""
    if ":" not in folder and not (ROOT / folder).is_dir():
        what = f"{name} is not set, and {folder}, the weights of {file}, is not there"
        raise InputError(what, expected=f"{name}=<folder of weights>, or model:<recipe> or sft:<recipe>")


def apply_variables(recipe, args):
    """Applies the variables that have no equivalent option. Raises InputError."""
    env = os.environ
    if env.get("HF_CKPT"):
        recipe["start"] = weights("HF_CKPT", env["HF_CKPT"])
    if env.get("SWE_MAX_CONCURRENT"):
        recipe["rollouts"]["at_once"] = number("SWE_MAX_CONCURRENT", env["SWE_MAX_CONCURRENT"])
    if env.get("DEBUG_MODE") == "1":
        recipe["rollouts"]["samples"] = 2
        if args.recipe.startswith("swerl-"):
            recipe["train"]["steps"] = DEBUG_STEPS.get(args.recipe, 80)
    if env.get("PRM_ENABLE") == "0" and "judge" in recipe:
        del recipe["judge"], recipe["verl"]["judge"]
    if env.get("SWE_PRM_MAX_CONCURRENCY") and "judge" in recipe:
        name = "SWE_PRM_MAX_CONCURRENCY"
        recipe["judge"]["at_once"] = number(name, env[name], least=1)
    if seconds := env.get("SWE_ROLLOUT_TIMEOUT"):
        scaffold = recipes.read_yaml(recipes.path_of("scaffold", recipe["scaffold"], args.configs))
        scaffold |= {"wall_seconds": number("SWE_ROLLOUT_TIMEOUT", seconds, least=1)}
        recipe["scaffold"] = add_recipe("scaffold", recipe["scaffold"], scaffold, args)
    resumed = env.get("ENABLE_RESUME_LOAD") == "1" or args.recipe.endswith("-resume")
    if resumed and env.get("RESUME_LOAD"):
        recipe["verl"]["resume_from"] = checkpoint("RESUME_LOAD", env["RESUME_LOAD"])


def minibatches(recipe, rollouts):
    """Sets the optimizer steps per batch. rollouts: number per optimizer step. Raises InputError."""
    batch = recipe["rollouts"]["prompts"] * recipe["rollouts"]["samples"]
    if rollouts < 1 or batch % rollouts:
        what = f"--global-batch-size {rollouts} with {batch} rollouts a step"
        raise InputError(what, expected="a number that divides them")
    recipe["train"]["minibatches"] = batch // rollouts


def apply_flags(recipe, args):
    """Applies the options that do not set a single number. Raises InputError."""
    method, train = recipe.setdefault("method", {}), recipe["train"]
    for place, beta in enumerate((args.adam_beta1, args.adam_beta2)):
        if beta is not None:
            train["betas"] = [*train.get("betas", [0.9, 0.98])]
            train["betas"][place] = beta
    if args.advantage_estimator:
        method["advantage"] = ESTIMATORS[args.advantage_estimator]
    if args.disable_grpo_std_normalization:
        method["advantage"] = "grpo-unscaled"
    if args.calculate_per_token_loss:
        method["aggregation"] = "token-mean"
    if args.dynamic_history:
        recipe["rollouts"]["history"], method["sequences"] = "managed", "step"
    if args.rollout_shuffle:
        recipe["rollouts"]["shuffled"] = True
    if args.recompute_granularity:
        train["activation_checkpointing"] = True
    if args.optimizer_cpu_offload and recipe["verl"]["trainer"].get("offload") != "all":
        recipe["verl"]["trainer"]["offload"] = "optimizer"
    if args.load is not None:
        recipe["verl"]["resume_from"] = checkpoint("--load", args.load)
    if args.use_wandb and not recipe.get("wandb"):
        raise InputError("--use-wandb without a project", expected="--wandb-project, too")


def checkpoint(name, folder):
    """Returns the absolute path of another run's checkpoint. Raises InputError if it is not one."""
    if not Path(folder, "actor").is_dir():
        raise InputError(f"{name}={folder}: no folder actor in it", expected="verl's global_step_N")
    return str(Path(folder).resolve())


def add_judge(recipe, args):
    """Adds a judge of single steps, with its weights and GPUs. Raises InputError."""
    recipe.setdefault("judge", {"policy": JUDGE, "votes": 3, "coefficient": 1.0, "at_once": 32})
    place = recipe["verl"].setdefault("judge", {"nodes": 1, "tensor_parallel": recipe["verl"]["gpus"]})
    policy = recipes.read_yaml(recipes.path_of("policy", recipe["judge"]["policy"], args.configs))
    before = copy.deepcopy(policy)
    if args.prm_model_path is not None:
        policy["weights"] = weights("--prm-model-path", args.prm_model_path)
    for key, value in (("temperature", args.prm_temperature), ("max_tokens", args.prm_max_new_tokens)):
        if value is not None:
            policy.setdefault("sampling", {})[key] = value
    if policy != before:
        recipe["judge"]["policy"] = add_recipe("policy", "judge", policy, args)
    if (total := args.prm_num_gpus) is not None:
        gpus = recipe["verl"]["gpus"]
        if total < 1 or (total > gpus and total % gpus):
            what = f"--prm-num-gpus {total} with {gpus} GPUs a node"
            raise InputError(what, expected="a part of a node, or whole nodes")
        place["nodes"], place["tensor_parallel"] = -(-total // gpus), min(total, gpus)


def save_recipe(base, recipe, args):
    """Writes new recipes. Returns the name of the new recipe, or of `base` if nothing was apply_options."""
    where = f"the settings of {script_name()}, in configs/rl"
    same = recipes.complete("rl", recipe, where) == recipes.complete("rl", base, where)
    name = args.recipe if same else add_recipe("rl", args.recipe, recipe, args)
    for path, text in vars(args).pop("files", {}).items():
        write_bytes(path, text.encode())
    return name


def add_recipe(kind, stem, settings, args):
    """Checks a new recipe and returns its name. `save_recipe` writes the file later."""
    name = f"{stem}-{digest(settings)[:8]}"
    path = args.configs / recipes.FOLDERS[kind] / f"{name}.yaml"
    recipes.complete(kind, settings, f"the settings of {script_name()}, in configs/{recipes.FOLDERS[kind]}")
    body = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=120)
    vars(args).setdefault("files", {})[path] = f"# Written for {script_name()}.\n{body}"
    return name


def script_name():
    """Returns the name of the script that the user started."""
    return Path(os.environ.get("STANDS_FOR", sys.argv[0])).name


if __name__ == "__main__":
    run_script(main)
