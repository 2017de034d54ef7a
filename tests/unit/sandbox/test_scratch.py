"""Folders and user ids that the kernel releases when their owner dies."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress

import pytest

from swelab.sandbox import open_backend, scratch
from swelab.sandbox.protocol import BackendMissing, Limits, SandboxLost
from swelab.sandbox.resource_limits import DiskMeter, disk_bytes, process_tree, usage
from swelab.sandbox.rootfs import read_toolbox
from swelab.sandbox.scratch import PREFIX, ScratchFolder, UserId, copy_tree, prune, remove_tree, runnable_base
from swelab.tasks.checkout import RepoStore
from tests.conftest import run_program
from tests.contract.attacks import PATIENCE, until


def test_only_folders_without_a_living_owner_are_pruned(tmp_path):
    ours = ScratchFolder(tmp_path)
    code = (
        "import sys, os, signal, pathlib; from swelab.sandbox.scratch import ScratchFolder\n"
        "ScratchFolder(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (tmp_path / "unrelated").mkdir()
    (tmp_path / (PREFIX + "file")).write_text("")
    assert len(list(tmp_path.glob(PREFIX + "*"))) == 3
    assert prune(tmp_path) == 1
    assert ours.path.exists() and (tmp_path / "unrelated").exists()
    ours.remove()
    ours.remove()
    assert not ours.path.exists()


def test_copies_lie_in_memory_only_where_it_has_room(tmp_path, monkeypatch):
    monkeypatch.delenv("SWELAB_SCRATCH", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "MEMORY", str(tmp_path / "memory"))
    assert scratch.scratch_base() == tmp_path
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(scratch, "MEMORY_BYTES", 1)
    assert scratch.scratch_base() == tmp_path / "memory"
    monkeypatch.setattr(scratch, "MEMORY_BYTES", 1 << 60)
    assert scratch.scratch_base() == tmp_path
    monkeypatch.setenv("SWELAB_SCRATCH", str(tmp_path / "mine"))
    assert scratch.scratch_base() == tmp_path / "mine" and (tmp_path / "mine").is_dir()


def test_a_link_named_like_ours_is_not_followed(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / (PREFIX + "x")).symlink_to("precious")
    assert prune(tmp_path) == 0
    assert (tmp_path / "precious").exists()


def test_a_user_id_is_held_until_released():
    first_uid = os.getpid() << 32  # no other process of this machine uses it
    uids = range(first_uid, first_uid + 2)
    first, second = UserId(uids), UserId(uids)
    assert {first.value, second.value} == set(uids)
    with pytest.raises(SandboxLost, match="all 2 user ids for sandboxes are in use"):
        UserId(uids)
    first.release()
    third = UserId(uids)
    assert third.value == first.value
    second.release()
    third.release()


def test_copy_keeps_modes_and_links_and_follows_none(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub").mkdir(parents=True)
    target.mkdir()
    (source / "sub" / "run").write_text("#!/bin/sh\n")
    (source / "sub" / "run").chmod(0o750)
    (source / "out").symlink_to("/etc")
    (source / ".hidden").write_text("x")
    copy_tree(source, target, None)
    assert (target / "sub" / "run").stat().st_mode & 0o777 == 0o750
    assert os.readlink(target / "out") == "/etc"
    assert (target / ".hidden").read_text() == "x"


def test_copy_errors_are_os_errors_with_a_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError):
        copy_tree(tmp_path / "absent", tmp_path, None)
    with pytest.raises(NotADirectoryError):
        copy_tree(tmp_path / "file", tmp_path, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_an_os_error_that_says_so(tmp_path):
    source, small = tmp_path / "source", tmp_path / "small"
    source.mkdir()
    small.mkdir()
    (source / "big").write_bytes(b"x" * (2 << 20))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=True)
    try:
        with pytest.raises(OSError, match="No space left on device while copying") as caught:
            copy_tree(source, small, None)
        assert caught.value.errno == errno.ENOSPC
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_scratch_folder_that_runs_no_programs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SWELAB_SCRATCH", str(tmp_path))
    assert runnable_base() == tmp_path
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,noexec", "none", str(tmp_path)], check=True)
    try:
        with pytest.raises(BackendMissing, match=f"{tmp_path} is mounted noexec.* set SWELAB_SCRATCH"):
            open_backend("bubblewrap")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture
def small(tmp_path):
    """A scratch folder on a file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.real
def test_a_command_that_others_leave_no_room_is_lost_not_failed(small, monkeypatch, tmp_path):
    monkeypatch.setenv("SWELAB_SCRATCH", str(small))
    (tmp_path / "tree").mkdir()
    with open_backend("bubblewrap").start(tmp_path / "tree") as sandbox:
        assert sandbox.exec("echo x > file").returncode == 0
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={small}/others", "bs=64k"], capture_output=True, check=False
        )
        with pytest.raises(SandboxLost, match=f"No space left on device: scratch folder {small} is full"):
            sandbox.exec("seq 100000 > more; true")
        (small / "others").unlink()
        assert sandbox.exec("seq 100000 > more").returncode == 0
        own = Limits(disk_bytes=4 << 20)  # a sandbox may fill its own quota
        assert sandbox.exec("cat /dev/zero > more", limits=own).returncode != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.real
