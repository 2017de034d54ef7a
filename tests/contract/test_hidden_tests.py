"""A task with hidden tests, from the agent to the grader."""

import pytest

from swelab.grading.harness.grade import grade
from swelab.records.task_records import Task
from swelab.sandbox import Limits
from swelab.tasks.checkout import gold_patch
from swelab.tasks.patch_application import git

pytestmark = pytest.mark.real


def test_a_file_that_the_agent_wrote_in_the_place_of_a_hidden_one_changes_nothing(
    task, store, backend, tmp_path
):
    """The agent writes a test at a hidden test's path, so its patch creates a file that already exists."""
    row = Task.of(task | {"hidden_tests": True})
    tree = tmp_path / "tree"
    store.checkout(row, tree, for_agent=True)
    (tree / "tests").mkdir(exist_ok=True)
    (tree / "tests/test_core.py").write_text("def test_add():\n    assert False\n")
    git(tree, "add", "-A")
    own = git(tree, "diff", "--cached").stdout.decode()
    assert "new file mode" in own
    gold = gold_patch(store, row)
    assert grade(row, gold + own, store, backend, Limits()).status == "resolved"
    assert grade(task, gold + own, store, backend, Limits()).status == "apply_failed"
    assert grade(row, own, store, backend, Limits()).status == "empty_patch"
