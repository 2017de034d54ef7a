"""Whether the grader's memory stays flat: thousands of instances in real sandboxes, tests of milliseconds.

    .venv/bin/python -m benchmarks.grading_memory [--instances 5000] [--workers 4] [--limit-mb 500]

Prints instances a minute and the grader's own peak resident memory; exit code 1 when that is over the limit.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import tiny_tasks
from swelab.console.terminal import run_script
from swelab.grading.grading_stage import grade_shard
from swelab.records import Record, write_jsonl


def counted(grades: Iterator[Record], found: dict[str, int]) -> Iterator[Record]:
    """The grades as they come, counted by status."""
    for grade in grades:
        found[grade["status"]] = found.get(grade["status"], 0) + 1
        yield grade


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--limit-mb", type=int, default=500)
    args = parser.parse_args()
    tasks, found = tiny_tasks.rows(args.instances), {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tiny_tasks.archive(place)
        options = {"policy": "p", "subset": "s", "shard": "000of001", "workers": args.workers}
        grades = grade_shard(
            tasks,
            tiny_tasks.predictions(tasks),
            repos_dir=place,
            progress=place / "j.jsonl",
            runs_dir=place / "runs",
            **options,
        )
        write_jsonl(place / "grades.jsonl", counted(grades, found))
    seconds = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{args.instances} instances, {found}, {60 * args.instances / seconds:.0f} a minute")
    print(f"peak_rss_mb={peak:.0f}")
    return int(peak > args.limit_mb or found != {"resolved": args.instances})


if __name__ == "__main__":
    run_script(main)
