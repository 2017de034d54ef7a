"""Values of a patch compared with those of the gold patch: recorded, asked at grading, judged on the host."""

import pytest

from swelab.configs.kinds.subset import Validation
from swelab.grading.grading_stage import Bench, grade_prediction
from swelab.grading.harness.grade import fresh_sandbox
from swelab.grading.harness.patch_run import PatchRun
from swelab.grading.harness.question_run import QuestionRun
from swelab.grading.harness.spec import read_spec
from swelab.grading.regrade import regrade
from swelab.grading.run_cache import Archive
from swelab.grading.validation.validate_tasks import validate
from swelab.grading.witness_store import Witnesses, WitnessWriter
from swelab.jobs.journal import Journal
from swelab.records import check
from swelab.records.attempt_records import Prediction
from swelab.records.patch_reader import read_patch
from swelab.records.task_records import Lock
from swelab.sandbox import Limits, SandboxLost
from swelab.tasks.checkout import RepoStore, gold_patch
from tests.conftest import make_repos

pytestmark = pytest.mark.real
BACKENDS = ("bubblewrap", "docker")
FILES = {
    "tags/__init__.py": "",
    "tags/core.py": 'def tag(name, number):\n    return f"{name}-{number:06d}/{number * 7919:x}"\n',
    "tags/luck.py": "import os\n\n\ndef draw():\n    return os.urandom(8).hex()\n",
    "tests/test_tags.py": (
        "from tags.core import tag\n\n\n"
        'def test_tag():\n    assert tag("ox", 4242) == "ox-004242/200944e"\n\n\n'
        'def test_short():\n    assert tag("elk", 7).startswith("elk")\n'
    ),
    **dict.fromkeys(("tests/answers.json", "tests/data/a(1).txt", "tests/data/b.txt", "check_all.py"), "1\n"),
    "tests/test_luck.py": "from tags.luck import draw\n\n\ndef test_draw():\n    assert draw() != draw()\n",
}
BUG = """--- a/tags/core.py
+++ b/tags/core.py
@@ -1,2 +1,2 @@
 def tag(name, number):
-    return f"{name}-{number:06d}/{number * 7919:x}"
+    return f"{number}{name}"
"""
LUCK = """--- a/tags/luck.py
+++ b/tags/luck.py
@@ -2,4 +2,4 @@
\x20
\x20
 def draw():
-    return os.urandom(8).hex()
+    return "00"
"""
OTHER = """--- a/tags/core.py
+++ b/tags/core.py
@@ -1,2 +1,6 @@
+import gc
+
+
 def tag(name, number):
-    return f"{number}{name}"
+    gc.get_objects()
+    return "-".join((name, "%06d/%x" % (number, 7919 * number)))
"""
FORGED = """--- a/tags/core.py
+++ b/tags/core.py
@@ -1,2 +1,13 @@
+class _Learning(str):
+    seen = ""
+
+    def __eq__(self, other):
+        self.seen = self.seen or other
+        return self.seen == other
+
+    def __hash__(self):
+        return 7
+
+
 def tag(name, number):
-    return f"{number}{name}"
+    return _Learning(name)
"""


class Broken:
    name = "broken"

    def start(self, *_, **__):
        raise SandboxLost("nothing may run")


@pytest.fixture
def bench(place, kind, tmp_path):
    place.name = kind
    store = RepoStore(make_repos(tmp_path, FILES), tmp_path / "trees")
    return Bench(store, place, archive=Archive(tmp_path / "runs"))


@pytest.fixture
def tasks(task):
    tests = {"PASS_TO_PASS": ["tests/test_tags.py::test_short"], "test_files": ["tests/test_tags.py"]}
    first = task | tests | {"patch": BUG, "FAIL_TO_PASS": ["tests/test_tags.py::test_tag"]}
    luck = {"patch": LUCK, "PASS_TO_PASS": [], "FAIL_TO_PASS": ["tests/test_luck.py::test_draw"]}
    return [first, task | luck | {"instance_id": "luck", "test_files": ["tests/test_luck.py"]}]


