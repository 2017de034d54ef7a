"""Writes a subset in the formats that other programs read."""

import argparse
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.tasks.exports import export
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--images", type=Path, nargs="?", help="record of pulled images, for their digests")
    parser.add_argument("--recipe", type=Path, required=True, help="subset recipe")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest to write: lines of each file")
    args = parser.parse_args()
    recipe = recipes.load(SUBSET, args.recipe)
    inputs = {"tasks": args.tasks, "images": args.images}
    stage = Stage("export_tasks", {args.recipe: recipe.plain()}, **inputs)
    tasks = read_tasks(args.tasks)
    facts = export(tasks, args.output, name=args.recipe.stem, recipe=recipe, images=args.images)
    stage.write([args.output / name for name in facts["lines"]], args.manifest, **facts)


if __name__ == "__main__":
    run_script(main)
