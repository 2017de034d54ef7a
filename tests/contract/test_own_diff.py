"""swelab compares an agent's files with the base commit. What the agent does to git has no effect."""

import os
import subprocess

import pytest

from swelab.grading.harness.grade import grade
from swelab.records.patch_reader import read_patch
from swelab.records.task_records import Task
from swelab.sandbox import Limits
from swelab.sandbox.working_copy import diff, plain_files
from swelab.tasks.checkout import gold_patch

pytestmark = pytest.mark.real
FORGED_BASE = r"""
B=$(git rev-parse HEAD); Z=$(git hash-object -w words)
python3 - $Z <<'X' | git hash-object -t tree -w --stdin --literally >/tmp/tree
import sys
sys.stdout.buffer.write(b"100644 /test_core.py\0" + bytes.fromhex(sys.argv[1]))
X
(git ls-tree $B | grep -v "	tests$"; printf '040000 tree %s\ttests\n' $(cat /tmp/tree)) >/tmp/list
git replace $B $(git cat-file commit $B | sed "s/^tree .*/tree $(git mktree --missing </tmp/list)/" |
    git hash-object -t commit -w --stdin --literally)
"""
HONEST = r"""
mkdir -p .git/info; printf 'x = 1\n' >>calc/core.py; : >empty
printf '#!/bin/sh\n' >run.sh; chmod +x run.sh; ln -s run.sh link
printf 'a\0b' >binary; printf 'caf\351\n' >latin; printf x >"a name with spaces é"
printf 'no end' >no_end; mkdir -p build keep; : >build/out; : >keep/out; : >excluded
printf 'build\n*.log\n' >.gitignore; : >x.log; echo excluded >>.git/info/exclude
git mv README.md moved.md; git rm -q --cached tests/test_core.py
"""


@pytest.fixture
def box(task, store, backend, tmp_path):
    tree = tmp_path / "tree"
    store.checkout(task, tree)
    (tree / "words").write_text("some words\n")
    (tree / "README.md").write_text("a readme\n" * 20)
    for words in (["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "more"]):
        subprocess.run(["git", *words], cwd=tree, check=True)
    with backend.start(tree, limits=Limits()) as sandbox:
        yield sandbox


def head(box):
    return box.exec("git rev-parse HEAD").output.decode().strip()


def test_the_diff_is_that_of_git(box):
    """The same files belong to the patch as with the checkout's own git."""
    base = head(box)
    assert box.exec(HONEST).returncode == 0
    patch = diff(box, base)
    assert box.exec("git status --porcelain | wc -l").output.strip() != b"0"
    own = box.exec(f"git add -A && git diff --cached --binary --no-renames {base}").output
    assert patch.encode("utf-8", "surrogateescape") == own
    paths = read_patch(patch).paths
    assert {"README.md", "moved.md", "run.sh", "a name with spaces é", ".gitignore", "link"} <= {*paths}
    assert not {"build/out", "x.log", "excluded", "tests/test_core.py"} & {*paths}


@pytest.mark.parametrize(
    "act",
    [
        "git config diff.renames copies; git config diff.noprefix true; git config core.quotePath false",
        "git config core.bare true; git config core.worktree /tmp; git config diff.orderFile /tmp/none",
        "git config core.autocrlf true; git config core.fileMode false; git config diff.context 0",
        "git config diff.x.textconv 'tr a-z A-Z'; echo '*.py diff=x' >>.git/info/attributes",
        "git config filter.x.clean 'tr a-z A-Z'; echo '*.py filter=x' >>.git/info/attributes",
        "echo '*.py -diff' >>.git/info/attributes",
        "git update-index --assume-unchanged calc/core.py",
        "git update-index --skip-worktree calc/core.py",
        "printf '#!/bin/sh\\nexit 1\\n' >.git/hooks/post-index-change; chmod +x .git/hooks/*",
        "rm .git/HEAD .git/index .git/config",
        "git -c user.name=x -c user.email=x@x commit -qam 'own commit'",
        FORGED_BASE + "git config diff.renames copies",
    ],
)
def test_the_agent_s_git_has_no_say(box, act):
    base = head(box)
    box.exec(
        "mkdir -p .git/info .git/hooks; printf 'x = 1\\n' >>calc/core.py; git mv README.md moved.md"
    ).check()
    plain = diff(box, base)
    assert read_patch(plain).paths == ["README.md", "calc/core.py", "moved.md"]
    done = box.exec(act)
    assert done.returncode == 0, done.output
    assert diff(box, base) == plain


def test_an_agent_s_attributes_hide_no_text(box):
    base = head(box)
    box.exec("echo '*.py -diff' >.gitattributes; printf 'x = 1\\n' >>calc/core.py").check()
    assert "\n+x = 1\n" in diff(box, base)


def test_a_forged_base_brings_no_hidden_test(task, store, backend, tmp_path):
    row = Task.of(task | {"hidden_tests": True})
    tree = tmp_path / "agent"
    store.checkout(row, tree, for_agent=True)
    with backend.start(tree, limits=Limits()) as sandbox:
        base = head(sandbox)
        done = sandbox.exec(f"test ! -e tests/test_core.py; echo some words >words\n{FORGED_BASE}")
        assert done.returncode == 0, done.output
        sandbox.exec("git config diff.renames copies").check()
        patch = diff(sandbox, base)
    assert read_patch(patch).paths == ["words"] and "+some words\n" in patch
    copied = "diff --git a/q b/words\nsimilarity index 100%\ncopy from {}\ncopy to words\n"
    gold = gold_patch(store, row)
    assert grade(row, gold + patch, store, backend, Limits()).status == "resolved"
    for name in ("tests/test_core.py", "tests//test_core.py", "./tests/test_core.py", "tests/./test_core.py"):
        for each in (row, task):
            end = grade(each, gold + copied.format(name), store, backend, Limits())
            assert end.status == "apply_failed" and "'tests/test_core.py', a file by which" in end.reason


def test_plain_files_are_read_and_links_are_not(box):
    box.exec(
        "mkdir sub; ln -s ../words sub/link; ln -s sub other; echo x >sub/file; chmod +x sub/file"
    ).check()
    files = plain_files(box, ["words", "sub/file", "sub/link", "other/file", "absent", "sub"])
    assert files == {"words": (b"some words\n", False), "sub/file": (b"x\n", True)}
    assert os.fsencode("words") not in box.exec("ls /tmp").output


MOVE = "diff --git a/{0} b/{1}\nsimilarity index 100%\nrename from {0}\nrename to {1}\n"


def test_honest_moves_are_resolved(task, store, backend):
    """A patch may move an ordinary file, or a test file to another place of tests."""
    fix = gold_patch(store, task)
    moved = (MOVE.format("calc/core.py", "calc/kernel.py") + fix[fix.index("--- ") :]).replace(
        "+++ b/calc/core.py", "+++ b/calc/kernel.py"
    )
    link = "--- /dev/null\n+++ b/calc/core.py\n@@ -0,0 +1 @@\n+from calc.kernel import *\n"
    for patch in (moved + link, fix + MOVE.format("tests/test_core.py", "tests/test_other.py")):
        end = grade(task, patch, store, backend, Limits(), frozenset({"guard"}))
        assert end.status == "resolved", (end.reason, patch)
    alone = grade(task, moved, store, backend, Limits(), frozenset({"guard"}))
    assert alone.status == "unresolved", "the old place is empty"
