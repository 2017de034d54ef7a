"""Patches that move, copy or hold whole files, applied by git after their contents were written out."""

import os
import random
import subprocess

import pytest

from swelab.records.patch_contents import FARTHEST, resolve
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch

COPY = "diff --git a/{0} b/{1}\nsimilarity index 100%\ncopy from {0}\ncopy to {1}\n"


def run(tree, *words, data=None):
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "core.fsync=none")
    return subprocess.run([*git, *words], cwd=tree, input=data, capture_output=True, check=True).stdout


def reading(tree):
    return lambda names: {
        name: ((tree / name).read_bytes(), os.access(tree / name, os.X_OK))
        for name in names
        if (tree / name).is_file()
    }


def files(tree):
    return {
        path.relative_to(tree).as_posix(): (path.read_bytes(), os.access(path, os.X_OK))
        for path in tree.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def change(tree, draw, number):
    """Moves, copies, edits, adds and removes files of a folder."""
    names = [f"f{n}" for n in range(4)]
    for name in draw.sample(names, 2):
        lines = (tree / name).read_text().split("\n")
        lines[draw.randrange(len(lines))] = "changed"
        (tree / name).write_text("\n".join(lines))
    (tree / "f0").rename(tree / "sub dir" / "café")
    (tree / "f1").rename(tree / "f0")  # so one file takes another one's place
    (tree / "copy of f2").write_bytes((tree / "f2").read_bytes())
    binary = bytearray((tree / "binary").read_bytes())
    binary[draw.randrange(len(binary))] ^= 1
    (tree / "binary").write_bytes(binary + b"\0end" * (number % 2))
    (tree / "other binary").rename(tree / 'moved "binary"')
    (tree / f"new{number}").write_text("no newline" if number % 2 else "")
    (tree / "script").chmod(0o755 if number % 2 else 0o644)


@pytest.mark.parametrize("number", range(6))
def test_git_applies_what_it_wrote_itself_without_renames_and_hashes(tmp_path, number):
    draw = random.Random(number)
    run(tmp_path, "init", "-q")
    (tmp_path / "sub dir").mkdir()
    for n in range(4):
        end = "\n" if n % 2 else ""
        (tmp_path / f"f{n}").write_text("\n".join(str(draw.randrange(99)) for _ in range(60)) + end)
    for name in ("binary", "other binary"):
        (tmp_path / name).write_bytes(b"\0" + draw.randbytes(4000))
    (tmp_path / "script").write_text("x\n")
    run(tmp_path, "add", "-A")
    run(tmp_path, "commit", "-qm", "base")
    change(tmp_path, draw, number)
    changed = files(tmp_path)
    run(tmp_path, "add", "-A")
    text = run(tmp_path, "diff", "--cached", "--binary", "-M", "-C", "-C").decode()
    assert "\nrename from " in text and "\ncopy from " in text and "\ndelta " in text
    run(tmp_path, "reset", "-q", "--hard")
    patch = resolve(read_patch(text), reading(tmp_path))
    assert not {"rename from", "copy from", "delta"} & {
        line.rpartition(" ")[0] for line in patch.text.split("\n")
    }
    run(tmp_path, "apply", "-", data=patch.text.encode())
    assert files(tmp_path) == changed


def test_a_hash_brings_no_content(tmp_path):
    """Git takes the content of a binary change from its object store, if the patch names its hash."""
    run(tmp_path, "init", "-q")
    (tmp_path / "secret").write_text("secret\n")
    run(tmp_path, "add", "-A")
    secret = run(tmp_path, "hash-object", "secret").decode().strip()
    text = f"diff --git a/x b/x\nnew file mode 100644\nindex {'0' * 40}..{secret}\nGIT binary patch\n"
    text += "literal 0\nHcmV?d00001\n\n"
    run(tmp_path, "apply", "-", data=text.encode())
    assert (tmp_path / "x").read_text() == "secret\n", "git does so"
    (tmp_path / "x").unlink()
    run(tmp_path, "apply", "-", data=resolve(read_patch(text), reading(tmp_path)).text.encode())
    assert (tmp_path / "x").read_bytes() == b""


def test_a_source_that_may_not_be_read_is_refused():
    with pytest.raises(PatchRefused, match="needs the file 'tests/x', which is not there"):
        resolve(read_patch(COPY.format("tests/x", "y")), lambda names: {})


def test_a_hunk_of_a_moved_file_fits_at_the_nearest_place():
    lines = [b"%d\n" % n for n in range(3 * FARTHEST)]
    move = "diff --git a/x b/y\nrename from x\nrename to y\n--- a/x\n+++ b/y\n@@ -{0} +{0} @@\n-{1}\n+new\n"

    def moved(number, line):
        patch = read_patch(move.format(number, line))
        return resolve(patch, lambda names: {"x": (b"".join(lines), False)}).text

    assert "\n+99\n+new\n+101\n" in moved(90, 100)
    with pytest.raises(PatchRefused, match="no lines as in its hunk"):
        moved(90, FARTHEST + 200)


@pytest.mark.parametrize(
    "part, words",
    [
        ("literal 5\nHcmV?d00001\n", "not the size"),
        ("literal 5\n!!!!\n", "no length"),
        ("literal 5\nHabcdefghij\n", "damaged"),
        ("delta 0\nHcmV?d00001\n", "ends early"),
    ],
)
def test_damaged_binary_parts_are_refused(part, words):
    text = f"diff --git a/x b/x\nnew file mode 100644\nGIT binary patch\n{part}\n"
    with pytest.raises(PatchRefused, match=words):
        resolve(read_patch(text), lambda names: {})


def test_a_new_file_in_the_place_of_a_moved_one_starts_from_nothing():
    text = "diff --git a/x b/y\nrename from x\nrename to y\ndiff --git a/x b/x\nnew file mode 100644\n"
    patch = read_patch(text + "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+new\n")
    text = resolve(patch, lambda names: {"x": (b"old\n", True)}).text
    assert "\n-old\n+new\n" in text and "\nnew file mode 100755\n" in text and "\n+old\n" in text
