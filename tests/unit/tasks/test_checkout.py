"""Checkouts: information besides their text, and tasks whose files are in their rows."""

import os

import pytest

from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.tasks.checkout import RepoStore
from swelab.tasks.patch_application import git
from swelab.tasks.task_rows import slim


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


def task(name="a", path="pkg/a.py", text="x = 1\n", **more):
    files = [{"path": path, "content": text}, {"path": "test.py", "content": "def test_a(): pass\n"}]
    row = {"instance_id": name, "repo": "r", "patch": "", "FAIL_TO_PASS": ["test.py::test_a"], "files": files}
    return Task.of(row | more)


def test_a_checkout_of_files(tmp_path):
    store = RepoStore(tmp_path, tmp_path / "trees")
    store.checkout(task(), tmp_path / "one")
    store.checkout(task("b"), tmp_path / "two")
    heads = {git(tmp_path / name, "rev-parse", "HEAD").stdout for name in ("one", "two")}
    assert len(heads) == 1 and (tmp_path / "one/pkg/a.py").read_text() == "x = 1\n"
    assert store.digest(task()) == store.digest(task("b")) != store.digest(task(text="x = 2\n"))
    assert store.clean_tree(task()) == store.clean_tree(task("b"))
    store.checkout(task(hidden_tests=True), tmp_path / "hidden", for_agent=True)
    assert not (tmp_path / "hidden/test.py").exists() and (tmp_path / "hidden/pkg/a.py").exists()


@pytest.mark.parametrize("path", ["../a.py", "/tmp/a.py", "a/../../b.py", ".git/config"])
def test_files_stay_in_it(path, tmp_path):
    with pytest.raises(InputError, match="leaves the checkout; expected a path in it"):
        RepoStore(tmp_path, tmp_path / "trees").checkout(task(path=path), tmp_path / "one")


def test_they_run_in_no_image():
    assert not task().in_image and not slim(task()).in_image
    assert slim(task()).files[0].content == "" and Task.of({"instance_id": "x"}).in_image
