#!/usr/bin/env python3
"""--input SET_OR_FILE --output ROWS.jsonl [--split train] [--limit N]: tasks as Miles' prompt rows."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "swe-rl"))
from stands_for import at_least, fail, run  # noqa: E402


def main():
    usage = "%(prog)s --input SET_OR_FILE --output FILE [--split NAME] [--limit N]"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__)
    add = parser.add_argument
    add("--input", required=True, help="file, or owner/set[@commit]")
    add("--output", type=Path, required=True, help="file that is written")
    add("--split", default="train", help="split of a set on the hub")
    add("--limit", type=at_least(0), default=0, help="the first rows only; 0 for all")
    args = parser.parse_args()
    if not args.input:
        fail("--input is empty; expected a file, or owner/set")
    if args.output.is_dir():
        fail(f"--output {args.output}: a folder; expected a file that can be written")
    told = ["--form", "miles", "--data", args.input, "--split", args.split, "--max-samples", args.limit]
    run("scripts.write_prompts", *told, "--output-dir", args.output.parent, "--output-name", args.output.name)


if __name__ == "__main__":
    main()
