"""Writes a published set as prompt rows of slime or Miles, or as files for an evaluation on Verified.

.venv/bin/python -m scripts.write_prompts --data owner/set --split train --output-dir data
.venv/bin/python -m scripts.write_prompts --assets --data princeton-nlp/SWE-bench_Verified --output-dir out
"""

import argparse
import sys
from pathlib import Path

from swelab.console.option_types import whole
from swelab.console.terminal import run_script
from swelab.evaluation.benchmark_rows import Source
from swelab.evaluation.prompt_rows import FORMS, write_assets, write_prompts
from swelab.records import InputError


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", "--dataset", "--train-data-source", required=True, help="file, or owner/set[@commit]")
    add("--split", "--train-split", default="test", help="split of a set on the hub")
    add("--train-config", default="default", help="only `default`, the files data/<split>-*.parquet")
    add("--files", nargs="*", default=[], help="shell patterns of the set's files, instead of --split")
    add("--output-dir", type=Path, required=True, help="folder to write")
    add("--output-name", default="train.jsonl", help="file name of the prompt rows")
    add("--max-samples", type=whole, default=0, help="number of rows to take from the start; 0 for all")
    add("--form", choices=FORMS, default="slime", help="format of the prompt rows")
    add("--assets", action="store_true", help="also instance_ids.txt, docker_images.txt, verified_eval.jsonl")
    args = parser.parse_args()
    if args.train_config != "default" and not args.files:
        parser.error("--train-config: name the files of that configuration with --files")
    if args.max_samples < 0:
        raise InputError(f"--max-samples {args.max_samples}", expected="0 or more")
    if "" in (args.data, args.output_name):
        raise InputError("--train-data-source or --output-name is empty", expected="a name")
    source = Source(args.data, args.split, tuple(args.files), convention(args.data, args.form))
    folder = args.output_dir.expanduser()
    if args.assets:
        counts = write_assets(source, folder)
        for where, reason in counts["refused"].items():
            print(f"refused: {where}: {reason}", file=sys.stderr)
        print(f"{folder}: " + ", ".join(f"{name} {count}" for name, count in counts["lines"].items()))
        return
    counts = write_prompts(source, folder / args.output_name, args.max_samples, args.form)
    for reason, count in counts["left_out"].items():
        print(f"{count} {reason}", file=sys.stderr)
    print(f"{folder / args.output_name}: {counts['rows']} rows")


def convention(data: str, form: str) -> str:
    """Returns the project whose images a data set uses: for Miles SWE-Gym, unless it is a "bench" set."""
    usual = "swe-gym" if form == "miles" and "bench" not in data.lower() else "swe-bench"
    return "swe-gym" if "gym" in data.lower() else usual


if __name__ == "__main__":
    run_script(main)
