"""A fault in the guard's own code never counts as an act of the patch, and no patch gains by causing one."""

import pytest

from swelab.configs.kinds.subset import Validation
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import grade, run_patch
from swelab.grading.harness.guard import Guard
from swelab.grading.swebench_report import validation
from swelab.grading.validation.validate_tasks import validate
from swelab.jobs.journal import Journal
from swelab.records import InputError, check
from swelab.records.task_records import Lock
from swelab.sandbox import Limits
from swelab.tasks.checkout import gold_patch

pytestmark = pytest.mark.real
ERROR = 'raise ValueError("made for this test")'
BREAKS = {
    # name: (file of the guard, the line before which an error is raised, when)
    "an audit event without a frame": ("powers", "if event in WRITES:", "frame is None"),
    "one compilation": ("powers", "if event in WRITES:", "arguments[1:2] == ('mine',)"),
    "the observer cannot be imported": ("observer", "import pytest\n", "True"),
    "the observer cannot start": ("observer", "self.integrity = watch.Integrity()", "True"),
    "collection": ("observer", "self.codes = {item.nodeid", "True"),
    "a look at the runner": ("observer", "with self.powers.paused():  # reading", "True"),
    "a test's report": ("observer", "if report.failed:", "True"),
    "a test's report alone": ("observer", "if report.failed:", "'test_last' in report.nodeid"),
    "the end": ("observer", "self.look(True)", "True"),
}


@pytest.fixture
def broken(monkeypatch):
    """Raises an error in the guard's own code at one place of BREAKS."""

    def apply(name):
        part, line, condition = BREAKS[name]
        whole = Guard.files

        def files(self, *arguments, **options):
            made = whole(self, *arguments, **options)
            file = f"{part}_{self.nonce}.py"
            text = made[file].decode()
            assert text.count(line) == 1, f"{line!r} is {text.count(line)} times in {part}"
            before, _, after = text.partition(line)
            indent = " " * len(before.rpartition("\n")[2])
            return made | {file: f"{before}if {condition}: {ERROR}\n{indent}{line}{after}".encode()}

        monkeypatch.setattr(Guard, "files", files)

    return apply


@pytest.mark.parametrize("name", sorted(set(BREAKS) - {"one compilation"}))
def test_an_error_of_the_guard_says_nothing_about_the_patch(task, store, backend, broken, name):
    broken(name)
    task |= {"test_cmd": "pytest -rA"}
    run = run_patch(task, gold_patch(store, task), store, backend, Limits())
    assert run["ended"] == "infra_error", (run["reason"], run.get("log"))
    assert run["reason"].startswith("the guard itself failed: "), run["reason"]
    assert "Traceback (most recent call last)" in run["log"] and run["guard_fault"] in run["log"]
    verdict = grade(task, gold_patch(store, task), store, backend, Limits())
    assert verdict["status"] == "infra_error" and not verdict["resolved"]


def test_validation_counts_such_tasks_apart(task, store, backend, broken, tmp_path):
    broken("a test's report alone")
    command = task["test_cmd"] + " tests/test_core.py::test_add"
    fine = task | {"PASS_TO_PASS": [], "test_cmd": command, "instance_id": "fine"}
    settings, bench = Validation(gold_runs=2), Bench(store, backend)
    with Journal(tmp_path / "j.jsonl") as journal:
        lock = validate([task, fine], settings, bench, journal, 2)
        with pytest.raises(InputError, match="no task is valid; .*the guard itself failed: ValueError"):
            validate([task], settings, bench, journal, 2)
    check(lock, Lock, "test")
    why = "the guard itself failed: ValueError: made for this test"
    assert lock["unjudged"] == [{"instance_id": task["instance_id"], "reason": why, "gold_resolved": 0}]
    assert [row["instance_id"] for row in lock["kept"]] == ["fine"] and not lock["broken"] + lock["flaky"]
    assert validation(lock)["unjudged"] == 1 and validation(lock)["broken"] == 0


CHEATS = {
    "its file is at work when the guard fails": "compile('1', 'mine', 'eval')",
    "a name that raises": """
class Name(str):
    def __str__(self):
        raise ValueError

open(Name("/dev/null"))""",
    "a forged event": """
import threading, sys
def forge():
    for event in ("open", "object.__setattr__", "os.rename"):
        for arguments in ((), (1,), ("x", 2, "y"), (None, None, object()), (b"x", object(), 1.5)):
            sys.audit(event, *arguments)
thread = threading.Thread(target=forge)
thread.start()
thread.join()""",
    "a forged event from no file": """
import threading, sys
for arguments in (("open",), ("open", 1, 2, 3), ("object.__setattr__", 1), ("os.rename", "x"), ("compile",)):
    thread = threading.Thread(target=sys.audit, args=arguments)
    thread.start()
    thread.join()""",
    "a handler written in C": """
import signal
signal.signal(signal.SIGALRM, int)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)""",
    "a handler of the library, and a thread": """
import _thread, json, signal, threading
signal.signal(signal.SIGUSR1, json.loads)
def interrupt():
    while True:
        _thread.interrupt_main(signal.SIGUSR1)
threading.Thread(target=interrupt, daemon=True).start()""",
    "no stack left": """
import gc
def deep():
    try:
        deep()
    except RecursionError:
        gc.get_objects()
try:
    deep()
except RecursionError:
    pass""",
}


@pytest.mark.parametrize("name", CHEATS)
def test_no_patch_gains_by_an_error_of_the_guard(task, store, backend, broken, name):
    if name.startswith("its file"):
        broken("one compilation")
    body = "".join(f"+    {line}\n" if line else "+\n" for line in CHEATS[name].strip().split("\n"))
    count = body.count("\n")
    patch = (
        f"--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,2 +1,{2 + count} @@\n def add(a, b):\n{body}"
        "     return a - b\n"
    )
    run = run_patch(task, patch, store, backend, Limits(), checks=frozenset({"guard"}))
    verdict = grade(task, patch, store, backend, Limits())
    assert run["ended"] in ("ran", "unresolved"), (run["reason"], run["log"])
    assert verdict["status"] in ("unresolved", "tampered", "timeout"), verdict
    if name.startswith("its file"):
        assert run["reason"].startswith("the guard failed while calc/core.py was at work: ValueError"), run
