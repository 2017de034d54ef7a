"""Puts scores side by side, tests the difference on the same tasks, and writes down what they rest on."""

import argparse
from pathlib import Path

from swelab.console import run_script
from swelab.records import check, write_json
from swelab.scores.layout import Layout
from swelab.scores.verified import load_score, score_experiment, trail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", required=True, help="stem of a file under configs/experiments")
    parser.add_argument(
        "--scores", type=Path, nargs="+", required=True, help="scores of policies on benchmarks"
    )
    parser.add_argument("--compare", nargs=2, metavar=("FROM", "TO"), help="default: the experiment's")
    parser.add_argument("--benchmark", help="the headline; default: the experiment's first")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of the files to be named"
    )
    parser.add_argument("--manifests", type=Path, nargs="*", default=[], help="further manifests, kept whole")
    parser.add_argument("--output", type=Path, required=True, help="the verified score")
    args = parser.parse_args()
    layout = Layout.of(args.experiment, args.results)
    compared = tuple(args.compare or layout.experiment["compare"])
    scores = [load_score(path) for path in args.scores]
    record = score_experiment(scores, compared, args.benchmark or layout.benchmarks[0])
    record["manifest"] = trail(layout, args.scores, args.manifests)
    check(record, "verified_score", args.output)
    write_json(args.output, record)
    for each in (record, *record["others"]):
        rates = ", ".join(f"{name} {policy['resolve_rate']:.1%}" for name, policy in each["policies"].items())
        print(f"{each['benchmark']['name']}: {rates}, p = {each['comparison']['p_value']}")


if __name__ == "__main__":
    run_script(main)
