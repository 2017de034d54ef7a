"""Forms questions from the tests of packages of the package index, for `benchmarks.witness`."""

import ast
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.question_runs import run_question, run_tests
from swelab.grading.validation.witness_sources import assertions_in, sources_in
from swelab.records.witness_records import GoldValues
from swelab.witness.assertions import assertion_lines
from swelab.witness.emitted import read
from swelab.witness.forming import Question, form
from swelab.witness.judgement import gold_values, judge
from swelab.witness.scopes import FUNCTIONS, own_name
from swelab.witness.subjects import is_test

REQUIREMENTS = (
    "pytest==8.3.5",
    "markupsafe",
    "freezegun",
    "hypothesis",
    "pretend",
    "pyyaml",
    "ephemeral-port-reserve",
    "trio",
)


@dataclass(frozen=True)
class Package:
    """The parts of a source distribution.

    roots: names of importable packages. path: folder of the packages. options: options of pytest, which
    exclude tests that need a network, a server, or minutes. tests: folder of tests.
    """

    roots: Sequence[str]
    path: str = "src"
    options: Sequence[str] = ()
    tests: str = "tests"


_NO_SERVERS = "not serving and not reloader and not dev_server"
_SLOW_VERSIONS = ("test_specifiers.py", "test_version.py", "test_ranges.py", "test_pylock.py", "property")
_DRAWING = ("test_diagram.py", "test_matplotlib_cases.py")
PACKAGES = {
    "click": Package(["click"]),
    "packaging": Package(["packaging"], options=[f"--ignore=tests/{each}" for each in _SLOW_VERSIONS]),
    "pyparsing": Package(["pyparsing"], ".", [f"--ignore=tests/{each}" for each in _DRAWING]),
    "itsdangerous": Package(["itsdangerous"]),
    "sqlparse": Package(["sqlparse"], "."),
    "tomlkit": Package(["tomlkit"], "."),
    "more_itertools": Package(["more_itertools"], "."),
    "jinja2": Package(["jinja2"]),
    "attrs": Package(["attr", "attrs"], options=["--ignore=tests/test_mypy.yml", "-p", "no:mypy"]),
    "werkzeug": Package(
        ["werkzeug"], options=["--ignore=tests/live_apps", "-k", _NO_SERVERS],
    ),
}  # fmt: skip


def measure_packages(names: Sequence[str], folder: Path | None, files: Sequence[str], verbose: bool) -> None:
    """Prints a line of figures for each package, and a line of totals.

    files: names of the test files to measure, or all if empty.
    """
    with tempfile.TemporaryDirectory() as scratch:
        home = folder.absolute() if folder else Path(scratch)
        python = prepare(home)
        total: Counter[str] = Counter()
        why: Counter[str] = Counter()
        for name in names or PACKAGES:
            figures, reasons = measure(PACKAGES[name], fetch(home, name), python, files, verbose)
            total, why = total + figures, why + reasons
            print(name, sentence(figures), flush=True)
            for reason, number in reasons.most_common():
                print(f"    {number} {reason}")
        print("all", sentence(total), *(f"\n    {number} {reason}" for reason, number in why.most_common()))


def prepare(home: Path) -> Path:
    """Returns the Python of an environment with the requirements of the packages' tests."""
    home.mkdir(exist_ok=True)
    python = home / "env" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home / "env")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *REQUIREMENTS], check=True)
    return python


