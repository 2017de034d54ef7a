"""Checks that no function, bug or instance is both trained on and scored."""

import argparse
from pathlib import Path

from swelab.console import run_script
from swelab.records import load_tasks, write_json
from swelab.tasks.disjoint import check_disjoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="subset JSONs trained on")
    parser.add_argument("--heldout", type=Path, nargs="+", required=True, help="subset JSONs scored")
    parser.add_argument("--output", type=Path, required=True, help="verdict, JSON")
    args = parser.parse_args()
    train, heldout = (
        [task for path in paths for task in load_tasks(path)] for paths in (args.train, args.heldout)
    )
    write_json(args.output, check_disjoint(train, heldout))


if __name__ == "__main__":
    run_script(main)
