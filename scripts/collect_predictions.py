"""Trajectories of all shards as preds.json in the SWE-bench format, in the subset's order."""

import argparse
from pathlib import Path

from swelab.console import run_script
from swelab.records import InputError, check, read_jsonl, write_json
from swelab.tasks.locks import kept_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--lock", type=Path, help="lock of the subset; all tasks without one")
    parser.add_argument("--trajectories", type=Path, nargs="+", required=True, help="shards, JSON Lines")
    parser.add_argument("--output", type=Path, required=True, help="predictions by instance id")
    args = parser.parse_args()
    found = {}
    for path in args.trajectories:
        for row in read_jsonl(path):
            check(row, "trajectory", path)
            if row["instance_id"] in found:
                raise InputError(f"{row['instance_id']} has two trajectories", path)
            found[row["instance_id"]] = {
                "instance_id": row["instance_id"],
                "model_name_or_path": row["policy"],
                "model_patch": row["model_patch"],
                "outcome": row["outcome"],
            }
    order = [task["instance_id"] for task in kept_tasks(args.tasks, args.lock)]
    missing = [name for name in order if name not in found]
    if missing or len(found) != len(order):
        raise InputError(
            f"{len(missing)} tasks without a trajectory, {len(found) + len(missing) - len(order)} of no task",
            args.tasks,
            "one trajectory a task",
        )
    write_json(args.output, {name: found[name] for name in order})


if __name__ == "__main__":
    run_script(main)
