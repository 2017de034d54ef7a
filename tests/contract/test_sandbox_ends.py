"""How sandboxes end: closed, killed, orphaned, or never begun on a machine that cannot."""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from swelab.sandbox import SandboxLost, open_backend
from swelab.sandbox.scratch import PREFIX
from swelab.sandbox.watch import process_tree
from tests.conftest import ROOT
from tests.contract.attacks import SHORT, processes_with, program, text, token, until

pytestmark = pytest.mark.real


# -- ends


def test_killed_from_outside_is_lost_and_not_a_result(sandbox):
    sleep = token()
    failure = []

    def run():
        try:
            sandbox.exec(f"sleep {sleep}; true")
        except SandboxLost as error:
            failure.append(str(error))

    runner = threading.Thread(target=run)
    runner.start()
    assert until(lambda: any(program(pid) == "sleep" for pid in processes_with(sleep)))
    outer = [pid for pid in processes_with(sleep) if program(pid) == "bwrap"]
    os.kill(outer[0], signal.SIGKILL)
    runner.join(5)
    assert failure == ["the sandbox was killed from outside"]
    assert processes_with(sleep) == []


def test_closing_ends_a_running_command(backend, tree):
    sleep = token()
    box = backend.start(tree)
    failure = []

    def run():
        try:
            box.exec(f"sleep {sleep}")
        except SandboxLost as error:
            failure.append(str(error))

    runner = threading.Thread(target=run)
    runner.start()
    assert until(lambda: processes_with(sleep))
    folder = box._scratch.path
    box.close()
    box.close()
    runner.join(5)
    assert failure == ["the sandbox was closed while a command ran"]
    assert processes_with(sleep) == [] and not folder.exists()
    with pytest.raises(SandboxLost, match="closed"):
        box.exec("true")
    with pytest.raises(SandboxLost, match="closed"):
        box.get("a.txt")


def test_a_sandbox_whose_folder_is_gone_is_lost(backend, tree):
    box = backend.start(tree)
    subprocess.run(["rm", "-rf", str(box._scratch.path)], check=True)
    with pytest.raises(SandboxLost, match="bwrap"):
        box.exec("true")
    box.close()


CALLER = """
import sys
from pathlib import Path
from swelab.sandbox import open_backend
with open_backend().start(Path(sys.argv[1])) as sandbox:
    print("started", flush=True)
    while True:
        sandbox.exec(sys.argv[2])
"""


def _caller(tree, command, scratch):
    return subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tree), command],
        stdout=subprocess.PIPE,
        env={**os.environ, "SWELAB_SCRATCH": str(scratch), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )


def test_a_killed_caller_leaves_no_process_and_its_folder_is_cleared_later(tree, tmp_path, monkeypatch):
    sleep = token()
    caller = _caller(tree, f"setsid sleep {sleep} & sleep {sleep}", tmp_path)
    assert until(lambda: len(processes_with(sleep)) >= 4, 20)
    monkeypatch.setenv("SWELAB_SCRATCH", str(tmp_path))
    left = set(tmp_path.glob(PREFIX + "*"))
    living = open_backend()
    with living.start(tree) as ours:
        assert left <= set(tmp_path.glob(PREFIX + "*")), "the folder of a living caller was removed"
        caller.kill()
        caller.wait()
        assert until(lambda: processes_with(sleep) == [])
        open_backend()
        assert set(tmp_path.glob(PREFIX + "*")) == {ours._scratch.path}
        assert text(ours.exec("cat a.txt")) == "hello\n"


def test_a_caller_killed_at_any_moment_leaves_no_process(tree, tmp_path):
    """The command is short, so that most kills hit bwrap between fork and the moment it is fully set up."""
    sleep = token()
    for _ in range(12):
        caller = _caller(tree, f": {sleep}", tmp_path)
        assert caller.stdout.readline() == b"started\n"
        time.sleep(random.uniform(0.0, 0.03))
        caller.kill()
        caller.communicate()
    assert until(lambda: processes_with(sleep) == [])