def fetch(home: Path, name: str) -> Path:
    """Downloads and unpacks a package's source distribution. Returns its folder."""
    root = home / "src" / name
    if root.exists():
        return root
    sdists = home / "sdist"
    pattern = f"{name.replace('_', '[_-]')}-[0-9]*.tar.gz"
    if not list(sdists.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d"]
        subprocess.run([*command, str(sdists), name], check=True)
    shutil.unpack_archive(next(sdists.glob(pattern)), home / "unpacked" / name)
    root.parent.mkdir(exist_ok=True)
    next((home / "unpacked" / name).iterdir()).rename(root)
    return root


def measure(
    package: Package, root: Path, python: Path, files: Sequence[str], verbose: bool
) -> tuple[Counter[str], Counter[str]]:
    """Returns a package's figures, and counts of the reasons why assertions and tests are not witnessed.

    Each test file runs by itself, as a grader runs the questions of a task.
    """
    paths = [root / package.path, root]
    listed = ["-q", "-rA", "--tb=no", *package.options]
    ignored = {each.partition("=")[2] for each in package.options}
    names = [path.relative_to(root).as_posix() for path in sorted((root / package.tests).rglob("test_*.py"))]
    selected = [path for path in names if not any(path.startswith(each) for each in ignored if each)]
    figures: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for path in selected:
        if files and path.rpartition("/")[2] not in files:
            continue
        ordinary = run_tests(python, root, [*listed, path], paths)
        tests = re.findall(r"^PASSED (.+)$", ordinary.text, re.MULTILINE)
        if not tests:
            print(f"  {path}: no test passes plainly", ordinary.text[-200:].splitlines()[-1:])
            continue
        own, why, where = measure_file(path, tests, package, root, python)
        own["ms_ordinary"] = round(1000 * ordinary.seconds)
        if verbose:
            print(f"  {path}", sentence(own), flush=True)
            for reason, lines in where.items():
                if lines:
                    print(f"    {len(lines)} {reason}:", *lines[:8])
        figures, reasons = figures + own, reasons + why
    return figures, reasons


def measure_file(
    path: str, tests: Sequence[str], package: Package, root: Path, python: Path
) -> tuple[Counter[str], Counter[str], dict[str, list[str]]]:
    """Returns figures of a file's passing tests, counts of reasons, and where each reason occurs."""
    start = time.monotonic()
    sources = sources_in(root, [path], most=1 << 30)
    own = assertions_in(root, package.roots)
    question = form(sources, tests, package.roots, own)
    forming = time.monotonic() - start
    paths = [root / package.path, root]
    options = [each for each in package.options if each.startswith("-p") or each == "no:mypy"]
    runs = [run_question(python, root, question, at == 2, paths, options) for at in range(4)]
    values = gold_values(question.manifest, [runs[0].emitted, runs[1].emitted], runs[2].emitted, b"")
    again = judge(question.manifest, values, runs[3].emitted)
    helpers = set(re.findall(r"def (_?assert\w+)", "".join(own.values())))
    figures, reasons, where = count(question, values, runs[3].emitted, sources, tests, helpers)
    for word in ("contradicted", "unconfirmed"):
        figures[word] = sum(test.standing == word for test in again.tests.values())
    figures["ms_question"] = round(1000 * min(run.seconds for run in runs))
    figures["ms_forming"] = round(1000 * forming)
    return figures, reasons, where


def count(
    question: Question,
    values: GoldValues,
    emitted: bytes,
    sources: dict[str, str],
    passed: Sequence[str],
    helpers: set[str],
) -> tuple[Counter[str], Counter[str], dict[str, list[str]]]:
    """Counts assertions (recognised, formed, run, witnessed) and tests (witnessed, strongly, broken).

    Returns the figures, counts of the reasons why assertions and tests are not witnessed, and where each
    reason occurs.
    """
    manifest = question.manifest
    recognised = _assertions(sources, passed, helpers)
    line_of = {slot.slot: (slot.test.partition("::")[0], slot.line) for slot in manifest.slots}
    formed = set(line_of.values()) & recognised
    by_test = read(emitted, manifest)
    run = {line_of[key[0]] for each in by_test.values() for key in each.values if key[0] in line_of} & formed
    steady: set[tuple[str, int]] = set()
    figures: Counter[str] = Counter(tests=len(passed), not_formed=len(question.unformed))
    where: dict[str, list[str]] = {}
    for test, reason in question.unformed.items():
        where.setdefault(f"tests not formed: {reason}", []).append(test)
    for test, gold in values.tests.items():
        parts = [each for each in gold.occurrences if each.part == "v"]
        steady |= {line_of[each.slot] for each in parts} & formed
        results = [each for each in gold.occurrences if re.fullmatch(r"r\d+", each.part)]
        figures["by_results"] += bool(results)
        parts = parts or results
        figures["witnessed"] += bool(parts)
        figures["strongly"] += any(each.bits > 1 for each in parts)
        ended = by_test.get((manifest.tests[test], gold.case))
        broken = ended is None or ended.outcome != "passed"
        figures["broken"] += broken
        if not parts or broken:
            where.setdefault(f"tests: {gold.reason or 'its question ends otherwise'}", []).append(test)
    figures += Counter(
        recognised=len(recognised), formed=len(formed), run=len(run), assertions=len(steady & run)
    )
    for reason, lines in (
        ("assertions: not formed", recognised - formed),
        ("assertions: their line did not run", formed - run),
        ("assertions: values differ between runs, or say nothing", run - steady),
    ):
        where[reason] = [f"{path}:{line}" for path, line in sorted(lines)]
    return figures, Counter({reason: len(places) for reason, places in where.items()}), where


def _assertions(sources: dict[str, str], passed: Sequence[str], helpers: set[str]) -> set[tuple[str, int]]:
    """Returns (file, line) of each assertion in test files.

    Excludes assertions in tests that did not pass, and calls of helpers. The assertions of a test file's own
    helper count at their own lines. A package's helper does not count.
    """
    names = {test.partition("[")[0].rpartition("::")[2] for test in passed}
    assertions = set()
    for path in {test.partition("::")[0] for test in passed}:
        tree = ast.parse(sources[path])
        others = [
            range(each.lineno, (each.end_lineno or each.lineno) + 1)
            for each in ast.walk(tree)
            if isinstance(each, FUNCTIONS) and is_test(each.name) and each.name not in names
        ]
        own = helpers | {each.name for each in ast.walk(tree) if isinstance(each, FUNCTIONS)}
        calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and own_name(each.func) in own]
        lines = assertion_lines(sources[path]) - {each.lineno for each in calls}
        assertions |= {(path, line) for line in lines if not any(line in other for other in others)}
    return assertions


def sentence(figures: Counter[str]) -> str:
    """Formats the figures as text."""
    f = figures
    formed, witnessed = f["formed"] / max(f["recognised"], 1), f["assertions"] / max(f["run"], 1)
    tests, strongly = (f[key] / max(f["tests"], 1) for key in ("witnessed", "strongly"))
    return (
        f"assertions: {f['recognised']} recognised, {formed:.1%} formed, {f['run']} run, {witnessed:.1%} "
        f"witnessed; tests: {f['tests']}, {tests:.1%} witnessed, {strongly:.1%} by more than a truth, "
        f"{f['by_results']} by results alone, "
        f"{f['broken']} broken, {f['not_formed']} not formed, {f['contradicted']} contradicted and "
        f"{f['unconfirmed']} unconfirmed again; "
        f"seconds: {f['ms_ordinary'] / 1000:.1f} ordinary, {f['ms_question'] / 1000:.1f} as questions, "
        f"{f['ms_forming'] / 1000:.1f} forming"
    )
