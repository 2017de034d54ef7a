"""Converts Harbor's task folders to a subset JSON and repository archives (docs/harbor.md)."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.files.json_streams import write_list
from swelab.grading.harness.spec import read_spec
from swelab.tasks.harbor.harbor_source import import_folders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of task folders, or one task folder")
    parser.add_argument("--output", type=Path, required=True, help="subset JSON to write")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder for repository archives")
    args = parser.parse_args()
    found = import_folders(args.folder, args.repos_dir, read_spec)
    write_list(args.output, found.rows)
    print(f"{len(found.rows)} tasks in {args.output}, {len(found.refused)} task folders refused")
    for reason, count in found.reasons().items():
        print(f"refused: {count}: {reason}")


if __name__ == "__main__":
    run_script(main)
