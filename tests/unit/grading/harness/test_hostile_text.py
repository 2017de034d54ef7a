"""Logs and code that are made to be read very slowly cost little here."""

from dataclasses import replace
from functools import partial

import pytest

from swelab.grading.evidence import ended_run
from swelab.grading.harness import audit, hostile_text, logs
from swelab.grading.harness.spec import read_spec
from swelab.jobs.bounded_calls import BoundedCalls
from swelab.outcomes import GradeEnd
from swelab.records import patch_reader
from swelab.records.patch_reader import touched_paths
from swelab.tasks.patch_text import patch_size
from tests.growth import TIMES, growth

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


READERS = {
    **{name: partial(logs.statuses, parser=name) for name in sorted(logs.LINEAR_PARSERS)},
    **{reader.__name__: reader for reader in (touched_paths, patch_size)},
    "review": lambda code: audit.review([("a.py", code, "")], ""),
    "review of a constant": lambda text: audit.review([("a.py", f"x = {text!r}\n", "")], ""),
}


@pytest.mark.full
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("line", LINES)
def test_our_readers_read_each_place_once(line, reader):
    for head in HEADS if "pat" in reader else [""]:

        def text(size, head=head):
            return head + line * (size // len(line))

        assert growth(READERS[reader], text, 30_000) < TIMES, head


def test_each_line_of_a_patch_is_tried_once(monkeypatch):
    class Hunk:
        tries = 0

        def match(self, line):
            self.tries += 1
            return pattern.match(line)

    pattern = patch_reader.HUNK
    monkeypatch.setattr(patch_reader, "HUNK", Hunk())
    assert not touched_paths("\n" * 1000)
    assert patch_reader.HUNK.tries == 1000


@pytest.mark.parametrize("parser,line", [("parse_log_sympy", " "), ("parse_log_p5js", "\n")])
def test_a_log_that_a_parser_reads_for_ever_is_no_success(task, monkeypatch, parser, line):
    """Both parsers try each place of a long line again. Two megabytes would take hours."""
    monkeypatch.setattr(hostile_text, "_APART", BoundedCalls(cpu_seconds=0.5))
    spec = replace(read_spec(task), parser=parser)
    run = ended_run("ran") | {"log": line * (2 << 20), "code": 0, "guarded": False, "timed_out": False}
    status, reason, tests = hostile_text.read_verdict(spec, run)
    assert (status, tests) == (GradeEnd.UNRESOLVED, None) and "its log cannot be read: it took" in reason
    run = run | {"log": "nothing\n"}
    assert hostile_text.read_verdict(spec, run)[1] == "the log reports no test"


def test_code_that_cannot_be_read_is_suspect(monkeypatch):
    monkeypatch.setattr(hostile_text, "_APART", BoundedCalls(cpu_seconds=0.05))
    found = hostile_text.review([("a.py", "x = 1\n" * 400_000, "")], "")
    assert found["findings"][0].startswith("its files cannot be read: it took more than 0.05 s")
