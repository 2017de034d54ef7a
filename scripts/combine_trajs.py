"""Joins files of training rows, with a limited number of rows per instance.

Rows are drawn and shuffled as by SWE-smith's script. In an experiment, the key `sources` of an SFT recipe
does this, from graded runs.
"""

import argparse
import sys
from pathlib import Path

from swelab.console.option_types import whole
from swelab.console.terminal import run_script
from swelab.records import InputError, write_json
from swelab.sft.rows.combine import combine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", type=Path, nargs="+", help="files of rows, JSON Lines; their order affects the random choice"
    )
    parser.add_argument("-o", "--output_file", type=Path, required=True, help="file to write, JSON Lines")
    parser.add_argument("-m", "--max_per_inst", type=whole, default=3, help="most rows of an instance")
    parser.add_argument("-s", "--seed", type=whole, default=24, help="seed of the random choice and order")
    parser.add_argument("--resolved_only", action="store_true", help="exclude rows that are not resolved")
    args = parser.parse_args()
    if args.max_per_inst < 1:
        raise InputError(f"{args.max_per_inst} rows of an instance", "--max_per_inst", "at least 1")
    if args.output_file.resolve() in [path.resolve() for path in args.files]:
        raise InputError("is one of the files", args.output_file, "another file")
    facts = combine(args.files, args.output_file, args.max_per_inst, args.seed, args.resolved_only)
    write_json(args.output_file.with_name(f"metadata__{args.output_file.stem}.json"), facts)
    told = "; ".join(f"{count} left out: {reason}" for reason, count in facts["dropped"].items() if count)
    print(f"{facts['num_trajs']} rows in {args.output_file}{'; ' + told if told else ''}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
