"""Makes tasks of one file whose test is a shell command, to measure the overhead of grading."""

import io
import tarfile
from pathlib import Path

from swelab.records import Record
from swelab.records.task_records import Task

BUG = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
FIX = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 2\n+x = 1\n"
TEST = "{pause}if grep -q 'x = 1' a.py; then echo PASSED t; else echo FAILED t; exit 1; fi"


def archive(folder: Path) -> None:
    """Writes the repository's archive, tiny.tar."""
    with tarfile.open(folder / "tiny.tar", "w") as tar:
        entry = tarfile.TarInfo("a.py")
        entry.size = len(b"x = 1\n")
        tar.addfile(entry, io.BytesIO(b"x = 1\n"))


def rows(count: int, seconds: float = 0) -> list[Task]:
    """Makes tasks that differ only in their ids. seconds: duration of the test."""
    test = TEST.format(pause=f"sleep {seconds}; " if seconds else "")
    one = Task.of({"repo": "r", "patch": BUG, "problem_statement": "x", "FAIL_TO_PASS": ["t"]})
    one |= {"PASS_TO_PASS": [], "image_name": "x", "repo_recipe": "tiny", "test_cmd": test, "test_files": []}
    return [one | {"instance_id": f"tiny__{number:06d}"} for number in range(count)]


def predictions(tasks: list[Task]) -> dict[str, Record]:
    """Returns correct predictions, keyed by instance id."""
    names = [task.instance_id for task in tasks]
    return {name: {"instance_id": name, "model_patch": FIX, "model_name_or_path": "x"} for name in names}
