"""The guard works however a task starts its tests: gold patches are resolved, empty patches are not."""

import pytest

from swelab.grading.harness.grade import grade_evidence, run_patch
from swelab.grading.harness.spec import read_spec
from swelab.records import InputError
from swelab.sandbox import Limits
from swelab.tasks.checkout import RepoStore, gold_patch

pytestmark = pytest.mark.real
STARTS = [
    "python -m pytest -rA",
    "pytest -rA",
    "py.test -rA",
    "pytest --no-header -rA --tb=no -p no:cacheprovider tests",
    "PYTHONPATH=. pytest -rA",
    "PYTHONPATH= python -m pytest -rA",
    "env PYTHONPATH=lib:$PWD pytest -rA",
    'export PYTHONPATH="$PWD/lib:$PYTHONPATH"; pytest -rA',
    "cd tests && PYTHONPATH=.. pytest -rA --rootdir=..",
    "PYTHONPATH=.; export PYTHONPATH; bash -c 'PYTHONPATH=$PYTHONPATH:lib pytest -rA'",
]


def told(task, patch, store, backend):
    run = run_patch(task, patch, store, backend, Limits(), allow_empty=True)
    grade = grade_evidence(read_spec(task), patch, run)
    return grade["status"], grade["reason"]


@pytest.mark.parametrize("start", STARTS)
def test_gold_is_resolved_and_the_bug_is_not(task, repos_dir, tmp_path, backend, start):
    task, store = task | {"test_cmd": start}, RepoStore(repos_dir, tmp_path)
    assert told(task, gold_patch(store, task), store, backend) == ("resolved", "")
    why = "1 tests do not pass, such as tests/test_core.py::test_add"
    assert told(task, "", store, backend) == ("unresolved", why)


SHADOW = """--- /dev/null
+++ b/{path}
@@ -0,0 +1,2 @@
+import os
+print("shadowed by", os.environ.get("PYTHONPATH"))
"""


@pytest.mark.parametrize("module", ["encodings/__init__", "json", "pluggy", "hashlib"])
def test_a_patch_adds_no_module_of_python_to_a_folder_on_the_path(task, repos_dir, tmp_path, backend, module):
    """Python itself imports such a module before any other code, the guard included."""
    task, store = task | {"test_cmd": "PYTHONPATH=calc python -m pytest -rA"}, RepoStore(repos_dir, tmp_path)
    gold = gold_patch(store, task)
    run = run_patch(
        task, gold + SHADOW.format(path=f"calc/{module}.py"), store, backend, Limits(), allow_empty=True
    )
    assert grade_evidence(read_spec(task), gold, run)["status"] == "resolved", run["log"]
    assert "shadowed by" not in run["log"]


def test_a_path_that_only_the_shell_knows_is_refused(task, repos_dir, tmp_path, backend):
    task, store = task | {"test_cmd": "PYTHONPATH=$MINE/lib pytest -rA"}, RepoStore(repos_dir, tmp_path)
    with pytest.raises(InputError, match=r"sets PYTHONPATH, with `PYTHONPATH=\$MINE/lib`.*PYTHONPATH=src"):
        told(task, "", store, backend)
