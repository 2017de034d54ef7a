"""The grader notices every change or truncation of the observer's record."""

import importlib.util
import os
from importlib import resources

import pytest

from swelab.grading import inside
from swelab.grading.harness.guard import Guard
from swelab.grading.harness.observer_record import collect_observations, read_record
from tests.growth import TIMES, growth

TEST = "tests/t.py::test_f"


def channel_of(guard, folder):
    """Returns the channel of a run, which writes to a file in `folder`."""
    (folder / "told").write_bytes(b"")
    path = resources.files(inside) / "channel.py"
    spec = importlib.util.spec_from_file_location("channel_of_test", str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.STREAM, open_file = str(folder / "told"), os.open
    module.OPEN = lambda path, flags: open_file(path, flags | os.O_APPEND)
    return module.Channel({"nonce": guard.nonce, "key": guard.key})


@pytest.fixture
def said(tmp_path):
    """(guard, the guard's part of the log of a run with one failed test)."""
    guard = Guard("/testbed")
    channel = channel_of(guard, tmp_path)
    channel.tell("start")
    os.write(channel.stream, b"a log\n")
    channel.tell("call", TEST, "AssertionError")
    channel.tell("report", TEST, "failed")
    channel.tell("marked", ["x" * 5000, "\udc80\x1e"])
    os.write(channel.stream, b"its end\n")
    channel.tell("end", 1)
    return guard, (tmp_path / "told").read_bytes()


def test_the_record_is_read_and_the_log_is_as_it_was(said):
    guard, output = said
    record = read_record(output, guard.nonce, guard.key, 1 << 20)
    assert (record.state, record.log) == ("whole", b"a log\nits end\n")
    seen = collect_observations(record.observations, "")
    assert (seen.exit, seen.outcomes, seen.raised) == (1, {TEST: "failed"}, {TEST: "AssertionError"})
    assert seen.marked == ["x" * 5000, "\udc80\x1e"] and seen.junit == ""


def lines_of(output):
    return [b"\x1e" + each.partition(b"\x1f")[0] + b"\x1f" for each in output.split(b"\x1e")[1:]]


def without(number):
    return lambda output: output.replace(lines_of(output)[number], b"")


@pytest.mark.parametrize(
    "change, state",
    [
        (without(1), "gap"),
        (without(0), "gap"),
        (without(-1), "unended"),
        (lambda output: b"a log", "unstarted"),
        (lambda output: output.replace(b"failed", b"passed"), "broken"),
        (lambda output: output + lines_of(output)[2], "broken"),
        (lambda output: output + lines_of(output)[-1].replace(b" 6 .", b" 7 ."), "broken"),
    ],
)
def test_what_is_missing_changed_or_said_twice_is_seen(said, change, state):
    guard, output = said
    assert read_record(change(output), guard.nonce, guard.key, 1 << 20).state == state


def test_a_line_after_the_end_breaks_the_record(tmp_path):
    guard = Guard("/testbed")
    channel = channel_of(guard, tmp_path)
    channel.tell("end", 0)
    channel.tell("report", TEST, "passed")
    assert read_record((tmp_path / "told").read_bytes(), guard.nonce, guard.key, 99).state == "broken"


def test_the_worst_report_on_a_test_counts():
    lines = [["report", TEST, "failed"], ["report", TEST, "passed"]]
    lines += [["call", TEST, "ValueError"], ["call", TEST, ""]]
    seen = collect_observations(lines, None)
    assert seen.outcomes == {TEST: "failed"} and seen.raised == {TEST: "ValueError"}


def test_a_closed_stream_is_opened_again_and_a_forked_process_is_silent(tmp_path):
    guard = Guard("/testbed")
    channel = channel_of(guard, tmp_path)
    channel.tell("start")
    os.close(channel.stream)
    other = os.open(os.devnull, os.O_WRONLY)  # takes the number
    child = os.fork()
    if not child:
        channel.tell("end", 0)
        os._exit(0)
    os.waitpid(child, 0)
    channel.tell("end", 1)
    os.close(other)
    record = read_record((tmp_path / "told").read_bytes(), guard.nonce, guard.key, 99)
    assert (record.state, record.observations) == ("whole", [["start"], ["end", 1]])


def test_much_hostile_text_is_read_in_linear_time(said):
    guard, output = said
    mark = b"\x1e" + guard.nonce.encode()
    record = read_record(
        output + (mark + b" " + b"0" * 32 + b" 1 .") * 20000 + mark * 100000, guard.nonce, guard.key, 99
    )
    assert record.state == "whole" and record.log.startswith(b"a log\n")


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", ["a list"], "passed"],
        ["call", TEST, {}],
        ["power", 7],
        ["marked", [[]]],
        ["fault", {"error": 1, "traceback": "", "patched": ""}],
        ["fault", {}],
        ["end", "0"],
        [["start"]],
        ["a word of nobody's"],
    ],
    ids=repr,
)
def test_words_that_the_observer_does_not_say_break_the_record(tmp_path, words):
    guard = Guard("/testbed")
    channel = channel_of(guard, tmp_path)
    channel.tell("start")
    channel.tell(*words)
    channel.tell("end", 0)
    record = read_record((tmp_path / "told").read_bytes(), guard.nonce, guard.key, 99)
    assert record.state == "broken" and words not in record.observations
    collect_observations(record.observations, "")


@pytest.mark.full
def test_a_word_of_many_lines_is_read_in_linear_time(tmp_path):
    guard = Guard("/testbed")

    def told(size):
        channel = channel_of(guard, tmp_path)
        channel.tell("power", "x" * size)
        channel.tell("end", 0)
        return (tmp_path / "told").read_bytes()

    def read(output):
        assert read_record(output, guard.nonce, guard.key, 99).state == "whole"

    assert growth(read, told, 3 << 20) < TIMES
