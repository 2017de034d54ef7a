"""What a patch's text says of which files, and patches that are refused at once."""

import json
import random
import subprocess

import pytest

from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch, touched_paths
from swelab.records.patches import outside_links
from swelab.tasks.patch_text import reversed_patch
from tests.at_hand import DATA, needs_rows

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
        ("diff --git a/x b/x\ncopy from /etc/passwd\ncopy to x\n", "leaves"),
        (
            "diff --git a/s b/s\nindex 1234567..89abcde 160000\n--- a/s\n+++ b/s\n@@ -1 +1 @@\n-a\n+b\n",
            "submodule",
        ),
        *(
            (new(f"sub/{name}/config"), "metadata")
            for name in (".Git", "GIT~1", ".git.", ".git ", ".git::$x", ".g\u200cit")
        ),
        (new(r"sub\.git\config"), "metadata"),
        (new("/x").replace("b//x", "b/./../x"), "leaves"),
        (new(".git/hooks/post-checkout"), "metadata"),
        (new("sub/.GIT/config"), "metadata"),
        ('--- a/x\n+++ "b/x\\ny"\n@@ -0,0 +1 @@\n+x\n', "control"),
        ("diff --git a/s b/s\nnew file mode 160000\n", "submodule"),
        (EDIT + "@@ -9 +9 @@\n-x\n+y\n" + new("../x"), "leaves"),
    ],
)
def test_patches_that_are_never_tried(patch, word):
    with pytest.raises(PatchRefused, match=word) as refusal:
        read_patch(patch)
    assert refusal.value.hostile


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
    assert read_patch(patch).changes


