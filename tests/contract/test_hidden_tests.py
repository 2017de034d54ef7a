"""A task with hidden tests, from the agent to the grader."""

import pytest

from swelab.grading.harness.grade import REFERENCE, grade
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


FROM_HISTORY = """

import glob, zlib


def in_history(word):
    for name in glob.glob("/testbed/.git/objects/*/*"):
        data = open(name, "rb").read()
        for place in range(len(data)):
            try:
                if word in zlib.decompressobj().decompress(data[place:]):
                    return True
            except zlib.error:
                pass
    return False


if not in_history(b"test_add("):
    del add
"""


@pytest.mark.parametrize("hidden", [True, False])
def test_code_finds_no_test_in_the_history(task, store, backend, tmp_path, hidden):
    """The code under test works only if it finds the text of the tests in git's objects."""
    row = Task.of(task | {"hidden_tests": hidden})
    tree = tmp_path / "tree"
    store.checkout(row, tree)
    git(tree, "apply", "-", data=gold_patch(store, row).encode())
    with (tree / "calc/core.py").open("a") as file:
        file.write(FROM_HISTORY)
    patch = git(tree, "diff", "--binary").stdout.decode()
    inverted = patch.replace("if not in_history", "if in_history")
    for checks in (REFERENCE, frozenset({"guard"})):
        assert grade(row, patch, store, backend, Limits(), checks).status == "unresolved"
        assert grade(row, inverted, store, backend, Limits(), checks).status == "resolved"
