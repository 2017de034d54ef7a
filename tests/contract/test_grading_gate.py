"""The reasons for which tasks are kept or rejected. Tests that ran once are not run again."""

import itertools
import json
from dataclasses import replace

import pytest

from swelab.configs.kinds.subset import Validation
from swelab.grading.evidence import RunEvidence
from swelab.grading.grading_stage import Bench, grade_prediction
from swelab.grading.regrade import regrade
from swelab.grading.run_cache import Archive, run_key
from swelab.grading.swebench_report import validation
from swelab.grading.validation.validate_tasks import validate
from swelab.grading.validation.validation_batches import gold_batches
from swelab.jobs.journal import Journal
from swelab.records import InputError, check, digest, write_json
from swelab.records.attempt_records import Prediction
from swelab.records.task_records import Lock, Task
from swelab.sandbox import SandboxLost
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.task_images import unusable_tasks
from swelab.tasks.validation_lock import read_kept
from tests.conftest import FILES, make_repos

pytestmark = pytest.mark.real
SETTINGS = Validation(gold_runs=2)
MORE = {
    "calc/more.py": "def sub(a, b):\n    return a - b\n",
    "tests/test_more.py": "from calc.more import sub\n\n\ndef test_sub():\n    assert sub(3, 2) == 1\n",
    "tests/test_luck.py": "from calc.core import add\n\n\n"
    "def test_luck():\n    assert add(1, 1) == 2 and int(open('/tmp/luck').read()) % 2\n",
}


@pytest.fixture
def bench(repos_dir, tmp_path, backend):
    make_repos(repos_dir.parent, FILES | MORE)
    return Bench(RepoStore(repos_dir, tmp_path / "trees"), backend, archive=Archive(tmp_path / "runs"))


class Luck:
    """A backend whose gold runs pass and fail in turn, for the test of flaky tests.

    A random choice might not.
    """

    def __init__(self, backend):
        self.backend, self.name, self.runs = backend, backend.name, itertools.count()

    def start(self, tree, **options):
        sandbox = self.backend.start(tree, **options)
        put = sandbox.put

        def drawn(path, data):
            if b"tests/test_luck.py" in data and b"+    return a + b" in data:
                put("/tmp/luck", b"%d" % next(self.runs))
            put(path, data)

        sandbox.put = drawn
        return sandbox


def lock_of(tasks, bench, tmp_path, name="j", **settings):
    with Journal(tmp_path / f"{name}.jsonl") as journal:
        lock = validate(tasks, SETTINGS.model_copy(update=settings), bench, journal, 2)
    check(lock, Lock, "test")
    return lock


def test_the_gate(task, bench, tmp_path):
    one_file = {"test_cmd": f"{task['test_cmd']} tests/test_core.py", "test_files": ["tests/test_core.py"]}
    tasks = [
        task | one_file,
        task | one_file | {"instance_id": "missing", "PASS_TO_PASS": ["tests/test_core.py::test_gone"]},
        Task.of(task | one_file | {"instance_id": "nobug", "PASS_TO_PASS": [],
                           "FAIL_TO_PASS": ["tests/test_core.py::test_last"]}),
        task | {"instance_id": "hangs", "test_cmd": "sleep 600", "test_timeout": 1},
        Task.of(task | {"instance_id": "luck", "test_cmd": f"{task['test_cmd']} tests/test_luck.py",
                "test_files": ["tests/test_luck.py"], "FAIL_TO_PASS": ["tests/test_luck.py::test_luck"],
                "PASS_TO_PASS": []}),
    ]  # fmt: skip
    bench = replace(bench, backend=Luck(bench.backend))
    lock = lock_of(tasks, bench, tmp_path, gold_runs=4)
    assert [row["instance_id"] for row in lock["kept"]] == [task["instance_id"]]
    assert lock["kept"][0]["place"] == bench.store.digest(task) and lock["kept"][0]["seconds"] > 0
    assert [row["instance_id"] for row in lock["flaky"]] == ["luck"]
    assert lock["flaky"][0]["gold_resolved"] == 2 and "2 of 4 runs" in lock["flaky"][0]["reason"]
    reasons = {row["instance_id"]: row["reason"] for row in lock["broken"]}
    assert "0 of 4 runs (1 tests do not pass, such as tests/test_core.py::test_gone)" in reasons["missing"]
    assert reasons["nobug"] == "an empty patch is resolved"
    assert "timeout: the tests ran longer" in reasons["hangs"]
    told = validation(lock)
    assert told["gold_tasks"] == 5 and told["kept"] == told["flaky"] == 1 and told["broken"] == 3
    assert told["gold_resolved_each_time"] == 2  # the task without a bug, too
    assert told["gold_runs_resolved"] == 8 + 2
    with pytest.raises(InputError, match="no task is valid; missing"):
        lock_of(tasks[1:2], bench, tmp_path, "k")