@pytest.mark.parametrize("odd", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line_of_a_patch(odd):
    """A line ends where git ends it, so a removed SQL comment is not a header."""
    head = "diff --git a/q.py b/q.py\n--- a/q.py\n+++ b/q.py\n@@ -1,3 +1,2 @@\n"
    patch = f'{head} G = "{odd}"\n--- ../schema/rows.sql\n select\n'
    assert touched_paths(patch) == ["q.py"]
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
    assert read_patch(patch).only(lambda change: change.path == "dir/n.py").text == new("dir/n.py")


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
    assert touched_paths('diff --git "' + '\\"' * 500_000) == []
    assert touched_paths('diff --git "a/\\"x" "b/y" "' + '\\"' * 50_000 + "\n" + EDIT.partition("\n")[2]) == [
        "x.py"
    ]


def test_a_number_of_lines_that_no_file_has_is_no_hunk():
    """Python cannot convert so many digits to a number."""
    patch = "--- a/x\n+++ b/x\n@@ -1," + "1" * 5000 + " +1 @@\n--- ../y\n"
    with pytest.raises(PatchRefused, match="changes no file"):
        read_patch(patch)


@pytest.mark.parametrize(
    "name", ["tests//test_x.py", "./tests/test_x.py", "tests/./test_x.py", "tests/test_x.py/"]
)
def test_a_name_has_one_form(name):
    assert touched_paths(f"diff --git a/{name} b/y\ncopy from {name}\ncopy to y\n") == [
        "tests/test_x.py",
        "y",
    ]
    assert touched_paths(f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b\n") == ["tests/test_x.py"]


HUNK = "@@ -1,3 +1,3 @@\n l1\n-l2\n+L2\n l3\n"
HEAD = "--- a/x.py\n+++ b/x.py\n"
PLAIN = HEAD + HUNK
GONE = "@@ -1 +0,0 @@\n-a\n"
MODES = "diff --git a/{0} b/{0}\nold mode 100644\nnew mode 100755\n"


@pytest.mark.parametrize(
    "patch, text",
    [
        (PLAIN, PLAIN),
        ("Prose.\n```diff\n" + PLAIN + "```\nProse.\n", PLAIN),
        (PLAIN.replace("a/x", "x").replace("b/x", "x"), PLAIN),
        (PLAIN.replace("a/x.py", "a/x.py.orig\t2024-01-01 10:00:00"), PLAIN),
        (PLAIN.replace("\n", "\r\n"), PLAIN),
        (PLAIN.removesuffix("\n"), PLAIN),
        (HEAD + "\n" + HUNK + "prose\n" + HUNK, HEAD + HUNK + HUNK),
        (HEAD + "@@ -1,3 +1,3 @@\n-l1\n+L1\n", HEAD + "@@ -1,3 +1,3 @@\n-l1\n+L1\n \n \n"),
        (HEAD + HUNK.replace(" l1", ""), HEAD + HUNK.replace(" l1", " ")),
        (MODES.format("a name with spaces"), MODES.format("a name with spaces")),
        (MODES.replace("a/{0} b/{0}", r'"a/caf\303\251" "b/caf\303\251"'), MODES.format("café")),
        (new("e").split("---")[0], new("e").split("---")[0]),
        (new("b c.py"), new("b c.py").replace("+++ b/b c.py", "+++ b/b c.py\t")),
        ("--- x.py\n+++ x.py\t1970-01-01 00:00:00 +0000\n" + GONE, "--- a/x.py\n+++ /dev/null\n" + GONE),
        ("diff --git a/b b/b\nindex 1234567..89abcde\nBinary files a/b and b/b differ\n" + PLAIN, PLAIN),
        (PLAIN.replace("@@\n", "@@ def f():\n"), PLAIN.replace("@@\n", "@@ def f():\n")),
    ],
)  # fmt: skip
def test_a_patch_is_written_in_one_form(patch, text):
    assert read_patch(patch).text == text
    assert read_patch(text).text == text


@pytest.mark.parametrize(
    "patch, word",
    [
        ("prose\n", "changes no file"),
        (HEAD, "changes no file"),
        (HUNK, "line 1 of the patch: a hunk without a file"),
        (HEAD + "@@ -1,9 +1,9 @@\n-l1\n+L1\n", "line 6 of the patch: a hunk with fewer lines"),
        (HEAD + "@@ -1 +1,9 @@\n-l1\n-l2\n+L1\n", "line 5 of the patch: a hunk with more lines"),
        ("diff --git a/x b/y\nnew mode 100755\n", "does not say which file"),
        ("diff --git a/x b/x\nnew mode 777\n", "the mode '777' of 'x'"),
        ("diff --git a/x b/x\nnew file mode 040000\n", "the mode '040000' of 'x'"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n--- a/z\n+++ b/y\n" + HUNK, "names are not those"),
        ("diff --git a/x b/x\nGIT binary patch\n", "line 3 of the patch: a binary part without content"),
        ("--- /dev/null\n+++ /dev/null\n" + HUNK, "two names of no file"),
        ("--- a/.\n+++ b/.\n" + HUNK, "names no file"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(patch, word):
    with pytest.raises(PatchRefused, match=word) as refusal:
        read_patch(patch)
    assert not refusal.value.hostile


def test_links_that_lead_out_of_the_repository():
    def link(path, target):
        return new(path).replace("100644", "120000").replace("+x\n", f"+{target}\n\\ No newline\n")

    out = {"/etc/passwd", "../x", "a/../../x", ".git/config", "sub/../.git"}
    for target in (*out, "x", "a/../x", "./x"):
        assert outside_links(read_patch(link("l", target)).changes) == ["l"] * (target in out)
    assert outside_links(read_patch(link("sub/l", "../x")).changes) == []


@needs_rows
def test_the_patches_of_published_rows_are_read_whole():
    """Each patch, and what is written of it, changes the same lines of the same files."""
    rows = [
        row
        for file in ("swebench_lite5.json", "swebench_dev_easy5.json")
        for row in json.loads((DATA / file).read_text())
    ]
    lines = (DATA / "swe_gym_subset20.jsonl").read_text().splitlines()
    rows += [json.loads(line)["metadata"]["instance"] for line in lines]
    texts = [row[name] for row in rows for name in ("patch", "test_patch") if row.get(name)]
    trajectories = [json.loads(path.read_text()) for path in (DATA / "sweagent_trajs").glob("*.traj")]
    texts += [each["info"]["submission"] for each in trajectories if each.get("info", {}).get("submission")]
    assert len(texts) > 40
    for text in (each.replace("\r\n", "\n") for each in texts):
        patch = read_patch(text)
        assert read_patch(text.replace("\n", "\r\n")) == patch
        assert [(each.path, each.lines) for each in read_patch(patch.text).changes] == [
            (each.path, each.lines) for each in patch.changes
        ]
        assert patch.paths == sorted(
            {line[6:].split("\t")[0] for line in text.split("\n") if line.startswith(("--- a/", "+++ b/"))}
        )
