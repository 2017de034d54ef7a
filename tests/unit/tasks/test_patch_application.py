"""A patch of a task row changes files of its tree, and reads nothing else of this machine."""

import pytest

from swelab.records import InputError
from swelab.records.patch_names import PatchRefused
from swelab.records.task_records import Task
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.patch_application import apply_patch

COPY = "diff --git a/x b/calc/notes\nsimilarity index 100%\n{0} from {1}\n{0} to calc/notes\n"
LINK = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+{}\n"


@pytest.fixture
def host_file(tmp_path):
    file = tmp_path / "host file"
    file.write_text("of the host\n")
    return file


@pytest.mark.parametrize("word", ["copy", "rename"])
def test_a_file_of_the_host_is_no_source(host_file, tmp_path, word):
    tree = tmp_path / "tree"
    (tree / "calc").mkdir(parents=True)
    (tree / "linked").symlink_to(host_file)
    (tree / "around").symlink_to(tmp_path)
    for name in (host_file, "../host file", f"a/../..{host_file}"):
        with pytest.raises(PatchRefused, match="leaves the repository") as refusal:
            apply_patch(tree, COPY.format(word, name))
        assert refusal.value.hostile
    for name in ("linked", "around/host file"):
        with pytest.raises(PatchRefused, match="which is not there"):
            apply_patch(tree, COPY.format(word, name))
    assert not (tree / "calc/notes").exists() and host_file.exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", ".git/config"])
def test_a_link_out_of_the_tree_is_refused(tmp_path, target):
    with pytest.raises(PatchRefused, match="the link 'l' leads out"):
        apply_patch(tmp_path, LINK.format(target))


def test_a_row_that_names_a_file_of_the_host_is_refused(host_file, task, repos_dir, tmp_path):
    store = RepoStore(repos_dir, tmp_path / "trees")
    row = Task.of(task | {"patch": task.patch + COPY.format("copy", host_file)})
    for act in (lambda: store.checkout(row, tmp_path / "checkout"), lambda: gold_patch(store, row)):
        with pytest.raises(InputError, match="the bug's patch is refused: the patch leaves the repository"):
            act()
    assert not (tmp_path / "checkout/calc/notes").exists()


def test_moves_and_binary_changes_are_applied_and_taken_back(tmp_path):
    (tmp_path / "old").write_text("one\ntwo\n")
    patch = (
        "diff --git a/old b/sub/new\nsimilarity index 50%\nrename from old\nrename to sub/new\n"
        "--- a/old\n+++ b/sub/new\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        "diff --git a/data b/data\nnew file mode 100755\nindex 0000000..1111111\nGIT binary patch\n"
        "literal 3\nKc-l*3NCE%>hycU@\n\nliteral 0\nHcmV?d00001\n\n"
    )
    assert apply_patch(tmp_path, patch).returncode == 0
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert files["new"] == b"one\n2\n" and len(files["data"]) == 3 and "old" not in files
    assert apply_patch(tmp_path, patch, reverse=True).returncode == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["old"]
    assert (tmp_path / "old").read_text() == "one\ntwo\n"
