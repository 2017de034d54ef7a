"""Run specifications of rows of every format, with real rows where they exist."""

import json
import shlex
import subprocess

import pytest

from swelab.grading.harness.logs import DEFAULT_PARSER as PARSER
from swelab.grading.harness.script import KEEPS_CODE, ends_in_pytest, with_test_status
from swelab.grading.harness.spec import read_spec
from swelab.grading.harness.swesmith_profiles import ACTIVATE
from swelab.records import InputError
from swelab.records.patch_reader import read_patch, touched_paths
from swelab.records.task_records import Task
from swelab.tasks.install_steps import without_installs
from swelab.tasks.patch_text import reversed_patch
from tests.at_hand import DATA, needs_rows
from tests.conftest import run_program

TEST_PATCH = "--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1 +1 @@\n-a\n+b\n"
FIX = "--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1 +1 @@\n-a\n+b\n"
ROW = Task.of(
    {
        "instance_id": "o__r-1",
        "repo": "pallets/flask",
        "version": "2.0",
        "patch": FIX,
        "test_patch": TEST_PATCH,
        "FAIL_TO_PASS": '["tests/test_a.py::test_f"]',
        "PASS_TO_PASS": "[]",
    }
)
SCRIPT = """#!/bin/bash
set -uxo pipefail
cd /testbed
git apply -v - <<'EOF_1'
+import pytest
EOF_1
: '>>>>> Start Test Output'
sh -c "exit 3"
: '>>>>> End Test Output'
true
"""


def rows(name):
    path = DATA / name
    if name.endswith("jsonl"):
        return [Task.of(json.loads(line)["metadata"]["instance"]) for line in path.read_text().splitlines()]
    return [Task.of(row) for row in json.loads(path.read_text())]


OWN = {"test_cmd": "pytest --no-header -rA -p no:cacheprovider", "log_parser": "parse_log_pytest"}


@pytest.mark.parametrize(
    ("fields", "command", "parser"),
    [
        ({"install_config": OWN}, f"{ACTIVATE} && {OWN['test_cmd']} FILES", "parse_log_pytest"),
        ({"install_config": json.dumps(OWN)}, f"{ACTIVATE} && {OWN['test_cmd']} FILES", "parse_log_pytest"),
        ({"install_config": OWN | {"log_parser": None}}, f"{ACTIVATE} && {OWN['test_cmd']} FILES", PARSER),
        (
            {"test_cmds": ["cd a", "pytest -rA"], "log_parser": "pytest"},
            "cd a && pytest -rA",
            "parse_log_pytest",
        ),
        ({"test_cmds": "pytest -rA tests"}, "pytest -rA tests", PARSER),
    ],
)
@pytest.mark.parametrize("repo", ["a/b", "django/django"])
def test_a_command_that_the_row_brings_is_run(fields, command, parser, repo):
    """Also for a repository whose command in SWE-bench is known."""
    spec = read_spec(Task.of(ROW | fields | {"repo": repo}))
    files = " ".join(path for path in touched_paths(ROW["test_patch"]) if path.endswith(".py"))
    assert (spec.test_cmd, spec.parser) == (command.replace("FILES", files), parser)
    assert spec.test_patch == ROW["test_patch"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"install_config": "{"}, "install_config is no object"),
        ({"install_config": {"test_cmd": ["a", "b"]}}, "install_config.test_cmd has 2 commands"),
        ({"install_config": {"test_cmd": 3}}, "install_config.test_cmd is no command"),
        ({"install_config": OWN | {"log_parser": "def parse(log): ..."}}, "no log parser 'def parse"),
        ({"test_cmds": [""]}, "test_cmds is no command"),
        ({"test_cmds": ["pytest"], "rebuild_cmds": ["make"]}, "its rebuild_cmds cannot be run here"),
    ],
)
def test_a_command_that_the_row_brings_and_that_cannot_be_run(fields, fault):
    with pytest.raises(InputError, match=fault):
        read_spec(Task.of(ROW | fields))


