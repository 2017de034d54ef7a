"""Compares scores on the same tasks, tests the difference, and records the files behind the scores."""

import argparse
from pathlib import Path

from swelab.configs import kinds, recipes
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import check, write_json
from swelab.records.score_records import VerifiedScore
from swelab.scores.report.text_summary import losses, trust
from swelab.scores.trail import trail_record
from swelab.scores.verified_score import load_score, score_experiment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", required=True, help="name in configs/experiments, without .yaml")
    parser.add_argument(
        "--scores", type=Path, nargs="+", required=True, help="scores of policies on benchmarks"
    )
    parser.add_argument("--compare", nargs=2, metavar=("FROM", "TO"), help="default: the experiment's")
    parser.add_argument("--benchmark", help="benchmark to show first; by default the experiment's first")
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="other files of the experiment")
    parser.add_argument("--output", type=Path, required=True, help="verified score to write")
    args = parser.parse_args()
    recipe = recipes.CONFIGS / recipes.FOLDERS["experiment"] / f"{args.experiment}.yaml"
    if not (args.compare and args.benchmark):
        named = recipes.load(kinds.EXPERIMENT, recipe)
        args.compare, args.benchmark = args.compare or named.compare, args.benchmark or named.benchmarks[0]
    compared = tuple(args.compare)
    scores = [load_score(path) for path in args.scores]
    used = {
        "policies": list(dict.fromkeys(score.policy for score in scores)),
        "benchmarks": list(dict.fromkeys(score.subset for score in scores)),
        "compare": list(compared),
    }
    stage = Stage("score_experiment", {recipe: used}, scores=args.scores, also=args.also)
    record = score_experiment(scores, compared, args.benchmark)
    record["manifest"] = trail_record(stage, args.scores, args.also, args.experiment)
    check(record, VerifiedScore, args.output)
    write_json(args.output, record)
    for each in (record, *record.others):
        rates = ", ".join(
            f"{name} {policy.resolve_rate:.1%}{losses(policy)}" for name, policy in each.policies.items()
        )
        print(f"{each.benchmark.name}{trust(each.validation)}: {rates}, p = {each.comparison.p_value}")


if __name__ == "__main__":
    run_script(main)
