"""Combines all shards' grades of a policy on a subset into one report in SWE-bench's schema."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.grading.swebench_report import build_report, validation
from swelab.jobs.provenance import Stage
from swelab.records import InputError, check, read_records, write_json
from swelab.records.attempt_records import Grade
from swelab.records.report_records import Report
from swelab.tasks.task_rows import read_tasks
from swelab.tasks.validation_lock import read_lock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset JSON")
    parser.add_argument("--lock", type=Path, help="lock of the subset, which has the validation's figures")
    parser.add_argument("--grades", type=Path, nargs="+", required=True, help="shards of grades, JSON Lines")
    parser.add_argument("--policy", required=True, help="name of the policy")
    parser.add_argument("--subset", required=True, help="name of the subset")
    parser.add_argument("--output", type=Path, required=True, help="report to write")
    args = parser.parse_args()
    stage = Stage("report_grades", tasks=args.tasks, lock=args.lock, grades=args.grades)
    grades = (row for _, row in read_records(args.grades, Grade))
    report = build_report(read_tasks(args.tasks), grades, args.policy, args.subset)
    if not report["submitted_ids"]:
        raise InputError("hold no grade", " ".join(map(str, args.grades)), "the grades of a run")
    if args.lock:
        report["validation"] = validation(read_lock(args.lock))
    check(report, Report, args.output)
    write_json(args.output, report)
    stage.write([args.output])


if __name__ == "__main__":
    run_script(main)
