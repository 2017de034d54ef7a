"""The guard works however a task starts its tests: gold patches are resolved, empty patches are not."""

import pytest

from swelab.grading.harness.grade import grade_evidence, run_patch
from swelab.grading.harness.spec import read_spec
from swelab.sandbox import Limits
from swelab.tasks.checkout import RepoStore, gold_patch

pytestmark = pytest.mark.real
STARTS = [
    "python -m pytest -rA",
    "pytest -rA",
    "py.test -rA",
    "pytest --no-header -rA --tb=no -p no:cacheprovider tests",
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
