"""A failure before a witness question starts is not blamed on the patch."""

import errno
import io
import json
import tarfile

import pytest

from swelab.grading.harness.question_run import QuestionRun
from swelab.grading.harness.spec import RunSpec
from swelab.records.patches import Patch
from swelab.sandbox import ExecResult, Limits, SandboxError


class StandIn:
    """A sandbox whose commands end as the test says."""

    def __init__(self, output, code, limit=""):
        self.end, self.commands = ExecResult(output, code, limit == "wall", 0, limit, 1.0), []
        self.files = []

    def put(self, path, data):
        self.files.append(data)

    def exec(self, command, limits=None):
        self.commands.append(command)
        return self.end if "du -s" not in command else ExecResult(self.used, 0, False, 0, "", 1.0)

    used = b"4096 total\n"


def asked(sandbox):
    spec = RunSpec("i", ("tests/t.py::test_f",), (), test_cmd="pytest")
    return QuestionRun(spec, Patch(), sandbox, Limits())


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


def test_a_patch_that_fills_the_sandbox_has_not_said_what_it_should():
    sandbox = StandIn(b"", 94)
    sandbox.used = b"%d total\n" % Limits().disk_bytes
    said = asked(sandbox).ask({}, [], [], [])
    assert (said.values, said.ended) == (b"", "no room: the patch fills the sandbox")


def test_only_the_channel_leads_out_and_sets_have_one_order():
    sandbox = StandIn(b"ready\n", 0)
    asked(sandbox).ask({}, [], [], [], cases={"test_question_0.py": [3]})
    lines = sandbox.commands[0].split("\n")
    assert lines[0] == "exec 3>&1 >/dev/null 2>&1 </dev/null"
    assert any("PYTHONHASHSEED=0 SWELAB_QUESTION_CHANNEL=3" in line for line in lines)
    with tarfile.open(fileobj=io.BytesIO(sandbox.files[0])) as tar:
        held = tar.extractfile("runtime/question_cases.json")
        assert json.loads(held.read()) == {"test_question_0.py": [3]}


def test_no_two_runs_have_the_same_folder():
    sandbox = StandIn(b"ready\n", 0)
    run = asked(sandbox)
    for _ in range(2):
        run.ask({}, [], [], [])
    first, second = (command.partition("-C /tmp/g")[2][:16] for command in sandbox.commands)
    assert first != second and len(first) == 16


def test_a_patch_that_was_tested_is_applied_by_the_command_that_asks():
    spec = RunSpec("i", ("tests/t.py::test_f",), (), test_cmd="pytest")
    sandbox = StandIn(b"ready\n", 0)
    question = QuestionRun(spec, Patch(), sandbox, Limits(), removed=["conftest.py"])
    assert question.prepare() is None and sandbox.commands == []
    question.ask({}, [], [], [])
    assert len(sandbox.commands) == 1 and "prepare.sh" in sandbox.commands[0]
    refused = QuestionRun(spec, Patch(), StandIn(b"", 91), Limits(), removed=[])
    refused.prepare()
    with pytest.raises(SandboxError, match="but not to be asked: exit code 91"):
        refused.ask({}, [], [], [])
