"""A child's whole process tree ends when we stop it or are killed, with and without namespaces."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swelab.jobs import child_process
from swelab.jobs.child_process import ChildProcess, fault_line, has_namespaces, unmasked_prefix
from tests.contract.attacks import PATIENCE, processes_with, until

ROOT = Path(__file__).resolve().parents[3]
TREE = """
import ctypes, multiprocessing, sys, time
def child():
    ctypes.CDLL(None).prctl(1, 9)  # as sglang's children do
    open(sys.argv[1], "w").write("up")  # only now does a kill of its parent reach it
    time.sleep(600)
multiprocessing.get_context("fork").Process(target=child).start()
time.sleep(600)
"""
PARENT = """
import os, sys, time
from swelab.jobs import child_process
if sys.argv[2] == "group":
    child_process.has_namespaces = lambda: False
log = open(sys.argv[1], "wb")
server = child_process.ChildProcess(lambda _: [sys.executable, *sys.argv[3:]], env=os.environ, log=log)
print(server.process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(params=["namespace", "group"])
def lid(request, monkeypatch):
    if request.param == "group":
        monkeypatch.setattr(child_process, "has_namespaces", lambda: False)
    else:
        assert has_namespaces(), "bubblewrap is a requirement of the tests"
    return request.param


def test_stop_ends_the_tree(lid, tmp_path):
    flag = tmp_path / "up"
    with open(tmp_path / "log", "wb") as log:
        child = ChildProcess(lambda _: [sys.executable, "-c", TREE, str(flag)], env=os.environ, log=log)
    assert until(flag.exists, PATIENCE)
    assert len(processes_with(str(flag))) >= 2
    child.stop(grace_seconds=2)
    assert until(lambda: not processes_with(str(flag)), PATIENCE)
    child.stop()
    assert child.poll() is not None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_tree_ends_with_a_killed_parent(lid, number, tmp_path):
    # A group's scratch folder outlives a kill, so it is among the test's other files.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    flag = tmp_path / "up"
    argv = [sys.executable, "-c", PARENT, str(tmp_path / "log"), lid, "-c", TREE, str(flag)]
    parent = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    assert until(flag.exists, PATIENCE)
    parent.send_signal(number)
    parent.wait()
    assert until(lambda: not processes_with(str(flag)), PATIENCE)


NESTS = """
import os, sys, time
from swelab.jobs.child_process import ChildProcess
sandbox = "bwrap --ro-bind / / --unshare-all --proc /proc --dev /dev true"
words = ["sh", "-c", f"{sandbox} && touch $0; setsid sh -c 'sleep 600; : $0' $0 & wait", sys.argv[1]]
log = open(sys.argv[1] + ".log", "wb")
child = ChildProcess(lambda _: words, env=os.environ, log=log, nests=True)
time.sleep(600)
"""


def test_a_command_may_make_sandboxes_and_what_it_detached_ends_with_a_killed_parent(tmp_path):
    assert unmasked_prefix(), "namespaces are a requirement of the tests"
    flag, environment = tmp_path / "up", {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", NESTS, str(flag)], cwd=ROOT, env=environment)
    assert until(lambda: flag.exists() and len(processes_with(str(flag))) >= 4, PATIENCE)
    parent.kill()
    parent.wait()
    assert until(lambda: not processes_with(str(flag)), PATIENCE)


def test_the_status_of_a_command_that_makes_sandboxes_is_told(tmp_path):
    with open(tmp_path / "log", "wb") as log:
        child = ChildProcess(lambda _: ["sh", "-c", "exit 3"], env=os.environ, log=log, nests=True)
    assert until(lambda: child.poll() is not None, PATIENCE)
    assert child.poll() == 3
    child.stop()


def test_private_files_are_neither_arguments_nor_left_behind(lid, tmp_path):
    show = (
        "import os, stat, sys; path = sys.argv[1]; mode = oct(stat.S_IMODE(os.stat(path).st_mode)); "
        "print(open(path).read(), mode, os.environ['TMPDIR'])"
    )
    paths = []

    def command(folder):
        paths.append(folder)
        return [sys.executable, "-c", show, f"{folder}/token"]

    with open(tmp_path / "log", "wb") as log:
        child = ChildProcess(command, env=os.environ, log=log, files={"token": b"a secret"})
    assert until(lambda: child.poll() is not None, PATIENCE)
    child.stop()
    assert (tmp_path / "log").read_text().split() == ["a", "secret", "0o600", paths[0]]
    assert not Path(paths[0], "token").exists()


def test_interrupt_comes_before_the_kill(lid, tmp_path):
    polite = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit it ignored\n"
        "try:\n    open(sys.argv[1], 'w').close()\n    time.sleep(600)\n"
        "except KeyboardInterrupt: print('bye')"
    )
    flag = tmp_path / "up"
    with open(tmp_path / "log", "wb") as log:
        child = ChildProcess(lambda _: [sys.executable, "-c", polite, str(flag)], env=os.environ, log=log)
    assert until(flag.exists, PATIENCE)
    child.stop(grace_seconds=PATIENCE)
    assert (tmp_path / "log").read_text() == "bye\n" and child.poll() == 0


def test_fault_line_is_one_line(tmp_path):
    log = tmp_path / "log"
    log.write_text("starting\nTraceback (most recent call last):\n  x\nValueError: no   such thing\nbye\n")
    assert fault_line(log) == "ValueError: no such thing"
    log.write_text("a\nb\n\nc\nd\n")
    assert fault_line(log) == "b | c | d"
    log.write_text("")
    assert fault_line(log) == "it printed nothing"