def test_tasks_without_a_usable_image_are_broken_with_the_reason(task, bench, tmp_path):
    lost = task | {"instance_id": "lost", "image_name": "lab/gone", "repo_recipe": ""}
    leaky = lost | {"instance_id": "leaky", "image_name": "lab/leaky"}
    pulled = {"digest": f"sha256:{0:064}", "bytes": 1, "folder": "", "workdir": "/testbed", "pulled": ""}
    leak = {"instance_id": "leaky", "what": "the branch main has it"}
    record = {
        "images": {"lab/leaky": pulled | {"checked": 1, "leaks": [leak]}},
        "failed": {"lab/gone": {"reason": "missing", "error": "lab/gone: no such image"}},
        "counts": {},
    }
    write_json(tmp_path / "images.json", record)
    why = unusable_tasks([task, lost, leaky], tmp_path / "images.json")
    with Journal(tmp_path / "j.jsonl") as journal:
        lock = validate([task, lost, leaky], SETTINGS, bench, journal, 2, why)
    check(lock, Lock, "test")
    assert [row["instance_id"] for row in lock["kept"]] == [task["instance_id"]]
    assert lock["broken"] == [
        {"instance_id": "lost", "reason": "no image: lab/gone: no such image", "gold_resolved": 0},
        {
            "instance_id": "leaky",
            "reason": "its image tells its answer: the branch main has it",
            "gold_resolved": 0,
        },
    ]
    assert unusable_tasks([task], None) == {}
    with pytest.raises(InputError, match="was not pulled"):
        unusable_tasks([lost | {"image_name": "lab/unknown"}], tmp_path / "images.json")


SUB = """--- a/calc/more.py
+++ b/calc/more.py
@@ -1,2 +1,2 @@
 def sub(a, b):
-    return a - b
+    return a + b
"""


def sub_task(task):
    return Task.of(
        task
        | {
            "instance_id": "sub",
            "patch": SUB,
            "test_files": ["tests/test_more.py"],
            "FAIL_TO_PASS": ["tests/test_more.py::test_sub"],
            "PASS_TO_PASS": [],
            "test_cmd": f"{task['test_cmd']} tests/test_more.py",
        }
    )


def test_tasks_that_share_runs_are_judged_as_alone(task, bench, tmp_path):
    core = task | {"test_cmd": f"{task['test_cmd']} tests/test_core.py", "test_files": ["tests/test_core.py"]}
    tasks = [
        core,
        sub_task(task),
        sub_task(task) | {"instance_id": "bad", "PASS_TO_PASS": ["tests/test_more.py::no"]},
    ]
    alone, together = (lock_of(tasks, bench, tmp_path, str(t), together=t) for t in (False, True))
    for part in ("kept", "broken", "flaky"):
        assert [row["instance_id"] for row in alone[part]] == [row["instance_id"] for row in together[part]]
    runs = [len((tmp_path / f"{t}.jsonl").read_text().splitlines()) for t in (False, True)]
    assert runs[1] < runs[0]


def test_the_order_of_test_files_parts_no_gold_runs(task, bench):
    other = task | {"instance_id": "other", "test_files": task["test_files"][::-1]}
    assert [len(batch.tasks) for batch in gold_batches([task, other], bench, False)] == [2]


class Broken:
    name = "broken"

    def start(self, tree, **options):
        raise SandboxLost("no sandbox")


def test_validation_is_resumed_and_never_takes_a_loss_for_a_verdict(task, bench, tmp_path, monkeypatch):
    monkeypatch.setattr("swelab.jobs.thread_pool.RETRY_SECONDS", ())
    lock = lock_of([task], bench, tmp_path)
    lost = Bench(bench.store, Broken())
    assert lock_of([task], lost, tmp_path) == lock
    with pytest.raises(Exception, match="validation runs were lost to infrastructure, such as: .*no sandbox"):
        lock_of([task], lost, tmp_path, "fresh")


def test_every_run_of_the_gate_leaves_its_log(task, bench, tmp_path):
    core = task | {"test_cmd": f"{task['test_cmd']} tests/test_core.py", "test_files": ["tests/test_core.py"]}
    other = sub_task(task)
    lock_of([core, other], bench, tmp_path, together=True)
    rows = [json.loads(line) for line in (tmp_path / "j.jsonl").read_text().splitlines()]
    for each in (core, other):
        seen = [row for row in rows if each["instance_id"] in row["instances"]]
        kept = {kind: [bench.archive.look(row["key"]) for row in seen if row["kind"] == kind]
                for kind in ("gold", "base", "reversed")}  # fmt: skip
        assert len(kept["gold"]) == 2 and len(kept["base"]) == 1
        test = each["FAIL_TO_PASS"][0]
        assert all(f"PASSED {test}" in run["log"] for run in kept["gold"])
        assert f"FAILED {test}" in kept["base"][0]["log"] and kept["base"][0]["code"] == 1
        assert kept["reversed"] == [None], "the bug cannot be made twice: nothing was run"


