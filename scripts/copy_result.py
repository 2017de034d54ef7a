"""Copies an experiment's score or report page into the folder results/ itself."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.records import write_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="a file of results/experiments/<name>")
    parser.add_argument("--output", type=Path, required=True, help="file to write, an exact copy")
    args = parser.parse_args()
    write_bytes(args.output, args.file.read_bytes())
    print(f"{args.output}: the same as {args.file}")


if __name__ == "__main__":
    run_script(main)
