"""Checks whether the reverse of a gold patch applies, which is cheaper than running its tests."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from swelab.grading.harness.patch_paths import touched_paths
from swelab.records.task_records import Task
from swelab.tasks.checkout import RepoStore, encode_patch, git


def applies_again(task: Task, patch: bytes, store: RepoStore) -> bool:
    """Returns whether `patch` applies to the code with the bug, by `git apply` or `patch`, as for a
    prediction.
    """
    clean = store.clean_tree(task)
    with tempfile.TemporaryDirectory(dir=store.cache_dir) as scratch:
        tree = Path(scratch)
        for name in touched_paths(task.patch):
            if (clean / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(clean / name, tree / name)
        if git(tree, "apply", "-", data=encode_patch(task.patch)).returncode:
            return True  # the grader will report why the task's patch does not apply
        if git(tree, "apply", "--check", "-", data=patch).returncode == 0:
            return True
        dry = ("patch", "--batch", "--forward", "--dry-run", "--fuzz=5", "-p1", "--directory", str(tree))
        return subprocess.run(dry, input=patch, capture_output=True).returncode == 0
