"""The scripted policy with the debugger's tools, turn by turn."""

import json

import pytest

from swelab.agents.agent import loop_of, open_agent
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.models.chat.scripted_debugging import ScriptedDebugger, asked_line
from swelab.records import InputError
from swelab.records.task_records import Task

PATCH = """--- a/port_batch.py
+++ b/port_batch.py
@@ -1,4 +1,4 @@
 def chart_bridge(a):
-    value = a + 8
+    value = a + 4
     return value
\x20
"""
TASK = Task.of(
    {
        "instance_id": "a",
        "patch": PATCH,
        "problem_statement": "test_chart_bridge fails.\nchart_bridge should add the right number to a.",
        "op": "offset_change",
        "FAIL_TO_PASS": ["test_port_batch.py::test_chart_bridge"],
        "function": "port_batch.py::chart_bridge",
        "hint": {"path": "port_batch.py", "line": 1, "name": "chart_bridge"},
    }
)
STOPPED = "-> assert chart_bridge(12) == 20\n 14 ->\t    assert chart_bridge(12) == 20"


def script(task=TASK, scaffold="demo-debugger", **changes):
    policy = recipes.complete(
        POLICY, {"kind": "scripted", "scaffold": scaffold, "wrong_edit": 0, "give_up": 0, **changes}, "p"
    )
    loop = loop_of(recipes.load_named(SCAFFOLD, scaffold))
    model = ScriptedDebugger(task, policy, loop)
    model.form = open_agent(loop.agent).form(loop)
    return model


def turns(model, answers):
    """Returns the script's turns, each followed by the next text."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "a fails"}]
    for answer in answers:
        messages += [model.query(messages), {"role": "tool", "content": answer}]
    return messages[2::2]


def calls(model, answers):
    """Returns the script's calls, each followed by the next text."""
    functions = [turn["tool_calls"][0]["function"] for turn in turns(model, answers)]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def test_it_stops_in_the_test_works_out_the_number_and_repairs():
    assert calls(script(), [STOPPED, "8", "", "", "", "1 failed"]) == [
        ("pdb", {"command": "start", "file": "test_port_batch.py::test_chart_bridge"}),
        ("pdb", {"command": "p 20 - 12"}),
        ("grep", {"pattern": "def chart_bridge"}),
        ("view", {"path": "port_batch.py", "start": 1, "end": 3}),
        ("rewrite", {"path": "port_batch.py", "start": 2, "new_code": "    value = a + 8"}),
        ("eval", {}),
    ]


def test_it_says_again_what_is_asked_and_the_number_once_pdb_gave_it():
    asked = "chart_bridge should add the right number to a."
    told = [turn["content"] for turn in turns(script(), [STOPPED, "8\n", "", "", "", "1 failed"])]
    assert told == [asked, asked, *[f"{asked} It is 8."] * 4]
    for task, answer in ((TASK, "*** NameError"), (TASK | {"op": "const_change"}, "8")):
        told = turns(script(task), [STOPPED, answer, ""])
        assert [turn["content"] for turn in told] == [asked] * 3
    assert {turn["content"] for turn in turns(script(scaffold="demo-rewrite"), ["", "8", "", ""])} == {asked}


@pytest.mark.parametrize(
    ("issue", "name", "said"),
    [("", "f", ""), ("\nOne.\nTwo f1.", "f", "One."), ("One.\nTwo f.", "f", "Two f."), ("One.", "", "One.")],
)
def test_of_an_issue_that_does_not_name_the_function_it_says_the_first_line(issue, name, said):
    assert asked_line(issue, name) == said
    assert len(asked_line("x" * 100_000, "")) < 400


def test_of_other_bugs_it_prints_what_the_test_sees():
    other = TASK | {"op": "const_change"}
    assert calls(script(other), [STOPPED, ""])[1] == ("pdb", {"command": "p chart_bridge(12)"})
    assert calls(script(other), ["the session has ended", ""])[1] == ("pdb", {"command": "l ."})


@pytest.mark.parametrize(
    ("hunk", "start", "code"),
    [
        ("@@ -1,3 +1,2 @@\n def f(a):\n-    a += 8\n     return a\n", 1, "def f(a):\n    a += 8"),
        ("@@ -1,2 +1,1 @@\n-import re\n def f(a):\n", 1, "import re\ndef f(a):"),
    ],
)
def test_a_repair_that_only_adds_lines_takes_a_neighbour_along(hunk, start, code):
    added = TASK | {"op": "line_remove", "patch": f"--- a/port_batch.py\n+++ b/port_batch.py\n{hunk}"}
    assert calls(script(added), ["", "", "", "", ""])[4] == (
        "rewrite",
        {"path": "port_batch.py", "start": start, "new_code": code},
    )


def test_without_pdb_it_reads_the_test():
    found = calls(script(scaffold="demo-rewrite"), ["", "", "", "", ""])
    assert found[0] == ("grep", {"pattern": "assert chart_bridge", "path": "test_port_batch.py"})
    assert [name for name, _ in found] == ["grep", "grep", "view", "rewrite", "eval"]


def test_it_fails_honestly_at_a_share_of_the_tasks():
    wrong = calls(script(wrong_edit=1), [STOPPED, "8", "", "", ""])[4]
    assert wrong == ("rewrite", {"path": "port_batch.py", "start": 2, "new_code": "    value = a - 4"})
    given_up = calls(script(give_up=1), ["", "", "1 failed", "1 failed"])
    assert [name for name, _ in given_up] == ["pdb", "pdb", "eval", "eval"]


def test_a_scaffold_without_its_tools_is_refused():
    policy = recipes.complete(POLICY, {"kind": "scripted", "scaffold": "demo"}, "p")
    loop = loop_of(recipes.load_named(SCAFFOLD, "demo-debugger"))
    lacking = loop.model_copy(
        update={"debugger": loop.debugger.model_copy(update={"tools": ["pdb", "view"]})}
    )
    with pytest.raises(InputError, match="tools without eval, grep, rewrite"):
        ScriptedDebugger(TASK, policy, lacking)
