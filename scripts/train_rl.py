"""Trains a policy on the results of its own attempts at a subset's tasks; can be resumed at any moment."""

import argparse
import sys
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import rl_slice
from swelab.configs.kinds import RL
from swelab.console.terminal import run_script
from swelab.files.weights import identity
from swelab.records import sha256_file, write_json
from swelab.rl.rollout_inputs import Reads
from swelab.rl.step_reports import StepReports
from swelab.rl.token_template import TokenTemplate
from swelab.rl.training_record import stage_of
from swelab.rl.training_run import FIGURES, hand_over, history_note, read_start, run_name, train_policy
from swelab.tasks.task_images import task_images
from swelab.tasks.task_rows import read_tasks

ROLES = ("start", "tasks", "images", "witness", "held_out_tasks", "held_out_images")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="RL recipe: configs/rl/<name>.yaml")
    parser.add_argument("--start", type=Path, required=True, help="manifest or folder of the initial weights")
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--images", type=Path, nargs="?", help="images JSON, for tasks that run in images")
    parser.add_argument("--witness", type=Path, nargs="*", default=[], help="witness files of all subsets")
    parser.add_argument("--held-out-tasks", type=Path, nargs="?", help="subset JSON of the validation tasks")
    parser.add_argument("--held-out-images", type=Path, nargs="?", help="images JSON of the validation tasks")
    parser.add_argument("--progress", type=Path, required=True, help="working folder, kept after a kill")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder; metrics are beside it")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest of the checkpoint to write")
    args = parser.parse_args()
    recipe = recipes.load(RL, args.recipe)
    stage = stage_of(args.recipe, recipe, **{role: getattr(args, role) for role in ROLES})
    used, tasks = rl_slice(recipe), list(read_tasks(args.tasks))
    start, digest = read_start(args.start)
    if note := history_note(TokenTemplate.of(start)):
        print(f"note: {note}", file=sys.stderr)
    held_out = list(read_tasks(args.held_out_tasks)) if args.held_out_tasks else []
    images = task_images(tasks, args.images) | task_images(held_out, args.held_out_images)
    reads = Reads(tasks, args.repos_dir, held_out, images, args.witness)
    work = args.progress / run_name(recipe, digest, reads)
    last = train_policy(recipe, start, reads, work, StepReports(work, recipe.wandb))
    hand_over(last, work, args.checkpoint)
    made = identity(args.checkpoint)
    facts = {"start": {"name": recipe.start, "digest": digest}, **used}
    figures = [args.checkpoint.with_name(name) for name in FIGURES]
    write_json(args.manifest, {**made, **facts, "metrics_sha256": sha256_file(figures[0])})
    files = {args.checkpoint / name: sha for name, sha in made["files"].items()}
    stage.write(dict.fromkeys([args.manifest, *figures], "") | files)


if __name__ == "__main__":
    run_script(main)
