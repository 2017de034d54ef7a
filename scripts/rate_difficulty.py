"""Asks a model how hard the tasks of a subset are. Can be resumed."""

import argparse
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import rollout_slice
from swelab.configs.kinds import POLICY, RATER
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.models.model_values import sampling_facts, with_model_values
from swelab.records import write_jsonl
from swelab.tasks.difficulty import Ratings, rate_tasks
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--rater", type=Path, required=True, help="rater recipe")
    parser.add_argument("--policy", type=Path, required=True, help="recipe of the policy that rates")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=at_least(1), default=4, help="number of tasks at once")
    parser.add_argument("--output", type=Path, required=True, help="difficulties to write, JSON Lines")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest: counts, mean, origin")
    args = parser.parse_args()
    rater, counts = recipes.load(RATER, args.rater), Ratings()
    policy = recipes.load(POLICY, args.policy)
    used = {args.rater: rater.plain(), args.policy: rollout_slice(policy)}
    stage = Stage("rate_difficulty", used, tasks=args.tasks)
    policy = with_model_values(policy)
    rated = rate_tasks(
        read_tasks(args.tasks),
        rater=rater,
        policy_name=args.policy.stem,
        policy=policy,
        progress=args.progress,
        workers=args.workers,
    )
    write_jsonl(args.output, counts.count(rated))
    stage.write([args.output], args.manifest, **counts.facts, **sampling_facts(policy))


if __name__ == "__main__":
    run_script(main)
