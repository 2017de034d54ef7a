"""Prints whether the differences between results may be noise. With more than two, p-values are corrected.

.venv/bin/python -m scripts.compare a.json b.json           # a folder holds one file for each run
.venv/bin/python -m scripts.compare a.json                  # what further runs would find
.venv/bin/python -m scripts.compare --tasks 500 --rate 0.3  # the same before anything was run

A result is a score file of swelab, or a report of another harness.
"""

import argparse
from pathlib import Path

from swelab.console.option_types import at_least, number
from swelab.console.terminal import run_script
from swelab.records import InputError
from swelab.scores.report.text_summary import compare_all, describe, plan_before, plan_for
from swelab.scores.statistics.other_harnesses import on_one_benchmark, read_result
from swelab.scores.verified_score import statuses_of

DETECTABLE = "Smallest true difference that is found 80% of the time:"


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("results", type=Path, nargs="*", help="scores, reports with resolved_ids, or folders")
    parser.add_argument("--tasks", type=at_least(1), help="for planning: number of tasks")
    parser.add_argument("--rate", type=number, help="for planning: expected resolve rate, 0 to 1")
    parser.add_argument(
        "--luck", type=number, default=0.4, help="for planning: share of the variance that lies within a task"
    )
    args = parser.parse_args()
    print("\n".join(compare(args.results) if args.results else plan(args.tasks, args.rate, args.luck)))


def compare(paths: list[Path]) -> list[str]:
    results = [read_result(path) for path in paths]
    notes = on_one_benchmark(list(zip(paths, results, strict=True)))
    if len({result.policy for result in results}) < len(results):
        results = [result | {"policy": str(path)} for path, result in zip(paths, results, strict=True)]
    told = [*map(describe, results), *(f"note: {note}" for note in notes)]
    if len(results) > 1:
        return [*told, *compare_all(results)]
    return [*told, DETECTABLE, *plan_for(statuses_of(results[0]))]


def plan(tasks: int | None, rate: float | None, luck: float) -> list[str]:
    if not tasks or tasks < 1 or rate is None or not 0 < rate < 1 or not 0 <= luck <= 1:
        raise InputError("nothing to compare", expected="results, or --tasks 500 --rate 0.3 [--luck 0.4]")
    head = f"{tasks} tasks, {rate:.0%} resolved, {luck:.0%} of the variance luck of an attempt. {DETECTABLE}"
    return [head, *plan_before(tasks, rate, luck)]


if __name__ == "__main__":
    run_script(main)
