"""Packages of the index whose tests are turned into questions, for `benchmarks.witness`."""

import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.question_runs import run_question, run_tests, sources_of
from swelab.records.witness_records import GoldValues
from swelab.witness.assertions import assertion_lines
from swelab.witness.emitted import read
from swelab.witness.forming import Question, form
from swelab.witness.judgement import gold_values, judge

NEEDED = (
    "pytest==8.3.5",
    "markupsafe",
    "freezegun",
    "hypothesis",
    "pretend",
    "pyyaml",
    "ephemeral-port-reserve",
)


@dataclass(frozen=True)
class Package:
    """Where a source distribution has its package and tests, and which of these are left out: they need a
    network, a server, or minutes."""

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


def measure_packages(names: Sequence[str], folder: Path | None, verbose: bool) -> None:
    """A line of figures for each package, and one for all."""
    with tempfile.TemporaryDirectory() as scratch:
        home = folder.absolute() if folder else Path(scratch)
        python = prepare(home)
        total: Counter[str] = Counter()
        for name in names or PACKAGES:
            figures, reasons = measure(name, PACKAGES[name], fetch(home, name), python)
            total += figures
            print(name, say(figures), flush=True)
            for reason, count in reasons.most_common(12 if verbose else 4):
                print(f"    {count} {reason}")
        print("all", say(total))


def prepare(home: Path) -> Path:
    """The interpreter of an environment that has what the packages' tests need."""
    home.mkdir(exist_ok=True)
    python = home / "env" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home / "env")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *NEEDED], check=True)
    return python


def fetch(home: Path, name: str) -> Path:
    """The unpacked source distribution of a package."""
    root = home / "src" / name
    if root.exists():
        return root
    sdists = home / "sdist"
    pattern = f"{name.replace('_', '[_-]')}-[0-9]*.tar.gz"
    if not list(sdists.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d"]
        subprocess.run([*command, str(sdists), name], check=True)
    with tarfile.open(next(sdists.glob(pattern))) as archive:
        archive.extractall(home / "unpacked" / name, filter="data")
    root.parent.mkdir(exist_ok=True)
    next((home / "unpacked" / name).iterdir()).rename(root)
    return root


def measure(name: str, package: Package, root: Path, python: Path) -> tuple[Counter[str], Counter[str]]:
    """Figures of a package, and why assertions and tests are not witnessed."""
    paths = [root / package.path, root]
    ordinary = run_tests(python, root, ["-q", "-rA", "--tb=no", *package.options, package.tests], paths)
    passed = re.findall(r"^PASSED (.+)$", ordinary.text, re.MULTILINE)
    start = time.monotonic()
    files = sorted({test.partition("::")[0] for test in passed})
    sources = sources_of(root, files)
    question = form(sources, passed, package.roots)
    forming = time.monotonic() - start
    options = [each for each in package.options if each.startswith("-p") or each == "no:mypy"]
    runs = [run_question(python, root, question, at == 2, paths, options) for at in range(4)]
    values = gold_values(question.manifest, [runs[0].said, runs[1].said], runs[2].said, b"")
    again = judge(question.manifest, values, runs[3].said)
    figures, reasons = count(question, values, runs[3].said, sources, passed)
    figures |= Counter(contradicted=sum(told.standing == "contradicted" for told in again.tests.values()))
    figures |= Counter(unconfirmed=sum(told.standing == "unconfirmed" for told in again.tests.values()))
    seconds = {"ordinary": ordinary.seconds, "question": min(run.seconds for run in runs), "forming": forming}
    return figures + Counter({f"ms_{key}": round(1000 * value) for key, value in seconds.items()}), reasons


def count(
    question: Question, values: GoldValues, said: bytes, sources: dict[str, str], passed: Sequence[str]
) -> tuple[Counter[str], Counter[str]]:
    """Assertions recognised, formed, run and witnessed; tests witnessed, strongly witnessed and broken."""
    manifest = question.manifest
    held = {test.partition("::")[0] for test in passed}
    recognised = {(path, line) for path in held for line in assertion_lines(sources[path])}
    line_of = {slot.slot: (slot.test.partition("::")[0], slot.line) for slot in manifest.slots}
    formed = set(line_of.values()) & recognised
    heard = read(said, manifest)
    run = {line_of[key[0]] for each in heard.values() for key in each.values if key[0] in line_of} & formed
    steady: set[tuple[str, int]] = set()
    figures: Counter[str] = Counter(tests=len(passed), not_formed=len(question.unformed))
    reasons = Counter(f"tests not formed: {reason}" for reason in question.unformed.values())
    for test, gold in values.tests.items():
        parts = [each for each in gold.occurrences if each.part == "v"]
        steady |= {line_of[each.slot] for each in parts} & formed
        figures["witnessed"] += bool(parts)
        figures["strongly"] += any(each.bits > 1 for each in parts)
        ended = heard.get((manifest.tests[test], gold.case))
        broken = ended is None or ended.outcome != "passed"
        figures["broken"] += broken
        if not parts or broken:
            reasons[f"tests: {gold.reason or 'its question ends otherwise'}"] += 1
    figures += Counter(
        recognised=len(recognised), formed=len(formed), run=len(run), assertions=len(steady & run)
    )
    reasons[f"assertions not formed, such as {sorted(recognised - formed)[:6]}"] += len(recognised - formed)
    reasons[f"assertions formed but not run, such as {sorted(formed - run)[:3]}"] += len(formed - run)
    reasons[f"assertions run but not steady or opaque, such as {sorted(run - steady)[:6]}"] += len(
        run - steady
    )
    return figures, reasons


def say(figures: Counter[str]) -> str:
    """The figures as words."""
    f = figures
    formed, witnessed = f["formed"] / max(f["recognised"], 1), f["assertions"] / max(f["run"], 1)
    tests, strongly = (f[key] / max(f["tests"], 1) for key in ("witnessed", "strongly"))
    return (
        f"assertions: {f['recognised']} recognised, {formed:.1%} formed, {f['run']} run, {witnessed:.1%} "
        f"witnessed; tests: {f['tests']}, {tests:.1%} witnessed, {strongly:.1%} by more than a truth, "
        f"{f['broken']} broken, {f['not_formed']} not formed, {f['contradicted']} contradicted and "
        f"{f['unconfirmed']} unconfirmed again; "
        f"seconds: {f['ms_ordinary'] / 1000:.1f} ordinary, {f['ms_question'] / 1000:.1f} as questions, "
        f"{f['ms_forming'] / 1000:.1f} forming"
    )