FORKING = """
import multiprocessing, os, sys
from pathlib import Path
from swelab.sandbox import open_backend
backend = open_backend()
def run(sleep):
    with backend.start(Path(sys.argv[1])) as sandbox:
        sandbox.exec("sleep " + sleep)
worker = multiprocessing.get_context("fork").Process(target=run, args=(sys.argv[2],))
worker.start()
print(worker.pid, flush=True)
run(sys.argv[3])
"""


@pytest.mark.parametrize("first_to_die", ["parent", "child"])
def test_a_forked_caller_and_its_parent_have_each_their_own_end(tree, tmp_path, first_to_die):
    sleeps = {"child": token(), "parent": token()}
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKING, str(tree), sleeps["child"], sleeps["parent"]],
        stdout=subprocess.PIPE,
        env={**os.environ, "SWELAB_SCRATCH": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    pids = {"child": int(parent.stdout.readline()), "parent": parent.pid}

    def sleeping(who):
        return any(program(pid) == "sleep" for pid in processes_with(sleeps[who]))

    second = {"parent": "child", "child": "parent"}[first_to_die]
    assert until(lambda: sleeping("parent") and sleeping("child"), 20)
    os.kill(pids[first_to_die], signal.SIGKILL)
    assert until(lambda: not sleeping(first_to_die))
    assert sleeping(second)
    os.kill(pids[second], signal.SIGKILL)
    assert until(lambda: not sleeping(second))
    parent.communicate()


def test_a_lost_lifeline_loses_what_runs_and_is_replaced(tree):
    backend = open_backend()
    sleep = token()
    failure = []
    with backend.start(tree, limits=SHORT) as box:

        def run():
            try:
                box.exec(f"sleep {sleep}")
            except SandboxLost as error:
                failure.append(str(error))

        runner = threading.Thread(target=run)
        runner.start()
        assert until(lambda: any(program(pid) == "sleep" for pid in processes_with(sleep)))
        init = next(word for word in backend.enter() if word.startswith("--target=")).removeprefix(
            "--target="
        )
        os.kill(int(init), signal.SIGKILL)
        runner.join(5)
        assert len(failure) == 1
        assert processes_with(sleep) == []
        assert until(lambda: not backend._lifeline.holds())
        assert text(box.exec("echo again")) == "again\n"


def test_ended_commands_leave_nothing_behind(sandbox):
    gc.collect()
    descriptors, before = len(os.listdir("/proc/self/fd")), len(process_tree(os.getpid()))
    for _ in range(40):
        sandbox.exec("sleep 60 & true")
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert until(lambda: len(process_tree(os.getpid())) == before)


# -- machines that cannot


def _open(*wrap, **env):
    code = "from swelab.sandbox import BackendMissing, open_backend\ntry: open_backend(); print('fine')\n"
    code += "except BackendMissing as error: print(error)"
    command = [*wrap, sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60)
    return done.stdout


def test_what_is_missing_is_said_in_one_line(tmp_path, backend):
    assert _open(PATH=str(tmp_path)) == (
        "bubblewrap is not installed: no program `bwrap` (package bubblewrap)\n"
    )
    assert f"no Python venv for sandboxes at {tmp_path}: " in _open(SWELAB_TOOLBOX=str(tmp_path))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    said = _open(SWELAB_TOOLBOX=str(tmp_path / "bare"))
    assert said == f"the toolbox {tmp_path / 'bare'} does not work in a sandbox: it has no pytest\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the limit of a namespace")
def test_forbidden_user_namespaces_are_named(backend):
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    said = _open("unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh")
    setting = "sysctl user.max_user_namespaces=15000 (it is 0)"
    assert said == f"bubblewrap needs user namespaces: set {setting}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have a namespace of its own made")
def test_root_of_a_container_that_has_no_other_user_ids(backend):
    assert _open("unshare", "--user", "--map-root-user") == "fine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up a right of root")
def test_root_without_its_rights_is_told_which_one(backend):
    without = ["setpriv", "--inh-caps=-sys_admin", "--bounding-set=-sys_admin"]
    said = _open(*without, "/bin/sh", "-c", 'exec "$@"', "sh")
    assert "root needs CAP_SYS_ADMIN" in said and len(said.splitlines()) == 1
