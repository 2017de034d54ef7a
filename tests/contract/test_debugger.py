"""The debugger agent in real sandboxes: its tools, its live pdb, and the record of a rollout."""

import pytest

from swelab.grading.grading_stage import with_own_eval
from swelab.grading.harness.grade import grade
from swelab.records.attempt_records import Prediction
from swelab.records.task_records import Task
from swelab.rollouts.own_eval import own_eval
from swelab.sandbox import Limits
from swelab.tasks.patch_application import git
from tests.contract.debugging import FIX, Played, recipe, rollout, seen

pytestmark = pytest.mark.real


@pytest.fixture
def play(place_of_rollouts):
    def played(calls, **changes):
        loop = recipe(**changes)
        return rollout(place_of_rollouts, loop, lambda: Played(loop, calls))

    return played


def test_it_looks_repairs_and_is_done_when_eval_passes(play):
    record = play(
        [
            ("Run it.", "eval", {}),
            ("pdb", {"command": "start"}),
            ("pdb", {"command": "b calc/core.py:2"}),
            ("pdb", {"command": "c"}),
            ("pdb", {"command": "p a, b, a - b"}),
            ("view", {"path": "calc/core.py"}),
            ("rewrite", FIX),
            ("pdb", {"command": "c"}),
            ("pdb", {"command": "p a + b"}),
            ("eval", {}),
        ]
    )
    failed, begun, set_at, met, printed, shown, rewritten, again, repaired = seen(record)
    assert "1 failed, 1 passed\n[exit code 1]" in failed and " in 0." not in failed
    assert "pytest/__main__.py(1)<module>()" in begun and "(Pdb)" not in begun
    assert set_at == "Breakpoint 1 at calc/core.py:2\nBreakpoints:\n  1: calc/core.py:2"
    assert met == "> calc/core.py(2)add()\n-> return a - b" and printed == "(2, 3, -1)"
    assert "\nB 2     return a - b\n" in shown
    assert "-    return a - b\n+    return a + b\n" in rewritten
    assert "The running pdb session has the old code; it starts anew at the next pdb command." in rewritten
    assert again.startswith("[The code has changed: the session was started anew.]")
    assert again.endswith("> calc/core.py(2)add()\n-> return a + b") and repaired == "5"
    assert record["outcome"] == "submitted" and record["model_patch"].count("diff --git") == 1
    assert "+    return a + b" in record["model_patch"]
    told = record["info"]["debugger"]
    assert told["calls"] == {"eval": 2, "pdb": 6, "view": 1, "rewrite": 1} and told["rewrites"] == 1
    assert told["pdb"] == {"commands": 6, "starts": 2} and told["malformed_turns"] == 0


def test_breakpoints_keep_what_they_are_and_move_with_edits(play):
    longer = {"path": "calc/core.py", "start": 1, "end": 1, "new_code": "# add\n\n\ndef add(a, b):"}
    whole = {"path": "calc/core.py", "new_code": "def last(items):\n    return items[-1]\n"}
    record = play(
        [
            ("pdb", {"command": "start", "runner": "pytest", "file": "tests/test_core.py::test_last"}),
            *[
                ("pdb", {"command": command})
                for command in (
                    "b calc/core.py:2, a == 7",
                    "tbreak calc/core.py:6",
                    "b last",
                    "b tests/test_core.py:9",
                    "disable 3",
                    "ignore 4 2",
                )
            ],
            ("pdb", {"command": "b"}),
            ("rewrite", longer),
            ("pdb", {"command": "b"}),
            ("pdb", {"command": "c"}),
            ("pdb", {"command": "b"}),
            ("rewrite", whole),
            ("pdb", {"command": "w"}),
            ("pdb", {"command": "cl"}),
            ("pdb", {"command": "b"}),
            ("submit", {}),
        ]
    )
    before, _, moved, met, after_it, gone, broken, cleared, none = seen(record)[7:]
    assert before.splitlines()[1:] == [
        "  1: calc/core.py:2 (if a == 7)",
        "  2: calc/core.py:6 (temporary)",
        "  3: calc/core.py:5 (disabled)",
        "  4: tests/test_core.py:9 (ignored 2 times)",
    ]
    assert [line.split()[1] for line in moved.splitlines()[1:]] == [
        "calc/core.py:5", "calc/core.py:9", "calc/core.py:8", "tests/test_core.py:9"
    ]  # fmt: skip
    assert met.count("started anew") == 1 and met.endswith("(9)last()\n-> return items[-1]")
    assert "temporary" in met and "temporary" not in after_it and "if a == 7" in after_it
    assert "Breakpoint 1: calc/core.py:5 (if a == 7) is gone with its line." in gone
    assert "cannot import name 'add'" in broken and "[The pdb session has ended, with exit code 4.]" in broken
    assert (cleared, none) == ("All breakpoints are cleared.", "Breakpoints: none")


