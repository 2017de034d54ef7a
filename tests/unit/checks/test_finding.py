"""Findings are printed at once, one per line. Errors are counted and stop a run."""

import pytest

from swelab.checks.finding import catch, fix, low, ok, require, show, wrong
from swelab.records import Fault


def test_each_finding_is_a_line_as_soon_as_it_is_there(capsys):
    lines = []

    def findings():
        for finding in (ok("disk: 9 GiB"), low("cores: 1"), fix("memory: 1 GiB")):
            yield finding
            lines.append(capsys.readouterr().out)

    assert show(findings()) == 1
    assert lines == ["ok   disk: 9 GiB\n", "low  cores: 1\n", "FIX  memory: 1 GiB\n"]


def test_what_is_to_fix_stops_a_run_after_all_was_said(capsys):
    require([ok("a"), low("b")])
    assert capsys.readouterr() == ("", "ok   a\nlow  b\n")
    with pytest.raises(
        Fault, match="^2 to fix before r can be trained; the lines that begin with FIX say how$"
    ):
        require([fix("a"), ok("b"), fix("c")], "r can be trained")
    assert capsys.readouterr().err == "FIX  a\nok   b\nFIX  c\n"


def test_a_fault_that_ends_a_check_is_its_last_finding_and_ends_no_other():
    def ends():
        yield low("a")
        yield wrong("no such file", "b.json", "a checkpoint")
        raise Fault("d")

    lines = [str(each) for each in catch(ends, lambda: 5, lambda: iter([ok("c")]), label="start: ")]
    assert lines == ["low  a", "FIX  b.json: no such file; expected a checkpoint", "FIX  start: d", "ok   c"]
