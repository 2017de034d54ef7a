#!/usr/bin/env python3
"""Prints the name of the recipe that a training script's options and variables mean.

Options are slime's and Miles'. Without any it is the shipped recipe; what they change is written into
configs/rl/ as a recipe of its own.
"""

import argparse
import copy
import os
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from rl_layout import colocated, laid_out, machines, put  # noqa: E402
from rl_names import ESTIMATORS, NUMBERS, add_options, number, rows, weights, words_of  # noqa: E402

from swelab.configs import recipes  # noqa: E402
from swelab.console.terminal import run_script  # noqa: E402
from swelab.records import InputError, digest, write_bytes  # noqa: E402

JUDGE = "swe-rl-judge"
DEBUG_STEPS = {"swerl-32b-8nodes": 40, "swerl-32b-8nodes-resume": 40}
"""Of DEBUG_MODE=1; 80 in the other scripts of SWE-RL."""


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
    made = changed(base, args)
    check_weights(base, args)
    print(kept(base, made, args))


def changed(base, args):
    """The recipe with what options and variables say. Raises InputError."""
    made = copy.deepcopy(base)
    by_variables(made, args)
    laid_out(made, os.environ)
    if (gpus := args.actor_num_gpus_per_node) is not None:
        if gpus < 1:
            raise InputError(f"--actor-num-gpus-per-node {gpus}", expected="1 or more")
        made["verl"]["gpus"] = made["job"]["gpus"] = gpus
    if args.prompt_data is not None:
        data = {"source": "dataset", "path": rows("--prompt-data", args.prompt_data), "images": "swe-gym"}
        made["subset"] = written("subset", "prompts", data | {"validate": {"gold_runs": 1}}, args)
    asked = (args.prm_model_path, args.prm_num_gpus, args.prm_temperature, args.prm_max_new_tokens)
    if args.prm_enable or any(each is not None for each in asked):
        judged(made, args)
    for name, (key, _) in NUMBERS.items():
        if (value := getattr(args, name.replace("-", "_"))) is not None:
            put(made, key, value, name)
    if args.hf_checkpoint is not None:
        made["start"] = weights("--hf-checkpoint", args.hf_checkpoint)
    if args.global_batch_size is not None:
        minibatches(made, args.global_batch_size)
    by_words(made, args)
    if args.colocate:
        colocated(made)
    machines(made, None if args.colocate else args.rollout_num_gpus)
    return made


def check_weights(base, args):
    """Raises InputError: the user names no weights, and those of the recipe are not there."""
    if not os.environ.get("HF_CKPT") and args.hf_checkpoint is None:
        there("HF_CKPT", f"configs/rl/{args.recipe}.yaml", base["start"])
    judge = "judge" in base and os.environ.get("PRM_ENABLE") != "0"
    if (judge or args.prm_enable) and args.prm_model_path is None:
        policy = base.get("judge", {"policy": JUDGE})["policy"]
        told = recipes.read_yaml(recipes.path_of("policy", policy, args.configs)).get("weights")
        if told:
            there("--prm-model-path", f"configs/policies/{policy}.yaml", told)


def there(name, recipe, told):
    """Raises InputError: the weights that a recipe names are not there."""
    if ":" not in told and not (ROOT / told).is_dir():
        what = f"{name} is not set, and {told}, the weights of {recipe}, is not there"
        raise InputError(what, expected=f"{name}=<folder of weights>, or model:<recipe> or sft:<recipe>")


def by_variables(made, args):
    """Variables that stand for no option. Raises InputError."""
    env = os.environ
    if env.get("HF_CKPT"):
        made["start"] = weights("HF_CKPT", env["HF_CKPT"])
    if env.get("SWE_MAX_CONCURRENT"):
        made["rollouts"]["at_once"] = number("SWE_MAX_CONCURRENT", env["SWE_MAX_CONCURRENT"])
    if env.get("DEBUG_MODE") == "1":
        made["rollouts"]["samples"] = 2
        if args.recipe.startswith("swerl-"):
            made["train"]["steps"] = DEBUG_STEPS.get(args.recipe, 80)
    if env.get("PRM_ENABLE") == "0" and "judge" in made:
        del made["judge"], made["verl"]["judge"]
    if env.get("SWE_PRM_MAX_CONCURRENCY") and "judge" in made:
        name = "SWE_PRM_MAX_CONCURRENCY"
        made["judge"]["at_once"] = number(name, env[name], least=1)
    if seconds := env.get("SWE_ROLLOUT_TIMEOUT"):
        scaffold = recipes.read_yaml(recipes.path_of("scaffold", made["scaffold"], args.configs))
        scaffold |= {"wall_seconds": number("SWE_ROLLOUT_TIMEOUT", seconds, least=1)}
        made["scaffold"] = written("scaffold", made["scaffold"], scaffold, args)
    resumed = env.get("ENABLE_RESUME_LOAD") == "1" or args.recipe.endswith("-resume")
    if resumed and env.get("RESUME_LOAD"):
        made["verl"]["resume_from"] = checkpoint("RESUME_LOAD", env["RESUME_LOAD"])


