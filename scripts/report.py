"""Writes the report of an experiment: one self-contained HTML page."""

import argparse
from pathlib import Path

from swelab.console.option_types import at_least, whole
from swelab.console.terminal import run_script
from swelab.lineage import Wildcards
from swelab.records import write_bytes
from swelab.scores.report.attempts import PACKED
from swelab.scores.report.html_page import render
from swelab.scores.report.report_data import gather


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", required=True, help="name in configs/experiments, without .yaml")
    parser.add_argument("--score", type=Path, required=True, help="the verified score")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all results")
    parser.add_argument("--configs", type=Path, default=Path("configs"), help="folder of all recipes")
    parser.add_argument(
        "--trajectories",
        type=at_least(0),
        default=PACKED,
        help="maximum number of attempts per run that are shown with all steps",
    )
    parser.add_argument("--seed", type=whole, default=0, help="seed of the random choice of attempts")
    parser.add_argument("--output", type=Path, required=True, help="page to write")
    args = parser.parse_args()
    at = Wildcards({"experiment": args.experiment}, args.configs, args.results)
    evidence = gather(at, args.score, args.trajectories, args.seed)
    page = render(evidence).encode()
    write_bytes(args.output, page)
    total = sum(run.total for run in evidence.runs)
    print(f"{args.output}: {len(page) / 1e6:.1f} MB on {total:,} attempts")


if __name__ == "__main__":
    run_script(main)