def test_a_grade_names_the_run_that_decided(task, bench):
    gold = gold_patch(bench.store, task)
    prediction = Prediction.of({"instance_id": task["instance_id"], "model_patch": gold})
    grade = grade_prediction(task, prediction, bench)
    run = bench.archive.look(grade["run"])
    assert run["patch"] == gold and f"PASSED {task['FAIL_TO_PASS'][0]}" in run["log"]
    unkept = grade_prediction(task, prediction, Bench(bench.store, bench.backend))
    assert "run" not in unkept and unkept["status"] == "resolved"


def test_what_a_lost_run_left_can_be_looked_at_and_is_no_evidence(bench):
    key = "cd" * 32
    lost = RunEvidence.of({"ended": "infra_error", "reason": "no disk", "log": "half a"})
    bench.archive.put(key, lost)
    assert bench.archive.look(key) == lost and bench.archive.get(key) is None
    bench.archive.put(key, RunEvidence.of({"ended": "ran", "log": "whole"}))
    bench.archive.put(key, lost)
    assert bench.archive.get(key)["log"] == "whole", "a loss takes no verdict's place"


def test_the_lock_says_what_is_worked_on(task, bench, tmp_path):
    other = sub_task(task)
    write_json(tmp_path / "tasks.json", [task, other])
    lock = Lock.of({"tasks_digest": "x", "total": 2, "settings": {"gold_runs": 3}, "flaky": [], "kept": []})
    lock["kept"].append({"instance_id": "sub", "task": digest(other), "place": "p", "seconds": 1.5})
    lock["broken"] = [{"instance_id": task["instance_id"], "reason": "because", "gold_resolved": 3}]
    write_json(tmp_path / "lock.json", lock)
    assert list(read_kept(tmp_path / "tasks.json", tmp_path / "lock.json")) == [other]
    assert list(read_kept(tmp_path / "tasks.json", None)) == [task, other]
    write_json(tmp_path / "tasks.json", [task, other | {"test_timeout": 5}])
    with pytest.raises(InputError, match="sub is not the task that was validated"):
        list(read_kept(tmp_path / "tasks.json", tmp_path / "lock.json"))
    write_json(tmp_path / "tasks.json", [task])
    with pytest.raises(InputError, match="keeps 1 tasks that the subset lacks"):
        list(read_kept(tmp_path / "tasks.json", tmp_path / "lock.json"))


def test_an_equal_patch_is_never_run_twice_and_another_is(task, bench, tmp_path):
    gold = gold_patch(bench.store, task)
    prediction = Prediction(instance_id=task["instance_id"], model_name_or_path="a", model_patch=gold)
    first = grade_prediction(task, prediction, bench)
    assert first["status"] == "resolved"
    idle = Bench(bench.store, Broken(), archive=bench.archive)
    second = grade_prediction(task, prediction | {"model_name_or_path": "b", "outcome": "step_limit"}, idle)
    assert second == first | {"outcome": "step_limit"}
    other = grade_prediction(task, prediction | {"model_patch": gold.replace("a + b", "b + a")}, idle)
    assert other["status"] == "infra_error"
    made = idle.archive.look(idle.key(task, gold)).made
    assert made["limits"]["memory_bytes"] and {"run", "grader", "backend", "place"} < made.keys()
    assert idle.archive.get(run_key(task, gold.replace("a + b", "b + a"), bench.place(task))) is None


def test_kept_runs_are_judged_anew_without_running(task, bench, tmp_path, monkeypatch):
    gold = gold_patch(bench.store, task)
    predictions = [Prediction.of({"instance_id": task["instance_id"], "model_patch": gold})]
    told = {task["instance_id"]: grade_prediction(task, predictions[0], bench)["status"]}
    idle = Bench(bench.store, None, archive=bench.archive)
    record, grades = regrade([task], predictions, told, idle)
    assert [grade["status"] for grade in grades] == ["resolved"]
    assert record["judged"] == 1 and record["changed"] == record["missing"] == []
    monkeypatch.setattr(
        "swelab.grading.harness.logs.has_passed", lambda group, test, found: group == "PASS_TO_PASS"
    )
    record, _ = regrade([task], predictions, told, idle)
    assert record["changed"] == [
        {"instance_id": task["instance_id"], "before": "resolved", "now": "unresolved"}
    ]
    assert regrade([task], predictions, told, Bench(bench.store, None))[0]["missing"] == [task["instance_id"]]


def test_a_damaged_kept_run_counts_as_absent(task, bench):
    archive = bench.archive
    archive.put("ab" * 32, RunEvidence.of({"ended": "ran", "x": 1}))
    assert archive.get("ab" * 32) == {"ended": "ran", "x": 1}
    path = next(archive.folder.rglob("*.z"))
    path.write_bytes(path.read_bytes()[:-3])
    assert archive.get("ab" * 32) is None
    archive.put("cd" * 32, RunEvidence.of({"ended": "infra_error"}))
    assert archive.get("cd" * 32) is None
