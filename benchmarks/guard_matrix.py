r"""Which interpreters and pytest versions the guard works with: the last release of each minor version of
pytest, on each interpreter.

    .venv/bin/python -m benchmarks.guard_matrix --cache FOLDER [--python PATH ...] \
        [--pytest 7.4 8.0 ...] [--workers 2]

Each interpreter gets a venv under --cache, in which one pytest after another is installed. A small package is
tested with each of them in a real sandbox, started by `pytest` and by `python -m pytest`: the gold patch must
be resolved, an empty one must not. Prints a Markdown table: `yes`; `no` and what went wrong; `-` where pytest
itself does not run; nothing where the package index has no such pair. Exit code 1 when there is a `no`.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.grading.harness.grade import judged, run_patch
from swelab.grading.harness.spec import read_spec
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.sandbox import Limits, open_backend
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.forge.archive import write_tar

SOURCES = {
    "calc.py": "def add(a, b):\n    return a + b\n\n\ndef last(items):\n    return items[-1]\n",
    "conftest.py": "",
    "tests/test_calc.py": """import unittest

import pytest

from calc import add, last


@pytest.mark.parametrize("one, two, both", [(2, 3, 5), (1, -1, 0)])
def test_add(one, two, both, tmpdir):
    tmpdir.join("sum").write(str(add(one, two)))
    assert tmpdir.join("sum").read() == str(both)


class TestLast(unittest.TestCase):
    def test_last(self):
        self.assertEqual(last([1, 2]), 2)

    @unittest.skip("not here")
    def test_skipped(self):
        pass


@pytest.mark.xfail(reason="not yet")
def test_none():
    assert last([])
""",
}
BUG = """--- a/calc.py
+++ b/calc.py
@@ -1,3 +1,3 @@
 def add(a, b):
-    return a + b
+    return a - b
\x20
"""
TASK = Task.of(
    {
        "instance_id": "guard__matrix-1",
        "repo": "guard/matrix",
        "patch": BUG,
        "problem_statement": "add returns the difference",
        "FAIL_TO_PASS": ["tests/test_calc.py::test_add[2-3-5]", "tests/test_calc.py::test_add[1--1-0]"],
        "PASS_TO_PASS": ["tests/test_calc.py::TestLast::test_last"],
        "repo_recipe": "matrix",
        "test_files": ["tests/test_calc.py"],
        "test_timeout": 120,
    }
)
STARTS = ("pytest -rA", "python -m pytest -rA")


def interpreters() -> list[Path]:
    """python3.N and python2.7 on PATH."""
    names = ["python2.7", *(f"python3.{minor}" for minor in range(6, 30))]
    return [Path(found) for name in names if (found := shutil.which(name))]


def said(*command: object) -> str:
    """Output of a command, with its errors. Raises CalledProcessError."""
    words = list(map(str, command))
    return subprocess.run(
        words, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout


def releases(version: str) -> dict[str, str]:
    """The last release of each minor version of pytest that the index has for a Python, from 4.6 on."""
    listed = said(sys.executable, "-m", "pip", "index", "versions", "pytest", "--python-version", version)
    found: dict[str, str] = {}
    for name in re.findall(
        r"\b\d+\.\d+\.\d+\b", listed.partition("Available versions:")[2].partition("\n")[0]
    ):
        found.setdefault(name.rpartition(".")[0], name)
    return {minor: name for minor, name in found.items() if ordered(minor) >= (4, 6)}


def ordered(minor: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(map(int, minor.split(".")))


class Column:
    """One interpreter: a venv of its own, and what came of each pytest in it."""

    def __init__(self, python: Path, cache: Path):
        self.version = said(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        self.venv = cache / self.version
        if not (self.venv / "bin" / "pytest-was-here").exists():
            said(python, "-m", "venv", "--clear", self.venv)
            (self.venv / "bin" / "pytest-was-here").touch()

    def cell(self, release: str) -> str:
        """ "yes", "no: ..." or "-" for one release of pytest."""
        python = self.venv / "bin" / "python"
        try:
            said(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"pytest=={release}")
        except subprocess.CalledProcessError:
            return "-"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files = {path: (text.encode(), False) for path, text in SOURCES.items()}
            (folder / "matrix.tar").write_bytes(write_tar(files))
            store = RepoStore(folder, folder / "trees")
            try:
                said(python, "-m", "pytest", "-q", store.clean_tree(TASK))
            except subprocess.CalledProcessError:
                return "-"
            backend = open_backend("bubblewrap", toolbox=self.venv)
            wrong = []
            for start in STARTS:
                task = TASK | {"test_cmd": start}
                for patch, wanted in ((gold_patch(store, task), "resolved"), ("", "unresolved")):
                    run = run_patch(task, patch, store, backend, Limits(), allow_empty=True)
                    grade = judged(read_spec(task), patch, run)
                    if grade["status"] != wanted:
                        wrong.append(f"`{start}`: {grade['status']} ({grade['reason']})")
            return "no: " + "; ".join(wrong) if wrong else "yes"


def table(columns: dict[str, dict[str, str]]) -> str:
    """Markdown: a row for each minor version of pytest, a column for each Python."""
    minors = sorted({minor for cells in columns.values() for minor in cells}, key=ordered)
    lines = ["| pytest | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for minor in minors:
        lines.append(f"| {minor} | " + " | ".join(cells.get(minor, "") for cells in columns.values()) + " |")
    return "\n".join(lines)


def filled(python: Path, cache: Path, wanted: list[str]) -> tuple[str, dict[str, str]]:
    """(version of an interpreter, its cells by minor version of pytest)."""
    column = Column(python, cache)
    cells = {}
    for minor, release in releases(column.version).items():
        if not wanted or minor in wanted:
            cells[minor] = column.cell(release)
            print(f"Python {column.version}, pytest {release}: {cells[minor]}", file=sys.stderr, flush=True)
    return column.version, cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for the venvs")
    parser.add_argument(
        "--python", type=Path, nargs="+", default=interpreters(), help="default: those on PATH"
    )
    parser.add_argument("--pytest", nargs="+", default=[], help="minor versions, such as 7.4; default: all")
    parser.add_argument("--workers", type=int, default=2, help="interpreters at once")
    args = parser.parse_args()
    if not args.python:
        raise InputError("no python3.6 or later on PATH", "--python", "interpreters")
    with ThreadPoolExecutor(args.workers) as pool:
        found = pool.map(lambda python: filled(python, args.cache, args.pytest), args.python)
        columns = dict(sorted(found, key=lambda each: ordered(each[0])))
    print(table(columns))
    if any(cell.startswith("no") for cells in columns.values() for cell in cells.values()):
        sys.exit(1)


if __name__ == "__main__":
    run_script(main)
