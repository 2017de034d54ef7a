"""Tests to repair that are hidden from the agent: in its checkout, in the statement, in its patch."""

import pytest

from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.tasks.checkout import RepoStore
from swelab.tasks.forge.issue_text import issue_text
from swelab.tasks.hidden_tests import hide_tests, names_a_test, without_tests
from swelab.tasks.patch_application import git

TESTS = ["tests/test_core.py::TestAdd::test_add[1-2]", "tests/test_core.py::test_more"]


@pytest.mark.parametrize("bug", ["0" * 16, "00000001" * 2, "00000002" * 2])
def test_no_statement_of_ours_names_a_test_or_a_value(bug):
    said = issue_text("calc/core.py::add", [*TESTS, *(f"tests/x.py::test_{n}" for n in "abcde")],
                      "assert 1217 == 1218", ("x",), bug)  # fmt: skip
    assert "test_add" in said and "1218" in said and "These fail too" in said
    left = without_tests(said, [*TESTS, *(f"tests/x.py::test_{n}" for n in "abcde")])
    assert "test" not in left and "121" not in left and "more" not in left
    assert "calc/core.py" in left and "gives a wrong result" in left
    assert left.endswith("Seen in `calc.core.add`")


@pytest.mark.parametrize(
    ("test", "statement", "names"),
    [
        ("tests/test_core.py::test_add[1-2]", "`test_add` fails.", True),
        ("tests/test_core.py::test_add[1-2]", "tests/test_core.py::test_add[1-2] fails.", True),
        ("tests/test_core.py::test_add", "test_adding is slow, and tests/test_core.py is long.", False),
        ("test_add (calc.tests.Core)", "see test_add (calc.tests.Core)", True),
        ("tests/spec.js::adds", "It adds a number.", False),
    ],
)
def test_a_statement_that_names_a_test_is_known(task, test, statement, names):
    made = Task.of(task | {"FAIL_TO_PASS": [test], "problem_statement": statement})
    assert names_a_test(made) is names


def test_other_statements_lose_what_names_a_test_and_no_more():
    said = "Adding fails. Run test_more to see it.\n\nIt says 3, test_moreover says 4.\n- test_more\n- other"
    assert without_tests(said, TESTS) == "Adding fails.\n\nIt says 3, test_moreover says 4.\n- other"


def test_the_agent_gets_no_file_with_a_test_to_repair(task, repos_dir, tmp_path):
    drops = {}
    source = task | {"FAIL_TO_PASS": ["calc/core.py::calc.core.add"]}
    other = task | {"FAIL_TO_PASS": ["test_add"]}
    rows = list(hide_tests(map(Task.of, (task, source, other)), drops))
    assert [row.instance_id for row in rows] == [task.instance_id] and drops == {"tests_in_sources": 2}
    assert rows[0].hidden_tests and rows[0].FAIL_TO_PASS == task.FAIL_TO_PASS
    store = RepoStore(repos_dir, tmp_path / "trees")
    for name, for_agent, there in (("agent", True, False), ("grader", False, True)):
        store.checkout(rows[0], tmp_path / name, for_agent=for_agent)
        listed = git(tmp_path / name, "ls-tree", "-r", "--name-only", "HEAD").stdout.decode().split()
        assert ("tests/test_core.py" in listed) == there == (tmp_path / name / "tests/test_core.py").exists()
        assert "calc/core.py" in listed and "conftest.py" in listed
        objects = git(tmp_path / name, "grep", "-c", "def test_add", "HEAD").stdout
        assert bool(objects) == there
    store.checkout(task, tmp_path / "visible", for_agent=True)
    assert (tmp_path / "visible/tests/test_core.py").exists()


def test_a_test_outside_of_the_checkout_is_not_removed(task, repos_dir, tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    row = Task.of(task | {"hidden_tests": True, "FAIL_TO_PASS": ["../mine.py::t", f"{tmp_path}/mine.py::t"]})
    RepoStore(repos_dir, tmp_path / "trees").checkout(row, tmp_path / "tree", for_agent=True)
    assert (tmp_path / "mine.py").exists()
    with pytest.raises(InputError):
        RepoStore(tmp_path, tmp_path / "none").checkout(row, tmp_path / "other", for_agent=True)
