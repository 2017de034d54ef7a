"""Runs what `make test` leaves out: `python -m tests.full`, or `make test-full`.

Tests marked alone disturb others or are disturbed by them (kills, clusters, memory, latency): they run last,
one after the other. Writes results/test-full/{beside,alone}.xml (JUnit) and adds a line to runs.jsonl there,
from which the printed table of failures over all runs is made. Exit code 1 if a test failed.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path("results/test-full")
PARTS = {
    "beside": ["-m", "full and not alone", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"],
    "alone": ["-m", "full and alone"],
}
SLOWEST = 20


def code() -> str:
    """Returns the commit at HEAD, and a digest of uncommitted changes."""
    commit = git("rev-parse", "--short=12", "HEAD").strip()
    changes = git("diff", "HEAD")
    return f"{commit}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else commit


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def cases(part: str) -> list[tuple[str, float, bool]]:
    """Returns (test, seconds, whether it failed) for each test of a part.

    A part without a report counts as one failure.
    """
    path = FOLDER / f"{part}.xml"
    if not path.exists():
        return [(f"{part}: pytest ended before its report", 0.0, True)]
    found = []
    for case in ElementTree.parse(path).iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        name = f"{case.get('classname')}::{case.get('name')}"
        found.append((name, float(case.get("time", 0)), failed))
    return found


def table(runs: list[dict]) -> str:
    """Returns a table of tests that ever failed: in how many runs, and whether twice with the same code."""
    failures = Counter(name for run in runs for name in run["failed"])
    same = Counter((name, run["code"]) for run in runs for name in run["failed"])
    lines = [f"{'failed':>6}  of {len(runs)} runs"]
    for name, count in failures.most_common():
        twice = any(times > 1 for (test, _), times in same.items() if test == name)
        lines.append(f"{count:>6}  {name}{'  twice with the same code: mend or delete it' if twice else ''}")
    return "\n".join(lines)


def main() -> None:
    """Runs both parts, and prints the slowest tests, the failed tests and the table."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    began, tried, results = time.time(), code(), []
    for part, arguments in PARTS.items():
        report = FOLDER / f"{part}.xml"
        report.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}"])
        results += cases(part)
    failed = sorted(name for name, _, bad in results if bad)
    run = {"began": time.strftime("%Y-%m-%d %H:%M", time.localtime(began)), "code": tried, "failed": failed}
    run |= {"tests": len(results), "minutes": round((time.time() - began) / 60, 1)}
    with open(FOLDER / "runs.jsonl", "a+") as stream:
        stream.write(json.dumps(run) + "\n")
        stream.seek(0)
        runs = [json.loads(line) for line in stream]
    print(f"\nslowest {SLOWEST}:")
    for name, seconds, _ in sorted(results, key=lambda case: -case[1])[:SLOWEST]:
        print(f"{seconds:>6.0f}  {name}")
    print(f"\n{table(runs)}\n\n{len(results)} tests in {run['minutes']} min, {len(failed)} failed:")
    print("\n".join(failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
