"""The paths that a patch's text touches, and patches that are refused at once."""

import random
import subprocess

import pytest

from swelab.grading.harness.patch_paths import only, refusal, touched_paths
from swelab.tasks.patch_text import file_changes, reversed_patch

EDIT = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"


def new(path):
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
    return f"{head}--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    "patch, word",
    [
        (new("../x"), "leaves"),
        (new("a/../../x"), "leaves"),
        ("--- /dev/null\n+++ /etc/x\n@@ -0,0 +1 @@\n+x\n", "leaves"),
        ('diff --git "a/..\\057x" "b/..\\057x"\n', "leaves"),
        ("--- a/x\n+++ b/x/../../y\n@@ -0,0 +1 @@\n+x\n", "leaves"),
        ("diff --git a/x b/x\nrename from x\nrename to ../y\n", "leaves"),
        ("Index: ../x\n", "leaves"),
        (new(".git/hooks/post-checkout"), "metadata"),
        (new("sub/.GIT/config"), "metadata"),
        ('--- a/x\n+++ "b/x\\ny"\n@@ -0,0 +1 @@\n+x\n', "control"),
        ("diff --git a/s b/s\nnew file mode 160000\n", "submodule"),
        (EDIT + "@@ -9 +9 @@\n-x\n+y\n" + new("../x"), "leaves"),
    ],
)
def test_patches_that_are_never_tried(patch, word):
    assert word in refusal(patch)


@pytest.mark.parametrize(
    "patch",
    [
        EDIT,
        new("a/b c.py"),
        "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        # removed and added lines that look like headers
        "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n--- ../../x\n+++ /etc/passwd\n same\n",
        "--- a/..hidden/x\n+++ b/..hidden/x\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_honest_patches_are_tried(patch):
    assert refusal(patch) == ""


@pytest.mark.parametrize("odd", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line_of_a_patch(odd):
    """A line ends where git ends it, so a removed SQL comment is not a header."""
    head = "diff --git a/q.py b/q.py\n--- a/q.py\n+++ b/q.py\n@@ -1,3 +1,2 @@\n"
    patch = f'{head} G = "{odd}"\n--- ../schema/rows.sql\n select\n'
    assert refusal(patch) == "" and touched_paths(patch) == ["q.py"]
    back = reversed_patch(patch)
    assert f' G = "{odd}"\n+-- ../schema/rows.sql\n' in back and reversed_patch(back) == patch


def test_headers_of_a_patch_with_carriage_returns_name_the_same_files():
    assert touched_paths(EDIT.replace("\n", "\r\n")) == ["x.py"]


def test_touched_paths():
    patch = EDIT + new("dir/n.py") + "diff --git a/o.py b/p.py\nrename from o.py\nrename to p.py\n"
    assert touched_paths(patch) == ["dir/n.py", "o.py", "p.py", "x.py"]
    assert touched_paths('--- "a/caf\\303\\251.py"\n+++ "b/caf\\303\\251.py"\n@@ -1 +1 @@\n-a\n+b\n') == [
        "café.py"
    ]
    assert only(patch, {"dir/n.py"}) == new("dir/n.py")


def test_a_reversed_patch_takes_back_what_the_patch_did(tmp_path):
    draw = random.Random(5)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x")

    def run(*words, data=None):
        return subprocess.run(
            [*git, *words], cwd=tmp_path, input=data, capture_output=True, check=True
        ).stdout

    run("init", "-q")
    for number in range(12):
        names = [f"f{n}.txt" for n in range(3)]
        for name in names:
            (tmp_path / name).write_text("".join(f"{draw.randrange(9)}\n" for _ in range(30)))
        (tmp_path / "bare").write_text("no newline" if number % 2 else "newline\n")
        run("add", "-A")
        run("commit", "-qm", "x", "--allow-empty")
        for name in names[: draw.randrange(1, 3)]:
            lines = (tmp_path / name).read_text().splitlines(keepends=True)
            lines[draw.randrange(len(lines)) :][:2] = []
            lines.insert(draw.randrange(len(lines)), "--- new\n+++ lines\n")
            del lines[draw.randrange(len(lines))]
            (tmp_path / name).write_text("".join(lines))
        (tmp_path / "bare").write_text("newline\n" if number % 2 else "no newline")
        (tmp_path / f"new{number}").write_text("x\n")
        (tmp_path / names[2]).unlink()
        run("add", "-A")
        patch = run("diff", "--cached", "HEAD").decode()
        run("apply", "--index", "-", data=reversed_patch(patch).encode())
        assert run("status", "--porcelain") == b""
    with pytest.raises(ValueError):
        reversed_patch("GIT binary patch\n")


def test_a_long_header_is_read_once():
    """A reader that starts again at each quotation mark needs hours for it."""
    assert refusal('diff --git "' + '\\"' * 500_000) == ""
    assert touched_paths('diff --git "a/\\"x" "b/y" "' + '\\"' * 50_000) == ['"x', "y"]


def test_a_number_of_lines_that_no_file_has_is_no_hunk():
    """Python cannot convert so many digits to a number."""
    patch = "--- a/x\n+++ b/x\n@@ -1," + "1" * 5000 + " +1 @@\n--- ../y\n"
    assert "leaves" in refusal(patch)
    assert list(file_changes(patch))
