"""Collects the trajectories of all shards into preds.json in the SWE-bench format, in the subset's order."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.files.json_streams import Spool, write_object
from swelab.jobs.provenance import Stage
from swelab.records import folder_for, read_records
from swelab.records.attempt_records import Trajectory, Usage
from swelab.rollouts.predictions import collect
from swelab.rollouts.token_usage import collect_usage
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--trajectories", type=Path, nargs="+", required=True, help="shards, JSON Lines")
    parser.add_argument("--usage", type=Path, help="file to write: tokens and cost by instance id")
    parser.add_argument("--output", type=Path, required=True, help="file to write: predictions by instance")
    args = parser.parse_args()
    inputs = {"tasks": args.tasks, "trajectories": args.trajectories}
    stage = Stage("collect_predictions", **inputs)
    names = (task.instance_id for task in read_tasks(args.tasks))
    usage: dict[str, Usage] = {}
    rows = collect_usage(read_records(args.trajectories, Trajectory), usage)
    with folder_for(args.output.parent) as folder:
        write_object(args.output, collect(rows, names, Spool(folder)))
    if args.usage:
        write_object(args.usage, sorted(usage.items()))
    stage.write([args.output, *filter(None, [args.usage])])


if __name__ == "__main__":
    run_script(main)
