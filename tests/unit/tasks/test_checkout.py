"""Information in a checkout besides its text."""

import os

from swelab.tasks.checkout import RepoStore
from swelab.tasks.patch_application import git


def test_no_file_of_a_checkout_is_older_or_newer_than_another(task, repos_dir, tmp_path):
    """Otherwise the newest file would be the one with the bug."""
    store = RepoStore(repos_dir, tmp_path / "trees")
    store.checkout(task, tmp_path / "tree")
    found = [
        os.stat(os.path.join(folder, name), follow_symlinks=False)
        for folder, folders, files in os.walk(tmp_path / "tree")
        for name in (".", *folders, *files)
    ]
    assert len(found) > 10 and len({each.st_mtime_ns for each in found}) == 1
    assert git(tmp_path / "tree", "status", "--porcelain").stdout == b""
    (tmp_path / "tree/new.py").write_text("x = 1\n")
    assert git(tmp_path / "tree", "status", "--porcelain").stdout == b"?? new.py\n"
