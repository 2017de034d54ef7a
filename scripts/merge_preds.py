"""Joins the predictions in SWE-agent's folders. Fails if predictions are missing, and names them."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.records import write_json
from swelab.rollouts.predictions import merge_folders
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", help="folders of <id>/<id>.pred, at any depth")
    parser.add_argument("--tasks", type=Path, help="subset JSON; every instance must have a prediction")
    parser.add_argument("--output", type=Path, help="file to write; default preds.json in the first folder")
    args = parser.parse_args()
    names = [task.instance_id for task in read_tasks(args.tasks)] if args.tasks else None
    merged = merge_folders(args.directories, names)
    write_json(output := args.output or args.directories[0] / "preds.json", merged)
    print(f"{len(merged)} predictions in {output}")


if __name__ == "__main__":
    run_script(main)
