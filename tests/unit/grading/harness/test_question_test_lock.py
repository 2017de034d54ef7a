"""Witness questions of a task never run beside its tests. Runs of one kind may overlap."""

import fcntl
import os
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from swelab.grading.harness import question_test_lock
from swelab.grading.harness.question_test_lock import QUESTION, TESTS, lock_request, phase

OTHER = """
import sys
from swelab.grading.harness import question_test_lock
question_test_lock.lock_file = lambda: sys.argv[1]
with question_test_lock.phase("x", sys.argv[2]):
    print("in", flush=True)
    sys.stdin.read()
    open(sys.argv[1] + ".left", "w").close()
"""


@pytest.fixture(autouse=True)
def lock_file(tmp_path, monkeypatch):
    monkeypatch.setattr(question_test_lock, "lock_file", lambda: str(tmp_path / "lock"))
    yield str(tmp_path / "lock")
    assert question_test_lock._TURNS == {}


def waiting(task, kind):
    """Returns when a run of a kind waits for its phase."""
    deadline = time.monotonic() + 60
    while not question_test_lock._TURNS[task].waiting[kind]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing waits: {question_test_lock._TURNS}")
        os.sched_yield()


@pytest.mark.parametrize("kind", [QUESTION, TESTS])
def test_runs_of_one_kind_overlap(kind):
    meeting = threading.Barrier(3)

    def run():
        with phase("x", kind):
            meeting.wait(60)

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(run) for _ in range(3)]:
            each.result(120)


@pytest.mark.parametrize(("first", "second"), [(QUESTION, TESTS), (TESTS, QUESTION)])
def test_the_other_kind_waits_and_then_goes_before_newcomers(first, second):
    log, entered, leave = [], threading.Event(), threading.Event()

    def run(kind, name):
        with phase("x", kind):
            log.append(name)
            if name == "first":
                entered.set()
                assert leave.wait(60)

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(run, first, "first")]
        assert entered.wait(60)
        runs.append(pool.submit(run, second, "second"))
        waiting("x", second)
        runs.append(pool.submit(run, first, "newcomer"))
        waiting("x", first)
        with phase("y", second):
            assert log == ["first"], "another task is free"
        leave.set()
        for each in runs:
            each.result(120)
    assert log == ["first", "second", "newcomer"]


def test_a_failure_lets_the_others_in():
    with pytest.raises(KeyError), phase("x", TESTS):
        raise KeyError
    with phase("x", QUESTION):
        pass


@pytest.mark.parametrize(("theirs", "ours"), [(TESTS, QUESTION), (QUESTION, TESTS)])
def test_another_process_is_waited_for(lock_file, theirs, ours):
    child = subprocess.Popen(
        [sys.executable, "-c", OTHER, lock_file, theirs], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"in\n"
    with open(lock_file, "rb+") as stream:
        answer = fcntl.fcntl(stream, fcntl.F_OFD_GETLK, lock_request("x", ours))
        assert struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK, "it is held there"

    def run():
        with phase("x", ours):
            return os.path.exists(f"{lock_file}.left")

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(run)
        child.communicate(timeout=60)
        assert late.result(60)


def test_a_lock_file_of_someone_else_is_a_fault(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("elsewhere")
    monkeypatch.setattr(question_test_lock, "lock_file", lambda: str(tmp_path / "link"))
    with pytest.raises(OSError), phase("x", TESTS):
        pass
