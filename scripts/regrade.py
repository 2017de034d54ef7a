"""Computes verdicts again from stored test runs, without running tests, and lists changed verdicts."""

import argparse
from itertools import chain
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.files.json_streams import write_with_list
from swelab.grading.grading_stage import Bench
from swelab.grading.regrade import regrade
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.records import read_jsonl
from swelab.rollouts.predictions import read_predictions
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.task_images import task_images
from swelab.tasks.task_rows import read_tasks, slim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--predictions", type=Path, required=True, help="predictions that were graded")
    parser.add_argument("--grades", type=Path, nargs="*", default=[], help="earlier grades, JSON Lines")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--images", type=Path, nargs="?", help="images JSON, for tasks that run in images")
    parser.add_argument("--witness", type=Path, help="witness file of the subset's lock, ZIP")
    parser.add_argument("--runs", type=Path, required=True, help="folder of stored test runs")
    parser.add_argument("--output", type=Path, required=True, help="verdicts and changes to write, JSON")
    args = parser.parse_args()
    old_statuses = {
        row["instance_id"]: row["status"] for row in chain.from_iterable(map(read_jsonl, args.grades))
    }
    places = [slim(task) for task in read_tasks(args.tasks)]
    images = task_images(places, args.images, refuse_leaks=False)
    with scratch_folder() as scratch:
        bench = Bench(
            RepoStore(args.repos_dir, scratch), None, images, Archive(args.runs), Witnesses(args.witness)
        )
        tasks = read_tasks(args.tasks)
        facts, grades = regrade(tasks, read_predictions(args.predictions), old_statuses, bench)
    write_with_list(args.output, facts, "grades", grades)
    print(f"{facts['judged']} judged, {len(facts['changed'])} changed, {len(facts['missing'])} not kept")


if __name__ == "__main__":
    run_script(main)
