"""Trains a policy on the results of its own attempts at the tasks of a subset; resumable at any moment."""

import argparse
import shutil
import sys
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.console.terminal import run_script
from swelab.files.weights import identity
from swelab.jobs.provenance import Stage
from swelab.records import InputError, read_json, sha256_file, write_bytes, write_json
from swelab.rl.learner import STATE
from swelab.rl.loop import tell
from swelab.rl.token_template import TokenTemplate
from swelab.rl.training_run import history_note, run_name, train_policy
from swelab.sft.train.training import put_in_place
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="configs/rl/<name>.yaml")
    parser.add_argument("--start", type=Path, required=True, help="manifest of the weights to start from")
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--images", type=Path, nargs="?", help="images JSON, for tasks that run in images")
    parser.add_argument("--progress", type=Path, required=True, help="folder to work in, kept over a kill")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder, Hugging Face layout")
    parser.add_argument("--manifest", type=Path, required=True, help="what the checkpoint is")
    parser.add_argument("--metrics", type=Path, required=True, help="one line a step, JSON Lines")
    args = parser.parse_args()
    recipe = recipes.load(RL, args.recipe)
    used = recipe.plain()
    inputs = {"tasks": args.tasks, "images": args.images}
    stage = Stage("train_rl", {args.recipe: used}, start=args.start, **inputs)
    tasks = list(read_tasks(args.tasks))
    if not tasks:
        raise InputError("no task is kept", args.tasks, "tasks that passed validation")
    start = args.start.with_suffix("")
    if note := history_note(TokenTemplate.of(start)):
        print(f"note: {note}", file=sys.stderr)
    work = args.progress / run_name(recipe, read_json(args.start)["digest"], tasks)
    last = train_policy(recipe, start, tasks, work, args.repos_dir, args.images, tell)
    staged = work / "checkpoint"
    shutil.rmtree(staged, ignore_errors=True)
    shutil.copytree(last, staged, ignore=shutil.ignore_patterns(STATE))
    put_in_place(staged, args.checkpoint, work / "replaced")
    write_bytes(args.metrics, (work / "metrics.jsonl").read_bytes())
    made = identity(args.checkpoint)
    facts = {"start": {"name": recipe.start, "digest": read_json(args.start)["digest"]}, "recipe": used}
    write_json(args.manifest, {**made, **facts, "metrics_sha256": sha256_file(args.metrics)})
    files = {args.checkpoint / name: sha for name, sha in made["files"].items()}
    stage.write({args.manifest: "", args.metrics: "", **files})


if __name__ == "__main__":
    run_script(main)
