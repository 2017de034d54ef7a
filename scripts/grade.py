"""Grades one shard of a policy's predictions, each in a fresh sandbox. Can be resumed."""

import argparse
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.grading.grading_stage import grade_shard
from swelab.jobs.provenance import Stage
from swelab.jobs.shards import belongs_to, with_sample
from swelab.records import read_json, write_jsonl
from swelab.rollouts.predictions import load_predictions, shard_predictions
from swelab.service.submission import ServiceRun, service_grades
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    patches = parser.add_mutually_exclusive_group(required=True)
    patches.add_argument("--trajectories", type=Path, help="trajectories of the shard, JSON Lines")
    patches.add_argument("--predictions", type=Path, help="predictions: a JSON list or object, or JSON Lines")
    parser.add_argument("--repos-dir", type=Path, required=True, help="folder of repository archives")
    parser.add_argument("--images", type=Path, nargs="?", help="images JSON, for tasks that run in images")
    parser.add_argument("--service", type=Path, nargs="?", help="use the verdicts of this run at the service")
    parser.add_argument("--witness", type=Path, help="witness file of the subset's lock, ZIP")
    parser.add_argument("--runs", type=Path, help="folder of stored test runs")
    parser.add_argument("--policy", required=True, help="name of the policy")
    parser.add_argument("--recipe", type=Path, help="policy recipe; its max_lost limits lost grades")
    parser.add_argument("--subset", required=True, help="name of the subset")
    parser.add_argument("--shard", default="000of001", help="<number>of<count>; a sample adds s<sample>")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=at_least(1), default=2, help="number of sandboxes at once")
    parser.add_argument("--output", type=Path, required=True, help="grades to write, JSON Lines")
    args = parser.parse_args()
    names = ("tasks", "trajectories", "predictions", "images", "service", "witness")
    stage = Stage("grade", **{name: getattr(args, name) for name in names})
    tasks = list(read_tasks(args.tasks, belongs_to(args.shard)))
    if args.trajectories:
        predictions = shard_predictions(args.trajectories, [task.instance_id for task in tasks])
    else:
        predictions = load_predictions(args.predictions, belongs_to(args.shard))
    if args.service:
        rows = service_grades(
            tasks, predictions, ServiceRun.of(read_json(args.service)), args.policy, args.subset
        )
    else:
        named = ("policy", "subset", "shard", "repos_dir", "progress", "workers")
        given = {"images_path": args.images, "runs_dir": args.runs, "witness_path": args.witness}
        given["max_lost"] = (recipes.load(POLICY, args.recipe).max_lost or 0) if args.recipe else 0
        rows = grade_shard(tasks, predictions, **{name: getattr(args, name) for name in named}, **given)
    write_jsonl(args.output, with_sample(rows, args.shard))
    places = {"journal": args.progress, "runs": args.runs, "repos": args.repos_dir}
    stage.write([args.output], shard=args.shard, **places)


if __name__ == "__main__":
    run_script(main)
