"""One policy attempts one shard of a subset's tasks; resumable."""

import argparse
from pathlib import Path

from swelab import recipes
from swelab.console import run_script
from swelab.records import write_jsonl
from swelab.rollouts import roll_out
from swelab.tasks.locks import kept_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--lock", type=Path, help="lock of the subset; all tasks without one")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--images", type=Path, nargs="?", help="images JSON, for tasks that run in images")
    parser.add_argument("--policy", type=Path, required=True, help="policy recipe")
    parser.add_argument("--scaffold", type=Path, required=True, help="scaffold recipe")
    parser.add_argument("--subset", required=True, help="name of the subset")
    parser.add_argument("--shard", default="000of001", help="<number>of<count>")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=int, default=2, help="rollouts at once")
    parser.add_argument("--output", type=Path, required=True, help="trajectories, JSON Lines")
    args = parser.parse_args()
    rows = roll_out(
        kept_tasks(args.tasks, args.lock, args.shard),
        policy_name=args.policy.stem,
        policy=recipes.load("policy", args.policy),
        scaffold=recipes.load("scaffold", args.scaffold),
        subset=args.subset,
        shard=args.shard,
        repos_dir=args.repos_dir,
        images_path=args.images,
        progress=args.progress,
        workers=args.workers,
    )
    write_jsonl(args.output, rows)


if __name__ == "__main__":
    run_script(main)
