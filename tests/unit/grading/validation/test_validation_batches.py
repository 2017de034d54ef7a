"""One test command for several tasks of a repository."""

import pytest

from swelab.grading.validation.validation_batches import merge_commands


@pytest.mark.parametrize(
    "first, second, merged",
    [
        ("pytest -q a.py", "pytest -q a.py", "pytest -q a.py"),
        ("pytest -q a.py", "pytest -q b.py", "pytest -q a.py b.py"),
        ("pytest -q a.py b.py", "pytest -q b.py 'c d.py'", "pytest -q a.py b.py 'c d.py'"),
        ("cd a && pytest t/a.py", "cd a && pytest t/b.py", "cd a && pytest t/a.py t/b.py"),
        ("export X=$HOME; pytest a.py", "export X=$HOME; pytest b.py", "export X=$HOME; pytest a.py b.py"),
    ],
)
def test_merged_commands_stay_as_they_are_written(first, second, merged):
    assert merge_commands([first, second]) == merged
