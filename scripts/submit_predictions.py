"""Sends a policy's predictions to SWE-bench's service (sb-cli), and gets the verdicts. Can be resumed."""

import argparse
import contextlib
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.console.option_types import number
from swelab.console.terminal import run_script
from swelab.jobs.journal import lock
from swelab.jobs.provenance import Stage
from swelab.records import Record, write_json
from swelab.rollouts.predictions import load_predictions
from swelab.service.submission import SbCli, Waiting, benchmark_of, judge_by_service, sendable
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--predictions", type=Path, required=True, help="JSON list or object, or JSON Lines")
    parser.add_argument("--recipe", type=Path, required=True, help="configs/subsets/<name>.yaml")
    parser.add_argument("--policy", required=True, help="name of the policy")
    parser.add_argument("--sb-cli", type=Path, default=Path(".venv-sb-cli/bin/sb-cli"), help="path of sb-cli")
    parser.add_argument("--wait-minutes", type=number, default=240, help="maximum time to wait for verdicts")
    parser.add_argument("--poll-seconds", type=number, default=30, help="pause between requests for status")
    parser.add_argument("--call-seconds", type=number, default=900, help="maximum time of a call of sb-cli")
    parser.add_argument("--progress", type=Path, required=True, help="working folder, kept after a kill")
    parser.add_argument("--output", type=Path, required=True, help="record of the run, with its report")
    args = parser.parse_args()
    at = benchmark_of(recipe := recipes.load(SUBSET, args.recipe), args.recipe)
    part: Record = recipe.model_dump(include={"scorer", "service"})
    inputs = {"tasks": args.tasks, "predictions": args.predictions}
    stage = Stage("submit_predictions", {args.recipe: part}, **inputs)
    ids = [task.instance_id for task in read_tasks(args.tasks)]
    rows = sendable(load_predictions(args.predictions), ids, args.policy)
    args.progress.mkdir(parents=True, exist_ok=True)
    with (
        contextlib.closing(lock(args.progress / "lock")),
        open(args.progress / "sb-cli.log", "a", encoding="utf-8") as log,
    ):
        program = SbCli(args.sb_cli, args.call_seconds, log)
        wait = Waiting(args.poll_seconds, args.wait_minutes * 60)
        record = judge_by_service(rows, at, args.policy, args.progress, program, wait)
    write_json(args.output, record)
    stage.write([args.output])
    resolved = sum(each.verdict == "resolved" for each in record.instances.values())
    print(f"run {record.run_id} on {at.subset} {at.split}: {resolved}/{len(rows)} resolved")


if __name__ == "__main__":
    run_script(main)
