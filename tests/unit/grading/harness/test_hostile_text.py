"""Logs and code that are made to be read for ever cost little here."""

import time
from dataclasses import replace

import pytest

from swelab.grading.evidence import ended
from swelab.grading.harness import audit, hostile_text, logs, patches
from swelab.grading.harness.spec import read_spec
from swelab.jobs.bounded_calls import BoundedCalls
from swelab.outcomes import GradeEnd
from swelab.tasks.patch_text import patch_size

LINES = [
    "a",
    " ",
    "PASSED ",
    "= ",
    "[",
    "ok ... ",
    "::",
    "\n",
    "FAILED a - ",
    "1 ",
    " :",
    "--- FAIL: ",
    "(1 ms",
]
HEADS = ["", "diff --git ", "--- a/", '+++ "\\', "@@ -1 +1 @@\n+", "rename to "]


def seconds_of(function, *arguments):
    started = time.process_time()
    function(*arguments)
    return time.process_time() - started


@pytest.mark.parametrize("line", LINES)
def test_our_readers_read_each_place_once(line):
    text = line * (120_000 // len(line))
    for parser in sorted(logs.LINEAR_PARSERS):
        assert seconds_of(logs.statuses, text, parser) < 0.1, parser
    for head in HEADS:
        for reader in (patches.refusal, patches.touched_paths, patch_size):
            assert seconds_of(reader, head + text) < 0.1, (reader, head)
    for code in (f"x = {text!r}\n", text):
        assert seconds_of(audit.review, [("a.py", code, "")], "") < 0.1


@pytest.mark.parametrize("parser,line", [("parse_log_sympy", " "), ("parse_log_p5js", "\n")])
def test_a_log_that_a_parser_reads_for_ever_is_no_success(task, monkeypatch, parser, line):
    """These two try each place of a long line again and again; two megabytes would take hours."""
    monkeypatch.setattr(hostile_text, "_APART", BoundedCalls(cpu_seconds=0.5))
    spec = replace(read_spec(task), parser=parser)
    run = ended("ran") | {"log": line * (2 << 20), "code": 0, "guarded": False, "timed_out": False}
    started = time.process_time()
    status, reason, tests = hostile_text.read_verdict(spec, run)
    assert time.process_time() - started < 0.3
    assert (status, tests) == (GradeEnd.UNRESOLVED, None) and "its log cannot be read: it took" in reason
    run = run | {"log": "nothing\n"}
    assert hostile_text.read_verdict(spec, run)[1] == "the log reports no test"


def test_code_that_cannot_be_read_is_suspect(monkeypatch):
    monkeypatch.setattr(hostile_text, "_APART", BoundedCalls(cpu_seconds=0.05))
    found = hostile_text.review([("a.py", "x = 1\n" * 400_000, "")], "")
    assert found["findings"][0].startswith("its files cannot be read: it took more than 0.05 s")
