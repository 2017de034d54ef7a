"""Witness questions of several tasks in one pytest run: the same witnesses with fewer runs."""

import pytest

from swelab.configs.kinds.subset import Validation
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.question_run import QuestionRun
from swelab.grading.validation import witness_stage
from swelab.grading.validation.validate_tasks import validate
from swelab.grading.witness_store import Witnesses, WitnessWriter
from swelab.jobs.journal import Journal
from swelab.tasks.checkout import RepoStore
from tests.conftest import make_repos

pytestmark = pytest.mark.real
NAMES = ("one", "two", "three")
MODULE = "def give(word, number):\n    return word * number + {name!r}\n"
TEST = 'from calc.{name} import give\n\n\ndef test_give():\n    assert give("ox", {n}) == {value!r}\n'
COUNTED = """import calc
from calc.{name} import give

calc.loaded = getattr(calc, "loaded", 0) + 1


def test_give():
    assert give("ox", {n}) == {value!r}
    assert calc.loaded >= 1
"""
"""Each test file that pytest loads adds one to `loaded`."""
DATA = """from calc.{name} import give


def test_give():
    with open("tests/data.txt") as stream:
        assert give("ox", {n}) == stream.read() * {n} + {name!r}
"""
BUG = """--- a/calc/{name}.py
+++ b/calc/{name}.py
@@ -1,2 +1,2 @@
 def give(word, number):
-    return word * number + {name!r}
+    return word + {name!r} + word
"""


@pytest.fixture
def bench(backend, tmp_path):
    return Bench(RepoStore(tmp_path / "repos", tmp_path / "trees"), backend)


def make_repository(folder, text):
    files = {"calc/__init__.py": "", "tests/data.txt": "ox"}
    for n, name in enumerate(NAMES, 2):
        files[f"calc/{name}.py"] = MODULE.format(name=name)
        value = "ox" * n + name
        files[f"tests/test_{name}.py"] = text.format(name=name, n=n, value=value)
    make_repos(folder, files)


@pytest.fixture
def tasks(task):
    """Returns tasks, each with its own module, test file and bug."""
    return [
        task | {"instance_id": name, "patch": BUG.format(name=name), "PASS_TO_PASS": []}
        | {"FAIL_TO_PASS": [f"tests/test_{name}.py::test_give"], "test_files": [f"tests/test_{name}.py"]}
        | {"test_cmd": f"python -m pytest -rA -q tests/test_{name}.py"}
        for name in NAMES
    ]  # fmt: skip


@pytest.fixture
def asks(monkeypatch):
    """The number of questions in each run."""
    sizes, ask = [], QuestionRun.ask
    monkeypatch.setattr(
        QuestionRun, "ask", lambda *words, **rest: (sizes.append(len(words[1])), ask(*words))[1]
    )
    return sizes


def make_witnesses(tasks, bench, folder, together):
    """Returns the witness of each task, without the numbers in names."""
    folder.mkdir()
    path = folder / "witness.zip"
    with Journal(folder / "j.jsonl") as journal, path.open("wb") as stream, WitnessWriter(stream) as writer:
        settings = Validation(gold_runs=1, together=together)
        lock = validate(tasks, settings, bench, journal, 1, writer=writer)
    assert {row.witness.standing for row in lock.kept} == {"witnessed"}
    witnesses = Witnesses(path)
    found = [witnesses.of(task.instance_id) for task in tasks]
    return [(each.gold, each.kept, each.whole, list(each.cases.values())) for each in found]


@pytest.mark.parametrize(("text", "together", "runs"), [
    (TEST, True, [3, 3, 1, 2, 3]),
    pytest.param(TEST, False, [3, 3, 1, 1, 1, 1, 1, 1], marks=pytest.mark.full),
    (COUNTED, True, [3, 3, 1, 2, *12 * [1]]),
    pytest.param(DATA, True, [3, 3, *12 * [1]], marks=pytest.mark.full),
], ids=["together", "apart", "disturbed", "other files of tests"])  # fmt: skip
def test_shared_runs_give_the_witnesses_of_own_ones(
    text, together, runs, tasks, bench, asks, tmp_path, monkeypatch
):
    make_repository(tmp_path, text)
    shared = make_witnesses(tasks, bench, tmp_path / "shared", together)
    assert asks == runs
    asks.clear()
    monkeypatch.setattr(witness_stage, "SHARED", 1)
    assert make_witnesses(tasks, bench, tmp_path / "own", together) == shared
    assert asks == 12 * [1]
