"""Findings are printed as they come, each on its line; those to fix are counted, and stop a run."""

import pytest

from swelab.checks.finding import fix, low, ok, require, show
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
