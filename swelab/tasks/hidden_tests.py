"""Hides a task's failing tests from the agent, in the checkout and in the problem statement.
As in SWE-smith, the files of these tests are absent from the agent's checkout. The grader has them."""

import re
from collections.abc import Iterable, Iterator

from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import Task

_ENDING = "; the test ends with"


def hide_tests(rows: Iterable[Task], drops: dict[str, int]) -> Iterator[Task]:
    """Yields each row with `hidden_tests` set. Removes failing tests and their output from the statement.

    Tests cannot be hidden if the row's patch changes their files (doctests). They cannot be hidden if their
    names do not include a file. Such a row is dropped, and counted in `drops` as `tests_in_sources`.
    """
    for row in rows:
        files = set(row.failing_files)
        named = all("::" in test for test in row.FAIL_TO_PASS)
        outside = row.repo_recipe and not (named and files <= {*row.test_files})
        if outside or files & {*touched_paths(row.patch)}:
            drops["tests_in_sources"] = drops.get("tests_in_sources", 0) + 1
            continue
        statement = without_tests(row.problem_statement, row.FAIL_TO_PASS)
        yield Task.of(row | {"problem_statement": statement, "hidden_tests": True})


def without_tests(statement: str, tests: Iterable[str]) -> str:
    """Returns a problem statement without the sentences that name tests, and without test output."""
    names = sorted({name for test in tests for name in _names(test)}, key=len, reverse=True)
    any_name = re.compile("|".join(rf"(?<![\w./]){re.escape(name)}(?![\w/])" for name in names) or "(?!)")
    paragraphs: list[str] = []
    is_output = False  # whether the next paragraph is the output of a test
    for paragraph in statement.split("\n\n"):
        if not is_output:
            short = paragraph.removesuffix(_ENDING)
            lines = [_without(line, any_name) for line in short.split("\n")]
            paragraphs.append("\n".join(line for line in lines if line.strip()))
        is_output = not is_output and paragraph.endswith(_ENDING)
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph and not _is_heading(paragraph))


def names_a_test(task: Task) -> bool:
    """Returns whether the statement names a test to repair, by the test's id or function."""
    for test in task.FAIL_TO_PASS:
        function = test.rpartition("::")[2].partition("[")[0].partition(" (")[0]
        names = (test, function) if "test" in function.lower() else (test,)
        if any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", task.problem_statement) for name in names):
            return True
    return False


def _names(test: str) -> tuple[str, ...]:
    """Returns a test's id, its file, and its function's name."""
    path, _, name = test.partition("::")
    function = name.rpartition("::")[2].partition("[")[0]
    return tuple(each for each in (test, path, function) if each)


def _without(line: str, names: re.Pattern[str]) -> str:
    """Removes the clauses that name a test from a line. Returns "" for a list item that names a test."""
    if not names.search(line):
        return line
    if line.lstrip().startswith(("- ", "* ")):
        return ""
    sentences = re.split(r"(?<=[.!?])\s", line)
    lines = []
    for sentence in sentences:
        clauses = [clause for clause in sentence.split(", ") if not names.search(clause)]
        if clauses:
            text = ", ".join(clauses)
            lines.append(text if text.endswith((".", "!", "?", ":")) else text + ".")
    return " ".join(lines)


def _is_heading(paragraph: str) -> bool:
    """Returns whether a paragraph is a list of tests from which all tests were removed.
    The heading remains, and perhaps an item with the number of further tests."""
    lines = paragraph.split("\n")
    return lines[0] == "These fail too:" and all(line.startswith("- and ") for line in lines[1:])
