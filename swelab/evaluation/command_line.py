"""Parses the command line of scripts.evaluate, and makes the plan of the evaluation."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swelab.configs.kinds.policy import ScriptedPolicy
from swelab.console.option_types import at_least, mapping, number, title, whole
from swelab.evaluation.benchmark_rows import Source, select_tasks
from swelab.evaluation.evaluation_plan import (
    DEFAULT_SCAFFOLD,
    Plan,
    has_no_price,
    policy_of,
    scaffold_of,
    with_servers,
    without_secret,
)
from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.sampling_settings import SETTINGS

DEFAULT_TOKENS = 4096
"""Limit of tokens per answer, unless --max-tokens or a recipe says otherwise."""
UNRECORDED = {"output_dir", "resume", "redo_existing", "check_only", "no_checks"}
"""Options that do not affect the result. summary.json does not list these options."""


def parse(about: str, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command-line options."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    _what(parser.add_argument)
    _how(parser.add_argument)
    return parser.parse_args(arguments)


def _what(add: Callable[..., Any]) -> None:
    add(
        "--model",
        required=True,
        help="openai/NAME or another model name of LiteLLM, a folder of weights, or a recipe",
    )
    add(
        "--data",
        required=True,
        help="JSON list, JSON Lines, Parquet, a folder of Harbor tasks, or owner/set[@commit] on the hub",
    )
    add("--output-dir", type=Path, required=True, help="folder for the results of this evaluation")
    add("--name", type=title, help="name of this evaluation in files and tables")
    add("--split", default="test", help="split of a set on the hub")
    add("--filter", default="", help="regular expression that must match at the start of an instance id")
    add("--shuffle", action="store_true", help="shuffle the chosen tasks with a fixed seed")
    add("--slice", default="", help="range of the chosen tasks, start:stop as in Python")
    add(
        "--max-instances",
        type=at_least(1),
        default=0,
        help="maximum number of tasks; the first ones are taken",
    )
    add("--instance-ids", nargs="*", default=[], help="evaluate only these tasks")
    add(
        "--image-convention",
        choices=("swe-bench", "swe-gym"),
        default="swe-bench",
        help="naming scheme for the images of rows that name no image",
    )
    add(
        "--resume",
        action="store_true",
        help="fail if the folder has no earlier run (an earlier run is always continued)",
    )
    add("--redo-existing", action="store_true", help="repeat finished attempts")
    add("--check-only", action="store_true", help="only check the requirements")
    add("--no-checks", action="store_true", help="do not check the requirements")


def _how(add: Callable[..., Any]) -> None:
    add("--api-base", default="", help="address of the service, such as http://host:8000/v1")
    add("--api-key-env", default="", help="environment variable with the key for --api-base")
    add("--scaffold", default="", help=f"name in configs/scaffolds, or a file; by default {DEFAULT_SCAFFOLD}")
    add("--max-concurrent", type=at_least(1), default=4, help="number of attempts at once")
    add("--samples", type=at_least(1), default=1, help="number of attempts per task, each with its own seed")
    add("--step-limit", type=at_least(1), help="limit of model calls per attempt; by default the scaffold's")
    _sampling(add)
    add("--budget-dollars", type=number, help="maximum cost of the evaluation; never exceeded")
    add("--max-lost", type=at_least(0), default=0, help="number of attempts that infrastructure may lose")
    add("--tp", type=at_least(1), help="number of GPUs per server, if --model is a folder")
    add("--dp", type=at_least(1), help="number of servers, if --model is a folder; by default all GPUs")
    add(
        "--repos-dir",
        type=Path,
        default=Path("results/repos"),
        help="folder of repository archives, for tasks that swelab made",
    )
    add("--images", type=Path, help="record of pulled images; without it images are pulled")
    add("--image-store", type=Path, help="folder for pulled images; by default OUTPUT_DIR/progress/images")
    add("--image-prefix", default="", help="mirror to put before image names: host[:port][/folder]")


def _sampling(add: Callable[..., Any]) -> None:
    """Adds an option for each sampling setting."""
    add("--sampling", choices=("model",), help="take the values of the weights' generation_config.json")
    types = {float: number, int: whole, str: str, list: str, dict: mapping}
    for name, setting in SETTINGS.items():
        if setting.kind is bool:
            add(f"--no-{name}", action="store_true", help=f"set `{name}` to false: {setting.meaning}")
            continue
        default = DEFAULT_TOKENS if name == "max_tokens" else setting.default
        add(
            f"--{name.replace('_', '-')}",
            type=types[setting.kind],
            nargs="+" if setting.kind is list else None,
            choices=setting.words or None,
            help=setting.meaning + ("" if default is None else f"; by default {default:g}"),
        )


def sampling_of(args: argparse.Namespace) -> Record:
    """Returns the sampling settings that the options give, under the names of a recipe's `sampling`."""
    given = {
        name: (False if getattr(args, f"no_{name}") else None) if each.kind is bool else getattr(args, name)
        for name, each in SETTINGS.items()
    }
    found = {name: value for name, value in given.items() if value is not None}
    recipe = args.model.endswith((".yaml", ".yml"))
    return (
        found
        | ({"defaults": args.sampling} if args.sampling else {})
        | ({} if recipe or "max_tokens" in found else {"max_tokens": DEFAULT_TOKENS})
    )


def plan_of(args: argparse.Namespace) -> tuple[Plan, Callable[[Sequence[Task]], list[Task]]]:
    """Returns the plan that the options describe, and a function that selects the tasks. Raises
    InputError."""
    sampling = sampling_of(args)
    name, policy = policy_of(
        args.model,
        api_base=args.api_base,
        api_key_env=args.api_key_env,
        sampling=sampling,
        budget_dollars=args.budget_dollars,
    )
    policy = with_servers(policy, args.tp, args.dp)
    if policy.kind == "recorded":
        raise InputError(
            "--model is a policy of recorded trajectories", args.model, "a model; see docs/sft-data.md"
        )
    free = 0.0 if not args.budget_dollars and has_no_price(policy) else None
    scaffold_name, scaffold = scaffold_of(args.scaffold or policy.scaffold, args.step_limit, free)
    if isinstance(policy, ScriptedPolicy) and args.seed is not None:
        policy = policy.model_copy(update={"seed": args.seed})
    plan = Plan(
        source=Source(args.data, args.split, images=args.image_convention),
        folder=args.output_dir,
        policy=policy,
        policy_name=name,
        scaffold=scaffold,
        scaffold_name=scaffold_name,
        workers=args.max_concurrent,
        samples=args.samples,
        max_lost=args.max_lost,
        repos=args.repos_dir,
        images=args.images,
        image_store=args.image_store,
        image_prefix=args.image_prefix,
        options=recorded_options(args),
        label=args.name or "",
    )
    wanted = {"pattern": args.filter, "part": args.slice, "most": args.max_instances}
    given = {"ids": args.instance_ids, "shuffled": args.shuffle}
    return plan, lambda tasks: select_tasks(tasks, **wanted, **given)


def recorded_options(args: argparse.Namespace) -> Record:
    """Returns the options as summary.json lists them. User, password and query are removed from addresses."""
    given = {name: value for name, value in vars(args).items() if name not in UNRECORDED}
    found = {name: value for name, value in given.items() if value not in (None, "", [], False)}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in found.items()}
    return {name: without_secret(each) if isinstance(each, str) else each for name, each in plain.items()}
