"""Repositories that contain later commits in every way that git has, scrubbed in real sandboxes."""

import os

import pytest

from swelab.records.task_records import Task
from swelab.sandbox import Limits
from swelab.tasks.image_history import HistoryRefused, prepare
from tests.conftest import run_program

pytestmark = pytest.mark.real
CLEAN = "def add(a, b):\n    return a + b\n"
BUGGY = "def add(a, b):\n    return a - b\n"
BUG = (
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n"
    " def add(a, b):\n-    return a + b\n+    return a - b\n"
)
NAME = "swelab__calc.0000.func_pm__abcd"
OF_ONE_AGE = "git ls-files -z | xargs -0 stat -c %y | sort -u | wc -l"
IDENTITY = {
    f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
}


def git(tree, *arguments, env=None, check=True):
    done = run_program(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=tree,
        env={**IDENTITY, **QUIET, **(env or {})},
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(tree, message="m", env=None, **contents):
    for name, text in contents.items():
        path = tree / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "--allow-empty", "-m", message, env=env)
    return git(tree, "rev-parse", "HEAD")


def fix_task(base):
    return Task.of(
        {
            "instance_id": "a__b-1",
            "patch": BUG,
            "test_patch": "x",
            "base_commit": base,
            "FAIL_TO_PASS": ["t.py::t"],
            "image_name": "i",
        }
    )


def bug_task():
    return Task.of(
        {"instance_id": NAME, "patch": BUG, "FAIL_TO_PASS": ["test_calc.py::test_add"], "image_name": "i"}
    )


@pytest.fixture
def tree(tmp_path):
    """A repository whose HEAD is the base commit.

    Later commits are in every place that git has for commits.
    """
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "-q", "-b", "main")
    commit(tree, calc=CLEAN)
    base = commit(tree, calc=BUGGY, test_calc="def test_add(): pass\n")
    plant(tree, tmp_path, base)
    assert git(tree, "rev-parse", "HEAD") == base
    assert git(tree, "status", "--porcelain", env={"GIT_NO_REPLACE_OBJECTS": "1"}) == ""
    return tree