def minibatches(made, rollouts):
    """The optimizer's steps of a batch, of so many rollouts each. Raises InputError."""
    batch = made["rollouts"]["prompts"] * made["rollouts"]["samples"]
    if rollouts < 1 or batch % rollouts:
        what = f"--global-batch-size {rollouts} with {batch} rollouts a step"
        raise InputError(what, expected="a number that divides them")
    made["train"]["minibatches"] = batch // rollouts


def by_words(made, args):
    """Options that are no single number. Raises InputError."""
    method, train = made.setdefault("method", {}), made["train"]
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
        made["rollouts"]["history"], method["sequences"] = "managed", "step"
    if args.rollout_shuffle:
        made["rollouts"]["shuffled"] = True
    if args.recompute_granularity:
        train["activation_checkpointing"] = True
    if args.optimizer_cpu_offload and made["verl"]["trainer"].get("offload") != "all":
        made["verl"]["trainer"]["offload"] = "optimizer"
    if args.load is not None:
        made["verl"]["resume_from"] = checkpoint("--load", args.load)
    if args.use_wandb and not made.get("wandb"):
        raise InputError("--use-wandb without a project", expected="--wandb-project, too")


def checkpoint(name, told):
    """A checkpoint of another run. Raises InputError."""
    if not Path(told, "actor").is_dir():
        raise InputError(f"{name}={told}: no folder actor in it", expected="verl's global_step_N")
    return str(Path(told).resolve())


def judged(made, args):
    """A judge of single steps, its weights and its GPUs. Raises InputError."""
    made.setdefault("judge", {"policy": JUDGE, "votes": 3, "coefficient": 1.0, "at_once": 32})
    place = made["verl"].setdefault("judge", {"nodes": 1, "tensor_parallel": made["verl"]["gpus"]})
    policy = recipes.read_yaml(recipes.path_of("policy", made["judge"]["policy"], args.configs))
    before = copy.deepcopy(policy)
    if args.prm_model_path is not None:
        policy["weights"] = weights("--prm-model-path", args.prm_model_path)
    for key, value in (("temperature", args.prm_temperature), ("max_tokens", args.prm_max_new_tokens)):
        if value is not None:
            policy.setdefault("sampling", {})[key] = value
    if policy != before:
        made["judge"]["policy"] = written("policy", "judge", policy, args)
    if (asked := args.prm_num_gpus) is not None:
        gpus = made["verl"]["gpus"]
        if asked < 1 or (asked > gpus and asked % gpus):
            what = f"--prm-num-gpus {asked} with {gpus} GPUs a node"
            raise InputError(what, expected="a part of a node, or whole nodes")
        place["nodes"], place["tensor_parallel"] = -(-asked // gpus), min(asked, gpus)


def kept(base, made, args):
    """The name of the shipped recipe where nothing was changed, else a new one's. Writes new recipes."""
    where = f"what {made_for()} was told, in configs/rl"
    same = recipes.complete("rl", made, where) == recipes.complete("rl", base, where)
    name = args.recipe if same else written("rl", args.recipe, made, args)
    for path, text in vars(args).pop("files", {}).items():
        write_bytes(path, text.encode())
    return name


def written(kind, stem, settings, args):
    """The name of a recipe with these settings, which is checked here and written by `kept`."""
    name = f"{stem}-{digest(settings)[:8]}"
    path = args.configs / recipes.FOLDERS[kind] / f"{name}.yaml"
    recipes.complete(kind, settings, f"what {made_for()} was told, in configs/{recipes.FOLDERS[kind]}")
    body = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=120)
    vars(args).setdefault("files", {})[path] = f"# Written for {made_for()}.\n{body}"
    return name


def made_for():
    """The script that the user called."""
    return Path(os.environ.get("STANDS_FOR", sys.argv[0])).name


if __name__ == "__main__":
    run_script(main)
