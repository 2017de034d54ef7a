"""Checks that no instance, function, bug or starting commit is used both for training and for scores."""

import argparse
from itertools import chain
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import write_json
from swelab.tasks.disjoint import check_disjoint
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="subset JSONs used for training")
    parser.add_argument("--heldout", type=Path, nargs="*", required=True, help="subset JSONs used for scores")
    parser.add_argument(
        "--same-commit",
        choices=("refuse", "report"),
        default="refuse",
        help="what to do if a commit is on both sides",
    )
    parser.add_argument("--output", type=Path, required=True, help="verdict to write, JSON")
    args = parser.parse_args()
    stage = Stage("check_disjoint", train=args.train, heldout=args.heldout)
    train, heldout = (chain.from_iterable(map(read_tasks, paths)) for paths in (args.train, args.heldout))
    write_json(args.output, check_disjoint(train, heldout, args.same_commit))
    stage.write([args.output], same_commit=args.same_commit)


if __name__ == "__main__":
    run_script(main)
