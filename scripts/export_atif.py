"""Writes trajectories as ATIF documents, one file each (docs/sft-data.md)."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.rollouts.atif import export_atif


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("trajectories", nargs="+", type=Path, help="JSON Lines of trajectories, or folders of these")
    add("--output", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    print(f"{export_atif(args.trajectories, args.output)} documents in {args.output}")


if __name__ == "__main__":
    run_script(main)
