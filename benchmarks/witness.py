"""Counts the tests that can be witnessed, in packages of the package index and in forged tasks.

    .venv/bin/python -m benchmarks.witness packages [--folder FOLDER] [--files NAMES] [NAME ...]
    .venv/bin/python -m benchmarks.witness tasks --repos FOLDER TASKS.json ...

For packages, downloads source distributions with their tests, forms a question of each test that passes, and
runs each question four times on the unchanged package. Prints assertions, tests, broken tests, seconds, and
the reasons why others are not witnessed. For tasks, forms questions of the tests to be repaired, and runs
them with gold and with the bug. FOLDER has the archives from rule build_repo. Prints the confirmed tests,
their bits, and contradictions in further gold runs.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.question_packages import measure_packages
from benchmarks.question_runs import run_question
from swelab.console.terminal import run_script
from swelab.grading.validation.witness_sources import sources_in
from swelab.records import InputError
from swelab.witness.forming import Question, form
from swelab.witness.judgement import ENOUGH_BITS, gold_values, judge


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("packages", "tasks"))
    parser.add_argument("names", nargs="*", help="packages, or files of tasks")
    parser.add_argument(
        "--folder", type=Path, help="where packages are kept; a temporary folder if not given"
    )
    parser.add_argument("--files", default="", help="names of files of tests, if not all are measured")
    parser.add_argument("--repos", type=Path, help="folder of the archives of the tasks' repositories")
    parser.add_argument("--python", type=Path, default=Path(".venv-sandbox/bin/python"))
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_intermixed_args()
    if args.what == "packages":
        measure_packages(args.names, args.folder, args.files.split(), args.verbose)
        return
    if args.repos is None or not args.names:
        raise InputError("tasks need --repos FOLDER and files of tasks", expected="results/repos")
    for name in args.names:
        tell_tasks(Path(name), args)


def tell_tasks(path: Path, args: argparse.Namespace) -> None:
    """Prints the figures of a file of tasks."""
    tasks = json.loads(path.read_text(encoding="utf-8"))
    by_repository: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:
        by_repository.setdefault(task["repo_recipe"], []).append(task)
    rows = [row for name, group in by_repository.items() for row in measure_repository(name, group, args)]
    tests = Counter(standing for row in rows for standing in row["gold"].values())
    total = sum(tests.values())
    print(f"{path.stem}: {len(rows)} tasks, {total} tests to be repaired", dict(tests))
    print(f"  confirmable_share={tests['confirmed'] / total:.4f}")
    print("  tasks", dict(Counter(row["testimony"] for row in rows)))
    bits = sorted(row["bits"] for row in rows)
    at_least = {each: sum(value >= each for value in bits) for each in (1, 4, 6, 8, 12, 16, 32)}
    print(f"  bits a task: median {bits[len(bits) // 2]:.1f}, at least {at_least}, enough is {ENOUGH_BITS:g}")
    print("  bug judged", dict(Counter(row["bug"] for row in rows)))
    print("  three further gold runs: tests", dict(Counter(each for row in rows for each in row["again"])))
    reasons = Counter(reason for row in rows for reason in row["reasons"])
    for reason, count in reasons.most_common():
        print(f"  {count} not confirmed: {reason}")


def measure_repository(
    name: str, tasks: list[dict[str, Any]], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Returns the figures of a repository's tasks.

    All tasks use the same gold runs: two runs, a run with answers, and three further runs.
    """
    tests = sorted({test for task in tasks for test in task["FAIL_TO_PASS"]})
    files = sorted({test.partition("::")[0] for test in tests})
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "repository")
        shutil.unpack_archive(args.repos / f"{name}.tar", root)
        question = form(sources_in(root, files, most=1 << 30), tests)
        python, paths = args.python.absolute(), [root, root / "src"]
        emitted = [run_question(python, root, question, at == 2, paths).emitted for at in range(6)]
        rows = []
        for task in tasks:
            own = only(question, task["FAIL_TO_PASS"])
            patch(root, task["patch"])
            bug = run_question(python, root, own, False, paths).emitted
            patch(root, task["patch"], "--reverse")
            rows.append(measure_task(own, emitted, bug))
            if args.verbose:
                print(task["instance_id"], json.dumps(rows[-1]), flush=True)
    return rows


def only(question: Question, tests: list[str]) -> Question:
    """Returns a question reduced to some of its tests."""
    selected = {test: base for test, base in question.manifest.tests.items() if test in tests}
    unformed = {test: why for test, why in question.unformed.items() if test in tests}
    names = [path for path, base in question.manifest.questions.items() if base in selected.values()]
    targets = [each for each in question.targets if each.partition("::")[0] in names]
    manifest = question.manifest | {"tests": selected, "unformed": unformed}
    return replace(question, manifest=manifest, targets=targets, unformed=unformed)


def patch(root: Path, text: str, *flags: str) -> None:
    """Applies a task's bug in a folder. The flag `--reverse` removes it."""
    command = ["patch", "-p1", "-s", "-d", str(root), *flags]
    subprocess.run(command, input=text.encode(), check=True, capture_output=True)


def measure_task(question: Question, emitted: list[bytes], bug: bytes) -> dict[str, Any]:
    """Returns how a task's tests stand with gold, with the bug, and with three further gold runs."""
    values = gold_values(question.manifest, emitted[:2], emitted[2], bug)
    gold = {test: verdict.standing for test, verdict in values.tests.items()}
    again = [judge(question.manifest, values, each) for each in emitted[3:]]
    return {
        "gold": gold | dict.fromkeys(question.unformed, "unformed"),
        "bits": values.bits,
        "testimony": values.testimony,
        "bug": judge(question.manifest, values, bug).testimony,
        "again": [verdict.standing for each in again for verdict in each.tests.values()],
        "reasons": [verdict.reason for verdict in values.tests.values() if verdict.reason]
        + list(question.unformed.values()),
    }


if __name__ == "__main__":
    run_script(main)
