"""Provides an eval script for each published row.

A row's own script is checked. A row without a script gets a script made from the benchmark's commands. Some
programs judge a patch only by the script's exit code (the SWE-RL scripts, slime's and Miles' examples). They
count every patch as correct if the script is empty, or continues after its tests. This module never returns
such a script.
"""

import re
import shlex
import subprocess

from swelab.grading.harness.script import KEEPS_CODE, with_test_status
from swelab.grading.harness.spec import read_spec
from swelab.grading.harness.swesmith_profiles import ACTIVATE
from swelab.records import InputError
from swelab.records.task_records import Task

HEREDOC = "EOF_114329324912"
"""The here-document delimiter of SWE-bench's own scripts."""
STOPS = re.compile(r"^\s*set\s+-[a-z]*e", re.M)
SECONDS = 20
SCRIPT = """#!/bin/bash
set -exo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git config --global --add safe.directory /testbed
{restored}git apply -v - <<'{word}'
{diff}{word}
: '>>>>> Start Test Output'
set +e
{command}
tests=$?
: '>>>>> End Test Output'
{restored}exit $tests
"""


def with_script(task: Task) -> Task:
    """Returns the row with an eval script whose exit code is the exit code of the tests.

    If the script is made here, the row also gets `log_parser`. Raises InputError if the row's own script is
    empty, is not valid bash or cannot fail. Raises InputError if the row has no script and is not a SWE-bench
    row.
    """
    where = task.instance_id
    if "eval_script" in task:
        return task | {"eval_script": with_exit_code(task.eval_script or "", where)}
    spec = read_spec(task)
    if not (task.test_patch and task.base_commit and spec.test_patch and not task.test_cmd):
        expected = "a row of SWE-bench with base_commit and test_patch, or one with eval_script"
        raise InputError("no eval_script, and none can be made", where, expected)
    files = [path for path in spec.test_paths if path in old_paths(spec.test_patch)]
    diff = spec.test_patch if spec.test_patch.endswith("\n") else f"{spec.test_patch}\n"
    command = spec.test_cmd.removeprefix(f"{ACTIVATE} && ")
    restored = f"git checkout {task.base_commit} {' '.join(map(shlex.quote, files))}\n" if files else ""
    if HEREDOC in diff:
        raise InputError(f"test_patch holds the line {HEREDOC}", where, "a test patch without it")
    text = SCRIPT.format(restored=restored, word=HEREDOC, diff=diff, command=command)
    return task | {"eval_script": with_exit_code(text, where), "log_parser": spec.parser}


def old_paths(diff: str) -> set[str]:
    """Returns the files in a diff that exist before the diff is applied."""
    return set(re.findall(r"^--- a/(\S+)", diff, re.M))


def with_exit_code(text: str, where: str) -> str:
    """Returns an eval script that fails if its tests fail.

    This is `text`, or `text` changed so that it exits with the exit code of its tests.

    Raises InputError if `text` is empty, is not valid bash, or cannot be changed in this way.
    """
    if not text.strip():
        raise InputError("eval_script is empty", where, "bash that runs the tests")
    found = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=SECONDS)
    if found.returncode:
        why = (found.stderr.strip().splitlines() or ["bash refuses it"])[0]
        raise InputError(f"eval_script is not valid bash: {why}", where, "a script that bash reads")
    if STOPS.search(text) or KEEPS_CODE in text:
        return text
    script = with_test_status(text)
    if script == text:
        raise InputError(
            "eval_script continues after its tests, so that it never fails",
            where,
            "`set -e`, or one run of pytest",
        )
    return script