def test_older_rows_of_swebench():
    spec = read_spec(ROW)
    assert spec.test_cmd.endswith("conda activate testbed && pytest -rA tests/test_a.py")
    assert spec.parser == "parse_log_flask" and spec.by_pytest and not spec.gold_reversed
    assert spec.test_paths == ["tests/test_a.py"] and spec.protects("tests/test_a.py")
    command = spec.tested_command("/tmp/g", "before")
    assert command.startswith("git apply --whitespace=nowarn /tmp/g/test.diff && { before\n")
    django = read_spec(ROW | {"repo": "django/django", "FAIL_TO_PASS": ["test_f (a.T)"]})
    assert "runtests.py" in django.test_cmd and django.test_cmd.endswith(" test_a") and not django.by_pytest
    with pytest.raises(InputError, match="no test command is known for a/b"):
        read_spec(ROW | {"repo": "a/b"})


@needs_rows
def test_rows_of_swe_gym_without_a_script_run_what_their_script_runs():
    told = {"getmoto/moto": 0, "python/mypy": 0}
    for row in rows("swe_gym_subset20.jsonl"):
        script = row.pop("eval_script")
        theirs = shlex.split(next(text for text in script.split("\n") if text.startswith("pytest ")))
        spec = read_spec(row)
        ours = shlex.split(spec.test_cmd.partition(" conda activate testbed && ")[2])
        if row["repo"] == "python/mypy":  # theirs names every case of the data files' changed parts
            assert set(ours.pop().split(" or ")) <= set(theirs.pop().split(" or "))
        assert ours == theirs, row["instance_id"]
        assert spec.by_pytest and not spec.gold_reversed and spec.test_patch == row["test_patch"]
        told[row["repo"]] += 1
    assert min(told.values()) >= 3


def test_newer_rows_of_swebench():
    row = ROW | {
        "image": "hub/x:1",
        "eval_script": SCRIPT,
        "log_parser": "parse_log_sympy",
        "eval_type": "fail_only",
    }
    spec = read_spec(row)
    assert (spec.image, spec.parser, spec.eval_type) == ("hub/x:1", "parse_log_sympy", "fail_only")
    assert spec.test_paths == ["tests/test_a.py"] and not spec.by_pytest
    assert spec.tested_command("/tmp/g", "before") == "bash /tmp/g/eval.sh"


def test_an_eval_script_ends_with_the_exit_code_of_its_tests(tmp_path):
    script = with_test_status(SCRIPT.replace("cd /testbed\n", "").replace("git apply -v -", "cat"))
    assert subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True).returncode == 3
    assert with_test_status("make test\n") == "make test\n"


