"""Checks whether the reverse of a gold patch applies, which is cheaper than running its tests."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import Task
from swelab.tasks.checkout import RepoStore
from swelab.tasks.patch_application import apply_patch, encode_patch


def applies_again(task: Task, patch: str, store: RepoStore) -> bool:
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
        try:
            if apply_patch(tree, task.patch).returncode:
                return True  # the grader will report why the task's patch does not apply
            if apply_patch(tree, patch, "--check").returncode == 0:
                return True
        except PatchRefused:
            return True  # the grader will report this too
        dry = ("patch", "--batch", "--forward", "--dry-run", "--fuzz=5", "-p1", "--directory", str(tree))
        return subprocess.run(dry, input=encode_patch(patch), capture_output=True).returncode == 0
