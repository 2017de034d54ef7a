"""Makes a subset's task rows: bugs in a package, drill tasks, or rows of a data set. Can be resumed."""

import argparse
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import tasks_slice
from swelab.configs.kinds import SUBSET
from swelab.configs.kinds.subset import own
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.files.json_streams import write_list
from swelab.grading.harness.logs import statuses
from swelab.grading.harness.spec import read_spec
from swelab.jobs.provenance import Stage
from swelab.records import sha256_file
from swelab.sandbox import open_backend
from swelab.tasks.sources import archives, make_tasks
from swelab.tasks.task_rows import check_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="subset recipe")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--exclude", type=Path, nargs="*", default=[], help="subset JSONs to exclude")
    parser.add_argument("--ratings", type=Path, nargs="?", help="difficulties of the rows, JSON Lines")
    parser.add_argument("--progress", type=Path, required=True, help="journal of verdicts")
    parser.add_argument("--workers", type=at_least(1), default=2, help="number of sandboxes at once")
    parser.add_argument("--output", type=Path, required=True, help="subset JSON to write")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest: counts, drops, origin")
    args = parser.parse_args()
    recipe = own(recipes.load(SUBSET, args.recipe), args.recipe)
    given = {"exclude": args.exclude, "ratings": args.ratings}
    tars = archives(recipe, args.repos_dir)
    used = {args.recipe: tasks_slice(recipe)}
    stage = Stage("make_tasks", used, repos=tars.values(), rows=getattr(recipe, "path", None), **given)
    tasks, drops = make_tasks(
        recipe, args.repos_dir, args.progress, args.workers, open_backend, statuses, **given, usable=read_spec
    )
    kept = write_list(args.output, check_rows(enumerate(tasks), args.output))
    facts = {
        "requested": recipe.limit,
        "kept": kept,
        "candidates": kept + sum(drops.values()),
        "drops": drops,
        "repos": {name: sha256_file(path) for name, path in tars.items()},
    }
    stage.write([args.output], args.manifest, **facts)


if __name__ == "__main__":
    run_script(main)