def locked(tasks, bench, tmp_path):
    path = tmp_path / "witness.zip"
    with Journal(tmp_path / "j.jsonl") as journal, path.open("wb") as stream, WitnessWriter(stream) as writer:
        lock = validate(tasks, Validation(gold_runs=1), bench, journal, 2, writer=writer)
    check(lock, Lock, "test")
    return {row.instance_id: row for row in lock.kept}, path


@pytest.mark.on_docker
def test_who_says_what_gold_says_is_resolved(tasks, bench, tmp_path, monkeypatch):
    task = tasks[0]
    kept, path = locked(tasks, bench, tmp_path)
    assert kept[task.instance_id].witness.standing == "witnessed" and kept[task.instance_id].witness.bits >= 8
    assert kept["luck"].witness.standing == "not_witnessed" and kept["luck"].witness.reason
    assert locked(tasks, Bench(bench.store, Broken()), tmp_path)[0] == kept  # the journal has everything
    judge = Bench(bench.store, bench.backend, archive=bench.archive, witnesses=Witnesses(path))
    assert judge.witnesses.of("luck") is None

    def graded(patch, by=judge):
        row = Prediction(instance_id=task.instance_id, model_name_or_path="p", model_patch=patch)
        return row, grade_prediction(task, row, by)

    gold, order = gold_patch(bench.store, task), []
    for kind, name in ((QuestionRun, "ask"), (PatchRun, "evidence")):
        whole = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *words, _of=whole, _n=name: (order.append(_n), _of(*words))[1])
    assert graded(gold)[1].status == "resolved" and order == ["ask", "evidence"], (
        "tests know what is expected"
    )
    monkeypatch.undo()
    rows, grades = zip(*(graded(patch) for patch in (gold, OTHER, FORGED, OTHER.replace("%06d", "%07d"))))
    assert [grade.status for grade in grades[:2]] == ["resolved", "resolved"]
    assert [grade.evidence for grade in grades[:2]] == ["witnessed", "witnessed"]
    assert grades[2].status in ("tampered", "suspect") and grades[2].witness.standing != "witnessed"
    assert "witness" not in grades[3]  # its tests fail, so its values are useless
    plain = Bench(bench.store, bench.backend)
    assert graded(OTHER, plain)[1].status == "suspect" and "gc" in graded(OTHER, plain)[1].reason
    idle = Bench(bench.store, None, archive=bench.archive, witnesses=Witnesses(path))
    told, again = regrade([task], rows[2:3], {task.instance_id: grades[2].status}, idle)
    assert told["changed"] == [] and again[0].witness == grades[2].witness
    assert regrade([task], rows[:1], {}, Bench(bench.store, None, archive=bench.archive))[0]["missing"]


LOOK = """
import os, sys

found = sorted(os.path.join(top, name) for top, tops, names in os.walk(".") for name in [*tops, *names])
os.write(int(os.environ["SWELAB_QUESTION_CHANNEL"]), "\\n".join(found).encode())
print("this goes nowhere")
"""


def test_what_the_question_is_asked_in(tasks, bench):
    """The sandbox has neither the tests nor git's folder, and only one channel leads out."""
    spec = read_spec(tasks[0])
    with fresh_sandbox(spec, tasks[0], bench.store, bench.backend, Limits(), None) as sandbox:
        run = QuestionRun(spec, read_patch(OTHER), sandbox, Limits())
        assert run.prepare() is None
        asked = {"tests/test_question_0.py": LOOK}
        said = run.ask(asked, ["tests/test_question_0.py"], ["tests/test_tags.py"], ["tests/data/a(1).txt"],
                       ["check_*.py"])  # fmt: skip
    found = said.values.decode().split("\n")
    assert "./tags/core.py" in found and "./tests/test_question_0.py" in found
    assert not [path for path in found if ".git" in path.split("/") or "test_tags" in path]
    assert [path for path in found if path.startswith("./tests/data/")] == ["./tests/data/a(1).txt"]
    assert "./tests/answers.json" not in found and "./check_all.py" not in found
    assert "./tests/test_luck.py" not in found and "this goes nowhere" not in found
