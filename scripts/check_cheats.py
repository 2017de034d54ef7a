"""Tests the grader with cheats and honest fixes. Fails if a cheat is resolved or a fix is not resolved."""

import argparse
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.grading.cheats import corpus
from swelab.grading.cheats.suite import check_cheats, check_summary, one_a_repo
from swelab.records import write_json
from swelab.sandbox import open_backend
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--workers", type=at_least(1), default=2, help="number of sandboxes at once")
    parser.add_argument("--plain", action="store_true", help="also list the cheats that fool a plain grader")
    parser.add_argument("--output", type=Path, required=True, help="verdicts to write, JSON")
    args = parser.parse_args()
    every = list(read_tasks(args.tasks))
    tasks, listed = one_a_repo(every), corpus.entries(*corpus.FORGERIES, corpus.HONEST)
    dealt = list(corpus.assign(listed, [task for task in every if task.repo_recipe]))
    with scratch_folder() as scratch:
        store = RepoStore(args.repos_dir, scratch)
        summary = check_cheats(tasks, store, open_backend(), args.workers, plain=args.plain, dealt=dealt)
    write_json(args.output, summary)
    check_summary(summary)
    print(
        f"{summary['cheats']} cheats, {summary['runs']} runs: {summary['resolved']} resolved; "
        f"gold patches: {summary['golds_resolved']} of {summary['golds']} resolved; honest fixes: "
        f"{summary['honest_resolved']} of {summary['honest']}; {len(listed) - len(dealt)} texts suit no task"
    )


if __name__ == "__main__":
    run_script(main)
