"""Writes the lock of a subset whose tasks were chosen from another subset, without a new validation."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.files.json_streams import write_list
from swelab.grading.witness_store import Witnesses, write_part
from swelab.jobs.provenance import Stage
from swelab.records import check, write_json
from swelab.records.task_records import Lock
from swelab.tasks.task_rows import read_tasks
from swelab.tasks.validation_lock import lock_of_part, read_kept, read_lock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    told = "lock and witness file of the subset they are chosen from"
    parser.add_argument("--validated", type=Path, required=True, nargs=2, help=told)
    parser.add_argument("--output", type=Path, required=True, help="lock to write, JSON")
    parser.add_argument("--kept", type=Path, required=True, help="file to write: the kept tasks, JSON")
    parser.add_argument("--witness", type=Path, required=True, help="witness file to write, ZIP")
    args = parser.parse_args()
    validated, witnesses = args.validated
    stage = Stage("lock_chosen_tasks", tasks=args.tasks, validated=validated, witnesses=witnesses)
    lock = lock_of_part(read_tasks(args.tasks), read_lock(validated), validated)
    check(lock, Lock, args.output)
    write_json(args.output, lock)
    write_list(args.kept, read_kept(args.tasks, args.output))
    write_part(args.witness, Witnesses(witnesses), [row.instance_id for row in lock.kept])
    stage.write([args.output, args.kept, args.witness])


if __name__ == "__main__":
    run_script(main)