@pytest.mark.parametrize("flags", ["set -uxo pipefail", "set -e", "set -exo pipefail", "true"])
@pytest.mark.parametrize(
    "after", ["git checkout HEAD tests", "false", "exit 0", "echo '>>>>> End Test Output'"]
)
@pytest.mark.parametrize("code", [0, 1, 4])
def test_what_comes_after_pytest_does_not_change_the_exit_code(tmp_path, flags, after, code):
    (tmp_path / "pytest").write_text(f"#!/bin/sh\necho ran $*\nexit {code}\n")
    (tmp_path / "pytest").chmod(0o755)
    text = f"{flags}\ncat <<'EOF'\npytest in a patch\nEOF\npytest -k 'a or b; c'\n{after}\n"
    script = with_test_status(text)
    done = run_program(["bash", "-c", script], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == code and done.stdout.count("ran -k a or b; c") == 1
    assert KEEPS_CODE in script
    assert with_test_status(script) == script, "a script that was exported is graded as it is"


@pytest.mark.parametrize("text, told", [
    ("pytest -rA", True),
    ("source a && conda activate b && pytest -rA 'x y' && echo done", True),
    ("sleep 1; python -m pytest -rA > log 2>&1", True),
    ("/opt/bin/py.test -k 'a | b'", True),
    ("pytest -rA | tee log", False),
    ("pytest -rA || true", False),
    ("pytest a; pytest b", False),
    ("pytest a; echo done", False),
    ("if pytest a; then echo b; fi", False),
    ("pytest a &", False),
    ("pytest 'a\nb'", False),
])  # fmt: skip
def test_whose_exit_code_a_command_ends_with(text, told):
    assert ends_in_pytest(text) is told
    assert read_spec(ROW | {"test_cmd": text}).code_is_runners is told


@pytest.mark.parametrize("text", [
    "pytest -rA \\\n  tests/a.py\nfalse",
    "if true; then\n  pytest a\nfi",
    "pytest a | tee log\nfalse",
    "pytest a\npytest b",
    "trap 'echo bye' EXIT\npytest a",
])  # fmt: skip
def test_scripts_that_are_no_plain_lines_are_left_as_they_are(text):
    assert with_test_status(text) == text
    assert read_spec(ROW | {"eval_script": text}).code_is_runners is False


@needs_rows
def test_real_scripts_keep_the_code_of_pytest():
    for row in rows("swe_gym_subset20.jsonl"):
        spec = read_spec(row)
        assert spec.by_pytest and spec.code_is_runners and not spec.has_markers
        lines = spec.eval_script.split("\n")
        place = lines.index(KEEPS_CODE)
        assert lines[place - 2].startswith("pytest ") and lines[place + 1].startswith("git checkout ")
    for name in ("swebench_lite5.json", "swebench_dev_easy5.json"):
        for row in rows(name):
            spec = read_spec(row)
            assert spec.code_is_runners is spec.by_pytest, row["instance_id"]


def test_swesmith_rows():
    names = ("instance_id", "patch", "FAIL_TO_PASS", "PASS_TO_PASS")
    row = Task.of({name: ROW[name] for name in names})
    spec = read_spec(row | {"repo": "swesmith/o__r.1", "image_name": "swebench/swesmith.x86_64.o_1776_r.1"})
    assert spec.gold_reversed and spec.by_pytest and spec.parser == "parse_log_pytest_verbose"
    assert "git checkout -qf o__r-1" in spec.setup[0] and "HEAD~1" in spec.setup[1]
    assert spec.image == "swebench/swesmith.x86_64.o_1776_r.1"


def test_a_patch_of_a_row_may_lack_the_end_of_its_last_line(task):
    diff = "--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-a\n+b"
    spec = read_spec(task | {"patch": diff, "test_patch": diff})
    assert (spec.gold, spec.test_patch, spec.tests_diff) == (f"{diff}\n",) * 3
    assert read_spec(task | {"patch": f"{diff}\n", "test_patch": ""}).tests_diff == ""


def test_forged_rows(task):
    spec = read_spec(task)
    assert spec.by_pytest and spec.gold_reversed and spec.image == "" and spec.setup == ()
    assert read_spec(task | {"test_cmd": "tox -e py -- pytest x"}).by_pytest is False
    assert read_spec(task | {"test_cmd": "pip install pytest x; ./run"}).by_pytest is False
    with pytest.raises(InputError, match="no test_cmd"):
        read_spec(Task.of({name: value for name, value in task.items() if name != "test_cmd"}))
    with pytest.raises(InputError, match="PASS_TO_PASS"):
        read_spec(task | {"PASS_TO_PASS": "x"})


@needs_rows
@pytest.mark.parametrize("name", ["swebench_lite5.json", "swebench_dev_easy5.json"])
def test_real_rows_of_swebench(name):
    for row in rows(name):
        spec = read_spec(row)
        assert spec.listed and spec.test_cmd and read_patch(spec.gold) and read_patch(spec.test_patch)
        assert spec.by_pytest == ("runtests" not in spec.test_cmd and "bin/test" not in spec.test_cmd)
        assert not any(spec.protects(path) for path in touched_paths(spec.gold)), row["instance_id"]
        assert all(spec.protects(path) for path in touched_paths(spec.test_patch))
        assert touched_paths(reversed_patch(spec.gold)) == touched_paths(spec.gold)


@needs_rows
def test_real_rows_of_swegym():
    for row in rows("swe_gym_subset20.jsonl"):
        spec = read_spec(row)
        assert spec.by_pytest and set(without_installs(row["eval_script"]).split("\n")) <= set(
            spec.eval_script.split("\n")
        )
        assert not spec.gold_reversed
        assert set(touched_paths(row["test_patch"])) <= set(spec.test_paths)
        assert read_patch(spec.gold).changes
