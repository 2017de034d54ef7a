"""Grades one shard of a policy's predictions, each in a fresh sandbox; resumable."""

import argparse
from pathlib import Path

from swelab.console import run_script
from swelab.grading.shard import grade_shard
from swelab.records import load_predictions, load_tasks, write_jsonl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument(
        "--predictions", type=Path, required=True, help="JSON list, JSON object or JSON Lines"
    )
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--policy", required=True, help="name of the policy")
    parser.add_argument("--subset", required=True, help="name of the subset")
    parser.add_argument("--shard", default="000of001", help="<number>of<count>")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=int, default=2, help="sandboxes at once")
    parser.add_argument("--output", type=Path, required=True, help="grades, JSON Lines")
    args = parser.parse_args()
    rows = grade_shard(
        load_tasks(args.tasks),
        load_predictions(args.predictions),
        policy=args.policy,
        subset=args.subset,
        shard=args.shard,
        repos_dir=args.repos_dir,
        progress=args.progress,
        workers=args.workers,
    )
    write_jsonl(args.output, rows)


if __name__ == "__main__":
    run_script(main)
