"""Scores a policy on a benchmark: resolve rate, interval, and all counts from which they are computed."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import read_record, write_bytes, write_json
from swelab.records.report_records import Report
from swelab.scores.report.text_summary import losses, trust
from swelab.scores.score import read_usage, score
from swelab.scores.score_table import score_table
from swelab.tasks.task_rows import read_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="tasks of the benchmark, a subset JSON")
    parser.add_argument(
        "--report", type=Path, nargs="+", required=True, help="grading reports of the policy, one per run"
    )
    parser.add_argument("--usage", type=Path, nargs="*", default=[], help="tokens and cost, one file per run")
    parser.add_argument("--policy", required=True, help="name of the policy")
    parser.add_argument("--subset", required=True, help="name of the benchmark")
    parser.add_argument("--output", type=Path, required=True, help="score to write")
    parser.add_argument("--table", type=Path, help="CSV to write, with a line for each attempt")
    args = parser.parse_args()
    inputs = {"tasks": args.tasks, "report": args.report, "usage": args.usage}
    stage = Stage("score", **inputs)
    reports = [read_record(path, Report) for path in args.report]
    usage = [dict(read_usage(path)) for path in args.usage]
    record = score(read_tasks(args.tasks), reports, args.policy, args.subset, usage)
    write_json(args.output, record)
    if args.table:
        write_bytes(args.table, score_table(record, usage).encode())
    stage.write([args.output, *filter(None, [args.table])])
    low, high = record.interval
    print(
        f"{args.policy} on {args.subset}: {record.resolved}/{record.total} resolved, "
        f"{record.resolve_rate:.1%} [{low:.1%}, {high:.1%}]{losses(record)}{trust(record.validation)}"
    )


if __name__ == "__main__":
    run_script(main)
