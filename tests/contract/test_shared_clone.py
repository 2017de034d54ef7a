"""One clone and one results folder, used by two members of a group."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from swelab.jobs.journal import Journal, lock
from swelab.jobs.provenance import code_identity
from swelab.records import InputError, read_json, share_with_group, write_json
from tests.conftest import run_program

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="becoming other users needs root"),
]
GROUP, ANNE, BOB = 54100, 54101, 54102


def as_user(uid, work, umask=0o022):
    """Returns what `work` returns or raises, as text, from a process of that user of the group."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.setgroups([])
        os.setgid(GROUP)
        os.setuid(uid)
        os.umask(umask)
        try:
            told = str(work())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        told = stream.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.fixture
def folder():
    """A folder of Anne's that others can reach. (pytest closes the folders above its own at each start.)"""
    with tempfile.TemporaryDirectory(prefix="swelab-shared-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        made = Path(place) / "results"
        made.mkdir()
        os.chown(made, ANNE, GROUP)
        yield made


def use(folder):
    share_with_group(folder)
    with Journal(folder / "progress" / "j.jsonl") as journal:
        journal.append({"key": str(len(journal)), "user": os.getuid()})
    lock(folder / ".lock").close()
    write_json(folder / "tasks" / "made.json", {"by": os.getuid()})


def test_a_folder_that_the_group_may_write_serves_all_its_members(folder):
    folder.chmod(0o2775)
    assert as_user(ANNE, lambda: use(folder)) == "None"
    assert as_user(BOB, lambda: use(folder)) == "None"
    assert as_user(ANNE, lambda: use(folder)) == "None"
    assert read_json(folder / "tasks" / "made.json") == {"by": ANNE}
    with Journal(folder / "progress" / "j.jsonl") as journal:
        assert [journal.get(key)["user"] for key in journal] == [ANNE, BOB, ANNE]


def test_a_folder_of_one_person_is_one_clear_line_for_the_next(folder):
    folder.chmod(0o755)
    assert as_user(ANNE, lambda: use(folder)) == "None"
    told = as_user(BOB, lambda: lock(folder / ".lock"))
    assert told.startswith("InputError: ") and told.count("\n") == 0, told
    assert (
        f"{folder}/.lock: cannot be written (Permission denied)" in told and f"belongs to user {ANNE}" in told
    )
    told = as_user(BOB, lambda: Journal(folder / "other" / "j.jsonl"))
    assert "InputError" in told and f"{folder} belongs to user {ANNE}" in told


def test_the_lock_of_a_member_holds_for_the_others(folder):
    folder.chmod(0o2775)
    as_user(ANNE, lambda: use(folder))
    held = lock(folder / ".lock")
    assert "in use by another process" in as_user(BOB, lambda: lock(folder / ".lock"))
    held.close()


@pytest.fixture
def shared_clone(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # Anne may trust all folders
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    root = tmp_path / "clone of another"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    git = ["git", "-C", root, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    head = run_program([*git, "rev-parse", "HEAD"]).stdout.strip()
    for path in (root, *root.rglob("*")):
        os.chown(path, ANNE, GROUP)
    return root, head


def test_a_clone_of_another_user_is_told_as_it_is(shared_clone):
    root, head = shared_clone
    refused = run_program(["git", "-C", root, "rev-parse", "HEAD"])
    assert "dubious ownership" in refused.stderr, "git does not refuse: the test shows nothing"
    assert code_identity(root) == {"commit": head, "dirty": False}
    (root / "a.txt").write_text("two\n")
    assert code_identity(root) == {"commit": head, "dirty": True}


def test_where_git_does_not_say_nothing_is_called_clean(shared_clone, tmp_path, monkeypatch):
    root, _ = shared_clone
    (tmp_path / "plain").mkdir()
    assert code_identity(tmp_path / "plain") == {"commit": "", "dirty": None}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_identity(root) == {"commit": "", "dirty": None}


def test_a_lock_is_for_those_who_may_write(folder):
    with pytest.raises(InputError, match="in use"), lock(folder / ".lock"):
        lock(folder / ".lock")
