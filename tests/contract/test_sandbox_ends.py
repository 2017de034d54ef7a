"""How sandboxes of every backend end: closed, killed, orphaned."""

import gc
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from swelab.sandbox import SandboxLost
from swelab.sandbox.resource_limits import process_tree
from tests.conftest import ROOT
from tests.contract.attacks import PATIENCE, SHORT, processes_with, program, text, token, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
BACKENDS = ("bubblewrap", "docker", "remote")


def _in_thread(box, command):
    """Runs a command in a thread. The list gets the command's result or error."""
    ended = []

    def run():
        try:
            ended.append(box.exec(command))
        except SandboxLost as error:
            ended.append(str(error))

    runner = threading.Thread(target=run)
    runner.start()
    return runner, ended


def _sleeping(sleep):
    return any(program(pid) == "sleep" for pid in processes_with(sleep))


@pytest.mark.full
def test_killed_from_outside_is_lost_and_not_a_result(place, sandbox):
    sleep = token()
    runner, ended = _in_thread(sandbox, f"sleep {sleep}; true")
    assert until(lambda: _sleeping(sleep))
    place.murder(sandbox, sleep)
    runner.join(PATIENCE)
    assert ended == ["the sandbox was killed from outside"]
    assert until(lambda: processes_with(sleep) == [])


def test_closing_ends_a_running_command(place, tree):
    sleep = token()
    box = place.start(tree)
    runner, ended = _in_thread(box, f"setsid sleep {sleep} & sleep {sleep}")
    assert until(lambda: _sleeping(sleep))
    box.close()
    box.close()
    runner.join(PATIENCE)
    assert ended == ["the sandbox was closed while a command ran"]
    assert processes_with(sleep) == [] and place.left_of(box) == []
    for act in (lambda: box.exec("true"), lambda: box.get("a.txt"), lambda: box.put("b", b"")):
        with pytest.raises(SandboxLost, match="the sandbox is closed"):
            act()


CALLER = """
import sys
from pathlib import Path
from swelab.sandbox import Image, open_backend
from swelab.records import read_json
image = Image("x", "y", Path(sys.argv[3])) if len(sys.argv) > 3 else None
with open_backend().start(Path(sys.argv[1]), image=image) as sandbox:
    print("started", flush=True)
    while True:
        sandbox.exec(sys.argv[2])
"""


def _caller(place, tree, command, scratch):
    folder = [str(place.image.folder)] if place.image else []
    return subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tree), command, *folder],
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "SWELAB_BACKEND": place.backend.name,
            "SWELAB_SCRATCH": str(scratch),
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT,
    )


@pytest.mark.full
def test_a_killed_caller_leaves_nothing_and_a_living_one_keeps_all(place, tree, tmp_path, monkeypatch):
    sleep = token()
    monkeypatch.setenv("SWELAB_SCRATCH", str(tmp_path))
    caller = _caller(place, tree, f"setsid sleep {sleep} & sleep {sleep}", tmp_path)
    assert until(lambda: len(processes_with(sleep)) >= 2 and _sleeping(sleep))
    with place.another().start(tree, image=place.image) as ours:
        assert _sleeping(sleep), "what a living caller has was removed"
        caller.kill()
        caller.communicate()
        assert until(lambda: processes_with(sleep) == [])
        place.another()
        assert until(lambda: place.left_by(caller.pid, tmp_path, ours) == [])
        assert text(ours.exec("cat a.txt")) == "hello\n"


@pytest.mark.full
def test_a_caller_killed_at_any_moment_leaves_nothing(place, tree, tmp_path, monkeypatch):
    """The command is short, so most kills happen while a sandbox is started or ended."""
    sleep = token()
    monkeypatch.setenv("SWELAB_SCRATCH", str(tmp_path))
    for _ in range(3 if place.engine else 12):
        caller = _caller(place, tree, f": {sleep}", tmp_path)
        assert caller.stdout.readline() == b"started\n"
        time.sleep(random.uniform(0.0, 0.03))
        caller.kill()
        caller.communicate()
    assert until(lambda: processes_with(sleep) == [])
    with place.another().start(tree, image=place.image) as ours:
        assert until(lambda: place.left_by(caller.pid, tmp_path, ours) == [])


@pytest.mark.full
def test_ended_commands_leave_nothing_behind(sandbox):
    sandbox.exec("true")
    gc.collect()
    descriptors, before = len(os.listdir("/proc/self/fd")), len(process_tree(os.getpid()))
    for _ in range(25):
        sandbox.exec("sleep 60 & true")
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert until(lambda: len(process_tree(os.getpid())) == before)


def test_a_tree_that_is_none_is_an_error_of_the_files(place, tree):
    with pytest.raises(FileNotFoundError):
        place.start(tree / "nothing", limits=SHORT)
    with pytest.raises(NotADirectoryError):
        place.start(tree / "a.txt", limits=SHORT)
    with pytest.raises(ValueError, match="a tree or an image"):
        place.backend.start(None)