def test_a_command_is_lost_that_others_left_no_inodes_for_a_while(small, monkeypatch, tmp_path):
    """The command could end long after the inodes are free again, with output that their lack caused."""
    monkeypatch.setenv("SWELAB_SCRATCH", str(small))
    subprocess.run(["mount", "-o", "remount,nr_inodes=300", str(small)], check=True)
    (tmp_path / "tree").mkdir()
    (small / "others").mkdir()
    lost = threading.Event()

    def others(begun):
        until(begun.exists, PATIENCE)
        with suppress(OSError):
            for number in itertools.count():
                (small / "others" / str(number)).touch()
        lost.wait(PATIENCE)
        shutil.rmtree(small / "others")
        begun.with_name("go").touch()

    with open_backend("bubblewrap").start(tmp_path / "tree") as sandbox:
        thread = threading.Thread(target=others, args=[sandbox.folder / "testbed/begun"])
        thread.start()
        with pytest.raises(SandboxLost, match=f"No space left on device: scratch folder {small} is full"):
            sandbox.exec("touch begun; until [ -e go ]; do sleep 0.1; done", limits=Limits(wall_seconds=900))
        lost.set()
        thread.join()
        assert sandbox.exec("echo x > file").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_scratch_folder_without_inodes_is_refused(small, monkeypatch):
    monkeypatch.setenv("SWELAB_SCRATCH", str(small))
    for count in (1, 9):
        subprocess.run(["mount", "-o", f"remount,nr_inodes={count}", str(small)], check=True)
        with pytest.raises(BackendMissing, match="No space left on device"):
            open_backend("bubblewrap")


@pytest.mark.real
def test_empty_files_count(tmp_path):
    """A sandbox that makes many files meets its own limit long before the host has no inodes left."""
    (tmp_path / "tree").mkdir()
    own = Limits(disk_bytes=64 << 20, wall_seconds=900, cpu_seconds=900)
    with open_backend("bubblewrap").start(tmp_path / "tree", limits=own) as sandbox:
        many = "mkdir m; cd m; for ((n = 0; n < 20000; n++)); do : >$n; done; sleep infinity"
        made = sandbox.exec(many, limits=own)
        assert (made.returncode, made.limit) == (137, "disk")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_checkout_without_room_says_that_the_disk_is_full(small, repos_dir, task):
    store = RepoStore(repos_dir, small / "trees")
    store.clean_tree(task)
    for kib in (0, 8, 40, 100):  # in order of failure: the copy, the patch, the repository, the commit
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={small}/others", "bs=4k"], capture_output=True, check=False
        )
        os.truncate(small / "others", os.path.getsize(small / "others") - (kib << 10))
        with pytest.raises(OSError) as caught:
            for number in range(9):
                store.checkout(task, small / f"{kib}-{number}")
        message = str(caught.value).replace(
            str(small), ""
        )  # the length of the test's own path does not count
        assert caught.value.errno == errno.ENOSPC and len(message) < 400 and "\n" not in message
        (small / "others").unlink()


def test_trees_of_any_depth_and_mode_are_removed(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    here = os.open(victim, os.O_RDONLY)
    for _ in range(1100):  # deeper than recursion and PATH_MAX allow
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (victim / "closed").mkdir(mode=0)
    remove_tree(victim)
    assert not victim.exists()


def test_usage_counts_children_and_their_memory():
    child = subprocess.Popen(
        [sys.executable, "-c", "x = b'y' * (50 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.read(1)
    used = usage(os.getpid())
    assert child.pid in process_tree(os.getpid())
    assert used.processes >= 2 and used.memory_bytes > 50 << 20 and used.cpu_seconds > 0
    child.communicate(b"\n")
    assert child.pid not in process_tree(os.getpid())


def test_disk_meter_sees_growth(tmp_path, monkeypatch):
    # No other process writes to this disk.
    monkeypatch.setattr(DiskMeter, "_free_now", lambda self: (1 << 40) - disk_bytes(tmp_path))
    meter = DiskMeter(tmp_path)
    assert not meter.exceeds(8 << 20, os.getpid())
    (tmp_path / "big").write_bytes(b"x" * (16 << 20))
    assert disk_bytes(tmp_path) > 16 << 20
    assert meter.exceeds(8 << 20, os.getpid())


def test_a_folder_that_is_no_venv_is_said_to_be_none(tmp_path):
    with pytest.raises(BackendMissing, match="no Python venv for sandboxes at"):
        read_toolbox(tmp_path)


def test_limits_are_values():
    assert Limits(wall_seconds=5) == Limits(wall_seconds=5)


LEFT = """
import pathlib, sys
from swelab.sandbox.memory_filesystem import PrivateFiles, mounter
from swelab.sandbox.protocol import Limits

class Left:
    def __init__(self):
        self.files, self.itself = PrivateFiles(pathlib.Path(sys.argv[1]), Limits(), mounter()), self

    def __del__(self):
        self.files.remove()

Left()
"""


def test_a_process_that_did_not_remove_its_private_files_ends(tmp_path):
    done = run_program([sys.executable, "-c", LEFT, str(tmp_path)], timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    prune(tmp_path)
    assert list(tmp_path.iterdir()) == []