def plant(tree, tmp_path, base):
    def secret(number):
        return commit(tree, f"secret {number}", calc=f"# secret {number}\n{CLEAN}")

    git(tree, "checkout", "-q", "-b", "future")
    secret(1)
    git(tree, "tag", "-a", "v9", "-m", "secret tag")
    git(tree, "notes", "add", "-m", "secret note", base)
    git(tree, "clone", "-q", "--bare", ".", str(tmp_path / "origin.git"))
    git(tree, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(tree, "fetch", "-q", "origin")
    git(tree, "checkout", "-q", "--detach")
    secret(2)  # only in the reflog
    git(tree, "checkout", "-q", "main")
    (tree / "calc.py").write_text("# secret 3\n")
    git(tree, "stash", "-q")
    git(tree, "replace", base, "future")
    git(tree, "worktree", "add", "-q", str(tmp_path / "elsewhere"), "future")
    git(tree, "update-ref", "ORIG_HEAD", "future", check=False)
    (tree / ".git/MERGE_HEAD.secret").write_text("secret")
    (tree / ".git/hooks/post-checkout").write_text("#!/bin/sh\ntouch /tmp/hooked\n")
    (tree / ".git/hooks/post-checkout").chmod(0o755)
    git(tree, "gc", "-q")
    (next((tree / ".git/objects/pack").glob("*.pack")).with_suffix(".keep")).write_text("")
    git(tree, "hash-object", "-w", "--stdin", check=False)


@pytest.fixture
def scrubbed(backend):
    """Prepares a task in a sandbox with a tree.

    Returns (base, say); `say` returns the output of a command.
    """
    opened = []

    def act(tree, task):
        sandbox = backend.start(tree, limits=Limits())
        opened.append(sandbox)
        base = prepare(sandbox, task)
        return base, lambda command: sandbox.exec(command).output.decode()

    yield act
    for sandbox in opened:
        sandbox.close()


def holds_nothing_else(base, say):
    assert say(f"git rev-list --all --reflog --not {base}") == ""
    assert say("git for-each-ref --format='%(refname)'") == "refs/heads/main\n"
    assert (
        say("git remote; git stash list; git tag; git notes list 2>/dev/null; git worktree list | tail -n +2")
        == ""
    )
    assert say("git fsck --unreachable --no-reflogs --full 2>&1 | grep -v '^notice'") == ""
    assert (
        say(
            "for o in $(git cat-file --batch-all-objects --batch-check='%(objectname)'); "
            "do git cat-file -p $o; done | grep -ac secret"
        )
        == "0\n"
    )
    assert say("grep -ral secret .git") == "" and say("git status --porcelain") == ""
    assert (
        say("ls -A .git | grep -v -x -e HEAD -e config -e index -e info -e objects -e refs -e shallow") == ""
    )


def test_only_the_history_of_the_base_commit_is_left(tree, scrubbed):
    base = git(tree, "rev-parse", "HEAD", env={"GIT_NO_REPLACE_OBJECTS": "1"})
    assert "secret" in git(tree, "log", "--all", "--format=%s")
    got, say = scrubbed(tree, fix_task(base))
    assert got == base and say("cat calc.py") == BUGGY
    holds_nothing_else(base, say)
    assert say("git log --format=%s | wc -l").strip() == "2" and say("git show HEAD~1:calc.py") == CLEAN


def test_a_bug_task_starts_from_one_commit_that_does_not_tell_the_clean_code(tmp_path, scrubbed):
    tree = tmp_path / "smith"
    tree.mkdir()
    git(tree, "init", "-q", "-b", "main")
    commit(tree, calc=CLEAN, test_calc="def test_add(): pass\n")
    git(tree, "checkout", "-q", "-b", NAME)
    commit(tree, calc=BUGGY)
    (tree / "test_calc.py").unlink()
    commit(tree, "remove tests")
    git(tree, "checkout", "-q", "main")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__/calc.cpython-311.pyc").write_bytes(b"return a + b")
    (tree / ".gitignore").write_text("__pycache__/\n")
    base, say = scrubbed(tree, bug_task())
    holds_nothing_else(base, say)
    assert say("cat calc.py") == BUGGY and say("ls *.py; git rev-list --count HEAD") == "calc.py\n1\n"
    assert say("grep -rl 'a + b' . ; ls __pycache__") == ""
    assert say("git log -p | grep -c 'a + b'") == "0\n"
    assert say(OF_ONE_AGE) == "1\n"
    assert scrubbed(tree, bug_task())[0] == base  # the same each time


def test_a_bug_task_without_its_branch_gets_the_patch(tmp_path, scrubbed):
    for name, start in (("clean", CLEAN), ("done", BUGGY)):
        tree = tmp_path / name
        tree.mkdir()
        git(tree, "init", "-q")
        commit(tree, calc=start, test_calc="def test_add(): pass\n", other="x = 1\n")
        base, say = scrubbed(tree, bug_task())
        holds_nothing_else(base, say)
        assert say("cat calc.py; ls") == f"{BUGGY}calc.py\nother.py\n"
        assert say(OF_ONE_AGE) == "1\n"
    (tree / "calc.py").write_text("nothing of the kind\n")
    commit(tree)
    with pytest.raises(HistoryRefused, match=f"^{NAME}: there is no branch {NAME}, and the bug's patch"):
        scrubbed(tree, bug_task())


def test_the_benchmarks_own_commit_is_kept_and_any_other_refused(tree, scrubbed):
    plain = {"GIT_NO_REPLACE_OBJECTS": "1"}
    git(tree, "replace", "-d", git(tree, "rev-parse", "HEAD", env=plain))
    base = git(tree, "rev-parse", "HEAD")
    setup = commit(tree, "SWE-bench", env={"GIT_AUTHOR_EMAIL": "setup@swebench.config"}, setup="pinned\n")
    got, say = scrubbed(tree, fix_task(base))
    assert got == setup
    holds_nothing_else(setup, say)
    commit(tree, "later", calc=CLEAN)
    with pytest.raises(HistoryRefused, match="neither the base commit"):
        scrubbed(tree, fix_task(base))
    with pytest.raises(HistoryRefused, match="is not in the repository"):
        scrubbed(tree, fix_task("0" * 40))


def test_what_the_image_changed_is_no_part_of_a_patch(tree, scrubbed):
    base = git(tree, "rev-parse", "HEAD")
    (tree / "calc.py").write_text(BUGGY + "# built\n")
    (tree / "built.txt").write_text("made by the image\n")
    got, say = scrubbed(tree, fix_task(base))
    assert got != base and say("git log -1 --format=%P").strip() == base
    holds_nothing_else(got, say)
    assert scrubbed(tree, fix_task(base))[0] == got


def test_hostile_configuration_runs_nothing(tree, tmp_path, scrubbed):
    base = git(tree, "rev-parse", "HEAD")
    (tree / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    base = commit(tree)
    evil = "touch /tmp/evil; cat"
    (tree / ".git/evil").write_text(f"[core]\n\tsshCommand = {evil}\n")
    for key, value in {
        "core.fsmonitor": evil,
        "core.hooksPath": "/testbed/.git/hooks",
        "filter.evil.clean": evil,
        "filter.evil.smudge": evil,
        "diff.evil.textconv": evil,
        "include.path": "/testbed/.git/evil",
        "core.pager": evil,
        "alias.rev-parse": f"!{evil}",
        "core.alternateRefsCommand": evil,
        "gpg.program": evil,
        "core.worktree": "/etc",
        "uploadpack.packObjectsHook": evil,
    }.items():
        git(tree, "config", "--file", ".git/config", key, value)
    got, say = scrubbed(tree, fix_task(base))
    assert got == base and say("ls /tmp") == ""
    holds_nothing_else(base, say)
    assert say("git config --local --list | cut -d= -f1 | cut -d. -f1 | sort -u") == "core\n"


def test_a_shallow_clone_keeps_its_boundary(tree, tmp_path, scrubbed):
    git(
        tmp_path,
        "clone",
        "-q",
        "--no-local",
        "--depth",
        "1",
        "--no-single-branch",
        f"file://{tree}",
        "shallow",
    )
    shallow = tmp_path / "shallow"
    base = git(shallow, "rev-parse", "HEAD")
    got, say = scrubbed(shallow, fix_task(base))
    assert (
        got == base and say("git log --format=%H").strip() == base and say("cat .git/shallow").strip() == base
    )
    holds_nothing_else(base, say)


def test_a_repository_with_long_hashes(tmp_path, scrubbed):
    tree = tmp_path / "long"
    tree.mkdir()
    git(tree, "init", "-q", "--object-format=sha256")
    base = commit(tree, calc=BUGGY)
    git(tree, "checkout", "-q", "-b", "future")
    commit(tree, "secret", calc="# secret\n")
    git(tree, "checkout", "-q", base)
    got, say = scrubbed(tree, fix_task(base))
    assert got == base and len(base) == 64
    holds_nothing_else(base, say)


def test_submodules_become_plain_folders(tree, tmp_path, scrubbed):
    part = tmp_path / "part"
    part.mkdir()
    git(part, "init", "-q")
    commit(part, inner="x = 1\n")
    commit(part, "secret", inner="# secret\n")
    git(tree, "submodule", "add", "-q", str(part), "sub")
    git(tree / "sub", "checkout", "-q", "HEAD~1")
    base = commit(tree, "with a submodule")
    got, say = scrubbed(tree, fix_task(base))
    assert got == base and say("cat sub/inner.py") == "x = 1\n"
    holds_nothing_else(base, say)
    assert say("echo 'y = 1' >> calc.py; git add -A; git diff --cached --stat | tail -1").startswith(
        " 1 file changed"
    )


def test_what_lies_elsewhere_is_refused_in_one_line(tree, tmp_path, scrubbed):
    base = git(tree, "rev-parse", "HEAD", env={"GIT_NO_REPLACE_OBJECTS": "1"})
    found = {}
    worktree = tmp_path / "elsewhere"
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "-q", "--bare", str(tree), str(bare))
    borrower = tmp_path / "borrower"
    git(tmp_path, "clone", "-q", "-s", str(tree), str(borrower))
    partial = tmp_path / "partial"
    git(tree, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-local", "--filter=blob:none", f"file://{tree}", str(partial))
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / ".git").symlink_to("/testbed/../tmp")
    empty = tmp_path / "empty"
    empty.mkdir()
    for place in (worktree, bare, borrower, partial, linked, empty):
        with pytest.raises(HistoryRefused) as fault:
            scrubbed(place, fix_task("" if place is partial else base))
        found[place.name] = str(fault.value)
        assert "\n" not in found[place.name] and found[place.name].startswith("a__b-1: ")
    assert "is a file" in found["elsewhere"] and "bare repository" in found["bare"]
    assert "borrowed" in found["borrower"] and "partial" in found["partial"]
    assert "is a symlink" in found["linked"] and "no git repository" in found["empty"]


SCRIPTED = {"instance_id": "a__b-1", "patch": "", "FAIL_TO_PASS": [], "image_name": "i", "answers": "script"}


def test_of_a_task_that_a_script_judges_a_plain_folder_becomes_a_repository(tmp_path, scrubbed):
    task = Task.of(SCRIPTED)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a.log").touch()
    (plain / ".gitignore").write_text("*.log\n")
    got, say = scrubbed(plain, task)
    assert say("git ls-files").split() == [".gitignore", "a.log"]
    holds_nothing_else(got, say)
    empty = tmp_path / "empty"
    empty.mkdir()
    got, say = scrubbed(empty, task)
    assert say("git ls-files; git status --short") == "" and say("git rev-list --all --count") == "1\n"


def test_of_a_task_that_a_script_judges_a_repository_loses_its_future_as_ever(tree, tmp_path, scrubbed):
    base = git(tree, "rev-parse", "HEAD", env={"GIT_NO_REPLACE_OBJECTS": "1"})
    got, say = scrubbed(tree, Task.of(SCRIPTED))
    assert got == base
    holds_nothing_else(base, say)
    outer = tmp_path / "outer"
    (outer / "deep").mkdir(parents=True)
    git(outer / "deep", "init", "-q")
    with pytest.raises(HistoryRefused, match="/testbed/deep is a repository of its own"):
        scrubbed(outer, Task.of(SCRIPTED))