def test_the_old_code_goes_on_where_the_recipe_says_so(play):
    pdb = [("pdb", {"command": command}) for command in ("start", "b calc/core.py:2", "c", "l")]
    *_, rewritten, shown = seen(
        play([*pdb[:3], ("rewrite", FIX), pdb[3], ("submit", {})], restart_on_rewrite=False)
    )
    assert "start it anew to debug the new" in rewritten
    assert shown.startswith("[This session still runs the code before the last rewrite.]\n")


def told(play, *calls, **changes):
    """Returns the observations of the calls of a rollout."""
    return seen(play([*calls, ("submit", {})], **changes))


def test_pdb_says_what_is_wrong(play):
    lines = ("b calc/core.py:1", "b calc/core.py:3", "b calc/core.py:99", "p 1\np 2", "!input()", "p 'x'")
    unbegun, missing, begun, only, blank, behind, first, asked, fine = told(
        play,
        ("pdb", {"command": "b calc/core.py:2"}),
        ("pdb", {"command": "start", "file": "nothing.py"}),
        ("pdb", {"command": "start", "file": "calc/core.py"}),
        *[("pdb", {"command": line}) for line in lines],
    )
    assert unbegun == "No pdb session is running. Begin one with the command start."
    assert missing == "There is no file nothing.py."
    assert begun.startswith("> calc/core.py(1)<module>()") and "def last(items):" in begun
    assert only == "No breakpoint was set: line 1 only defines a function. Use b calc/core.py:2."
    assert blank == "No breakpoint was set: line 3 is blank. Use b calc/core.py:5."
    assert behind == "No breakpoint was set: the file has 6 lines. Use b calc/core.py:6."
    assert first == "1\n[Only the first line was run: pdb takes one command a call.]"
    assert "EOFError" in asked and fine == "'x'"


def test_rewrite_keeps_to_the_files_of_the_program(play):
    tests, new, outside, behind, last, same = told(
        play,
        ("rewrite", {"path": "tests/test_core.py", "new_code": "x"}),
        ("rewrite", {"path": "new.py", "new_code": "x"}),
        ("rewrite", {"path": "../etc/passwd", "new_code": "x"}),
        ("rewrite", {"path": "calc/core.py", "start": 90, "new_code": "# the end"}),
        ("rewrite", {"path": "calc/core.py", "start": 7, "end": 8, "new_code": "# another end"}),
        ("rewrite", {"path": "calc/core.py", "start": 7, "new_code": "# another end"}),
    )
    assert tests == "tests/test_core.py is read-only and stays as it is."
    assert new == "There is no file new.py; rewrite makes no new ones."
    assert outside == "There is no file ../etc/passwd; rewrite makes no new ones."
    assert behind.endswith("     return items[-1]\n+# the end")
    assert last.endswith("-# the end\n+# another end")
    assert same == "calc/core.py is as it was: the new code is the old."


def test_files_are_looked_at(play):
    range_, bare, folder, outside, cut, none, wrong, listed, deep, failed, silent = told(
        play,
        ("view", {"path": "calc/core.py", "start": 6, "end": 4}),
        ("view", {"path": "calc/core.py", "start": 5, "include_line_numbers_and_breakpoints": False}),
        ("view", {"path": "calc"}),
        ("view", {"path": "/etc/passwd"}),
        ("grep", {"pattern": "def (add|last)", "max_results": 1}),
        ("grep", {"pattern": "nowhere", "path": None, "max_results": None}),
        ("grep", {"pattern": "("}),
        ("listdir", {}),
        ("listdir", {"path": ".", "depth": 2}),
        ("bash", {"command": "echo out; exit 3"}),
        ("bash", {"command": ""}),
    )
    assert range_ == "The range 6 to 4 holds no line; calc/core.py has 6 lines."
    assert bare == "calc/core.py, lines 5 to 6 of 6:\ndef last(items):\n    return items[-1]"
    assert folder == "calc/__init__.py\ncalc/core.py" and "outside the working folder" in outside
    assert cut == "calc/core.py:1:def add(a, b):\n[1 more lines match.]"
    assert none == "No line matches 'nowhere'." and wrong.startswith("grep: ")
    assert listed == "calc/\nconftest.py (read-only)\ntests/"
    assert deep.splitlines()[-1] == "tests/test_core.py (read-only)" and "calc/core.py" in deep
    assert failed == "out\n\n[exit code 3]" and silent == "\n[exit code 0]"


