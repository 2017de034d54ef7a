"""Keeps the tasks that the gold patch always resolves, and empty or reversed patches never.

Can be resumed.
"""

import argparse
import sys
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.configs.kinds.subset import own
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.files.json_streams import write_list
from swelab.grading.validation.subset_lock import LockPlaces, lock_subset
from swelab.jobs.provenance import Stage
from swelab.records import check, write_json
from swelab.records.task_records import Lock
from swelab.tasks.task_images import task_images, unusable_tasks
from swelab.tasks.task_rows import read_tasks, slim
from swelab.tasks.validation_lock import read_kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--recipe", type=Path, required=True, help="subset recipe")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--images", type=Path, nargs="?", help="images JSON, for tasks that run in images")
    parser.add_argument("--runs", type=Path, help="folder for stored test runs and their logs")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=at_least(1), default=2, help="number of sandboxes at once")
    parser.add_argument("--output", type=Path, required=True, help="lock to write, JSON")
    parser.add_argument("--kept", type=Path, required=True, help="file to write: the kept tasks, JSON")
    parser.add_argument("--witness", type=Path, help="witness file to write, ZIP")
    args = parser.parse_args()
    recipe = own(recipes.load(SUBSET, args.recipe), args.recipe)
    used = {args.recipe: recipe.model_dump(include={"validation", "guard"})}
    stage = Stage("validate_tasks", used, tasks=args.tasks, images=args.images)
    places = [slim(task) for task in read_tasks(args.tasks)]
    unusable = unusable_tasks(places, args.images)
    images = task_images([task for task in places if task.instance_id not in unusable], args.images)
    at = LockPlaces(args.tasks, args.repos_dir, args.runs, args.progress, args.witness)
    check(lock := lock_subset(recipe, at, images, unusable, args.workers), Lock, args.output)
    write_json(args.output, lock)
    write_list(args.kept, read_kept(args.tasks, args.output))
    stage.write([args.output, args.kept, *filter(None, [args.witness])])
    counts = {part: len(lock[part]) for part in ("kept", "flaky", "broken", "unjudged") if part in lock}
    print(f"{len(places)} tasks: {counts}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
