"""The events that a pytest or unittest run with the runtime sends."""

import json
import os
import subprocess
import sys

import pytest

from swelab.witness import CHANNEL, runtime_files

MODULE = """
import os, unittest, warnings
import question_runtime as q_

class Q(unittest.TestCase):
    def test_contexts(self):
        with q_.caught(1) as context:
            raise LookupError("boom", 7)
        assert str(context.exception) == "('boom', 7)" and context.type is LookupError
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert context.exconly() == "LookupError: ('boom', 7)", "as pytest's"
        with q_.caught(2):
            pass
        with q_.warned(3) as seen:
            warnings.warn("old", DeprecationWarning)
        assert len(seen) == 1 and "old" in str(seen.warning)
        assert q_.caught_call(4, (), int, "x").value.args
        assert q_.warned_call(5, (), lambda: 5) == 5

    def test_skips(self):
        with q_.caught(6):
            self.skipTest("not here")

def test_operators():
    class Odd:
        def __eq__(self, other):
            raise ZeroDivisionError
    q_.same(7, Odd(), q_.CUT)
    q_.same(8, Odd(), 1)
    q_.among(9, 1, [1])
    q_.ordered(10, 1, 2)
    assert q_.part(11, 3, "kept") == "kept"
    assert q_.result(16, 1, "kept") == "kept" and q_.result(16, 2, None) is None

def test_bounds():
    for number in range(1000):
        q_.emit(12, number)
        q_.part(12, 1, number)
    q_.emit(13, "long" * 3000)
    for number in range(100):
        q_.emit(14, str(number) * 2000)
    if not os.fork():
        q_.emit(15, "child")
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "question_runtime", "test_a.py"]
    return run(tmp_path_factory.mktemp("run"), command)


def run(folder, command):
    """Returns the events of a run whose channel is an inherited file descriptor."""
    (folder / "test_a.py").write_text(MODULE)
    for name, data in runtime_files().items():
        (folder / name).write_bytes(data)
    reader, writer = os.pipe()
    with open(folder / "said", "wb") as out:
        copying = subprocess.Popen(["cat"], stdin=reader, stdout=out)
    os.close(reader)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), CHANNEL: str(writer)}
    done = subprocess.run(command, cwd=folder, env=env, pass_fds=[writer], capture_output=True, text=True)
    os.close(writer)
    copying.wait()
    assert "failed" not in done.stdout, done.stdout
    return [json.loads(line) for line in (folder / "said").read_text().splitlines()]


def values(events, slot, part="v"):
    return [event[6] for event in events if event[1] == "value" and event[3] == slot and event[5] == part]


def test_events_are_numbered_and_name_their_tests(events):
    assert [event[0] for event in events] == list(range(len(events)))
    assert [event[3] for event in events if event[1] == "case"] == [
        "test_a.py::Q::test_contexts", "test_a.py::Q::test_skips", "test_a.py::test_operators",
        "test_a.py::test_bounds",
    ]  # fmt: skip
    assert [event[3] for event in events if event[1] == "end"] == ["passed", "skipped", "passed", "passed"]


def test_contexts_say_what_came(events):
    assert values(events, 1)[0][0][:2] == ["E", "builtins.LookupError"]
    assert values(events, 2) == [[["n"]]]
    assert values(events, 3)[0][0][1][0][1][1] == ["s", "old"]
    assert values(events, 4)[0][0][1] == "builtins.ValueError"
    assert values(events, 5) == [[["l", []]]]
    assert values(events, 6) == [], "what skips a test is no exception of the package"


def test_operators_are_said_both_ways(events):
    assert values(events, 7, "op") == [], "a value beside what was cut has no operators"
    assert values(events, 8, "op") == [[["s", "ZeroDivisionError"], ["s", "ZeroDivisionError"], ["b", False]]]
    assert values(events, 9, "op") == [[["b", True], ["b", False]]]
    assert values(events, 10, "op") == [[["b", True], ["b", True], ["b", False], ["b", False]]]
    assert values(events, 11, "s3") == values(events, 16, "r1") == [[["s", "kept"]]]
    assert values(events, 16, "r2") == [], "None is what a call returns that does nothing"


def test_output_is_bounded(events):
    assert len(values(events, 12)) == 400 and len(values(events, 12, "rest")) == 1
    assert len(values(events, 12, "s1")) == 100
    assert values(events, 13)[0][0][:2] == ["h", "s"]
    kinds = [each[0][0] for each in values(events, 14)]
    assert kinds[0] == "s" and kinds[-1] == "h"
    assert not values(events, 15), "a forked child says nothing"
    assert sum(len(json.dumps(event)) for event in events) < 400_000


def test_without_pytest_values_leave_too(tmp_path):
    said = run(tmp_path, [sys.executable, "-m", "unittest", "-q", "test_a.Q"])
    assert values(said, 4)[0][0][1] == "builtins.ValueError"
    assert {event[1] for event in said} == {"value"}