def test_every_end_leaves_the_patch(play):
    edit = ("rewrite", FIX | {"new_code": "    return b - a"})
    stopped = play([edit, ("eval", {}), ("eval", {})], step_limit=2)
    assert stopped["outcome"] == "step_limit" and "+    return b - a" in stopped["model_patch"]
    assert stopped["info"]["debugger"]["last_eval"] == 1


def test_rewrites_are_counted_and_malformed_turns_too(play):
    edits = [("rewrite", FIX | {"new_code": f"    return {n}"}) for n in range(3)]
    spent = play(edits, max_rewrite_steps=2)
    assert spent["outcome"] == "step_limit" and spent["info"]["debugger"]["rewrites"] == 2
    assert "+    return 1" in spent["model_patch"]
    wrong = play([*edits[:1], "Hm.", ("fly", {}), ("view", {"path": 3}), edits[1]], max_format_errors=3)
    assert wrong["outcome"] == "malformed" and wrong["info"]["debugger"]["malformed_turns"] == 3
    assert "+    return 0" in wrong["model_patch"]
    _, none, tool, kind = seen(wrong)
    assert none.startswith("Nothing was done: no tool was called.") and "<tool_call>" in none
    assert "no tool is called 'fly'; there are pdb, view, rewrite" in tool
    assert "view: path is 3; expected string. view takes path (string), start (integer, optional)" in kind


def test_read_only_and_hidden_files(place_of_rollouts, monkeypatch):
    task, store, backend, scratch = place_of_rollouts
    checkout = store.checkout

    def with_lists(task, tree, **options):
        checkout(task, tree, **options)
        (tree / ".debugreadonly").write_text("calc/__init__.py\n")
        (tree / ".debugignore").write_text("tests/\n")
        for command in (("add", "-A"), ("-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x")):
            git(tree, *command)

    monkeypatch.setattr(store, "checkout", with_lists)
    loop = recipe()
    calls = [
        ("rewrite", {"path": "calc/__init__.py", "new_code": "x"}),
        ("bash", {"command": "rm .debug*"}),
        ("rewrite", {"path": "./calc/../calc/__init__.py", "new_code": "x"}),
        ("view", {"path": "tests/test_core.py"}),
        ("grep", {"pattern": "test_add"}),
        ("submit", {}),
    ]
    record = rollout(place_of_rollouts, loop, lambda: Played(loop, calls))
    first, _, again, hidden, found = seen(record)
    assert first == again == "calc/__init__.py is read-only and stays as it is."
    assert (
        hidden == "There is no file or folder tests/test_core.py." and found == "No line matches 'test_add'."
    )
    assert "tests" not in record["messages"][0]["content"].partition("Files of")[2]
    assert "calc/" in record["messages"][0]["content"]


FORGED = {
    "prints what a pass prints and exits": "import os\nprint('2 passed', flush=True)\nos._exit(0)",
    "ends pytest as if all had passed": "import atexit, os\natexit.register(os._exit, 0)",
    "leaves a process that goes on writing": (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    while True:\n"
        "        open('/testbed/calc/late.py', 'a').write('x = 1\\n'); time.sleep(0.01)\n"
        "os._exit(0)"
    ),
    "changes the debugger": (
        "import bdb, pdb, sys\n"
        "for kind in (bdb.Bdb, pdb.Pdb):\n    kind.set_break = kind.do_continue = lambda *a, **k: 0\n"
        "sys.settrace(None)\nimport os; os._exit(0)"
    ),
}


@pytest.mark.parametrize("way", FORGED)
def test_an_eval_that_is_forged_ends_the_rollout_and_no_more(place_of_rollouts, way):
    """The grade comes from the patch alone, in another sandbox, whose tests are the task's own."""
    task, store, backend, _ = place_of_rollouts
    loop = recipe()
    code = f"def add(a, b):\n    return a - b\n\n\n{FORGED[way]}\n"
    calls = [
        ("pdb", {"command": "start"}),
        ("rewrite", {"path": "calc/core.py", "new_code": code}),
        ("pdb", {"command": "b calc/core.py:2"}),
        ("pdb", {"command": "c"}),
        ("eval", {}),
    ]
    record = rollout(place_of_rollouts, loop, lambda: Played(loop, calls))
    assert record["outcome"] == "submitted" and record["info"]["debugger"]["last_eval"] == 0
    assert own_eval(record.messages) == {"own_eval": "passed"}
    verdict = grade(task, record["model_patch"], store, backend, Limits())
    assert not verdict["resolved"], verdict
    strict = Task.of(task | {"compat": {"final_eval": False}})
    prediction = Prediction(
        instance_id=task.instance_id, model_name_or_path="p", outcome="submitted", own_eval="passed"
    ) | {"model_patch": record["model_patch"]}
    assert not with_own_eval(strict, prediction, verdict).resolved
