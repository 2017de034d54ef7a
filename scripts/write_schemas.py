"""Writes how rollouts and grades end into the JSON Schemas and the documentation, from swelab/outcomes.py."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.outcomes import written
from swelab.records import SCHEMAS, InputError, read_text, write_bytes

PAGES = SCHEMAS.parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not current")
    args = parser.parse_args()
    for path in sorted([*SCHEMAS.glob("*.json"), *PAGES.glob("*.md")], key=Path.as_posix):
        text = read_text(path)
        if written(text) == text:
            continue
        if args.check:
            raise InputError("not as in swelab/outcomes.py", path, "python -m scripts.write_schemas before")
        write_bytes(path, written(text).encode())
        print(path)


if __name__ == "__main__":
    run_script(main)
