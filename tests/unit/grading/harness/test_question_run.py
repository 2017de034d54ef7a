"""What goes wrong before a question is asked is told apart from what the patch's code does in it."""

import errno

import pytest

from swelab.grading.harness.question_run import QuestionRun
from swelab.grading.harness.spec import RunSpec
from swelab.sandbox import ExecResult, Limits, SandboxError


class StandIn:
    """A sandbox whose commands end as they are told to."""

    def __init__(self, output, code, limit=""):
        self.end, self.commands = ExecResult(output, code, limit == "wall", 0, limit, 1.0), []

    def put(self, path, data):
        pass

    def exec(self, command, limits):
        self.commands.append(command)
        return self.end


def asked(sandbox):
    spec = RunSpec("i", ("tests/t.py::test_f",), (), test_cmd="pytest")
    return QuestionRun(spec, "", sandbox, Limits())


@pytest.mark.parametrize(
    "output, code, limit, values, ended",
    [
        (b"ready\nvalues\n", 1, "", b"values\n", ""),
        (b"ready\n", 94, "", b"", "exit code 94"),
        (b"ready\nvalues\n", 124, "wall", b"values\n", "wall"),
        (b"ready\n" + b"x" * 7_950_000, 0, "", b"x" * 7_950_000, "output"),
        (b"", 92, "", b"", "exit code 92, before its tests"),
    ],
    ids=["values", "its exit code", "its time", "too many values", "not there"],
)
def test_what_the_patch_s_code_does_is_said_of_it(output, code, limit, values, ended):
    said = asked(StandIn(output, code, limit)).ask({}, [], [], [])
    assert (said.values, said.ended) == (values, ended)


def test_a_host_without_room_or_time_says_nothing_of_the_patch():
    with pytest.raises(OSError) as caught:
        asked(StandIn(b"", 94)).ask({}, [], [], [])
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(SandboxError, match="wall"):
        asked(StandIn(b"", 124, "wall")).ask({}, [], [], [])


def test_no_two_runs_have_the_same_folder():
    sandbox = StandIn(b"ready\n", 0)
    run = asked(sandbox)
    for _ in range(2):
        run.ask({}, [], [], [])
    first, second = (command.partition("-C /tmp/g")[2][:16] for command in sandbox.commands)
    assert first != second and len(first) == 16
