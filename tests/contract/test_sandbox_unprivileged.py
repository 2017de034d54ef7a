"""The same sandbox for a caller without root, as on a cluster's compute node."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.contract.attacks import DEEP, MAPPED, SOCKETS, process_count, processes_with, token, until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
NOBODY = 65534
SCRIPT = (
    f"DEEP, MAPPED, SOCKETS = {DEEP!r}, {MAPPED!r}, {SOCKETS!r}"
    + r"""
import os, sys, time
from pathlib import Path
from swelab.sandbox import BackendMissing, Limits, open_backend

assert os.getuid() == 65534, os.getuid()
try:
    backend = open_backend()
except BackendMissing as error:
    print(error)
    sys.exit(77)
if len(sys.argv) > 3:
    print("staying", flush=True)
    with backend.start(Path(sys.argv[1])) as box:
        box.exec("setsid sleep " + sys.argv[2] + " & sleep " + sys.argv[2])
LIMITS = Limits(wall_seconds=10, cpu_seconds=10, memory_bytes=300 << 20, processes=48)
with backend.start(Path(sys.argv[1]), limits=LIMITS) as box:
    def run(command, **limits):
        result = box.exec(command, limits=Limits(**{**vars(LIMITS), **limits}))
        print(repr(command[:50]), result.returncode, result.limit, result.output[-300:], flush=True)
        return result
    assert run("id -un; id -u; id -g").output == b"agent\n1000\n1000\n"
    assert run("stat -c %U . /tmp ~; cat a.txt").output == b"agent\nagent\nagent\nhello\n"
    status = run("cat /proc/self/status").output.decode()
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
    assert run("git init -q . && git add -A && git commit -qm x && git log --format=%an").output == b"agent\n"
    assert run("touch /usr/x /etc/x /x || exit 5").returncode == 5
    assert run("unshare -Ur true || mount -t tmpfs none /tmp || exit 6").returncode == 6
    assert run("python -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 1)'").returncode == 1
    started = time.monotonic()
    run(":(){ :|:& };:; sleep 1", wall_seconds=2)
    assert time.monotonic() - started < 6
    many = run("for i in $(seq 200); do sleep 5 & done", wall_seconds=1)
    assert b"Resource temporarily unavailable" in many.output
    assert run("sleep " + sys.argv[2] + " & setsid sleep " + sys.argv[2] + " & echo x").output == b"x\n"
    memory = "python -c 'import time; b=b\"x\" * 120000000; time.sleep(9)'"
    hog = f"for i in 1 2 3; do {memory} & done; wait"
    assert run(hog).limit == "memory"
    for filler in (f"mkdir deep; cd deep; chmod 311 .; {DEEP}", MAPPED):
        assert run(filler, disk_bytes=100 << 20).limit == "disk"
        run("chmod -R 700 deep; rm -rf deep")
    for kind in ("unix", "tcp"):
        assert run(SOCKETS.replace("KIND", kind)).limit == "memory"
    assert run("while :; do :; done", cpu_seconds=1).limit == "cpu"
    assert run("sleep 30", wall_seconds=0.3).limit == "wall"
    assert run("sh -c 'kill -9 -1'; true").returncode == 137
    box.put("sub/x.txt", b"data")
    assert box.get("sub/x.txt") == b"data" and run("cat sub/x.txt").output == b"data"
    assert run("mkdir -p closed/in && touch closed/in/f && chmod 0 closed/in closed").returncode == 0
    folder = box._scratch.path
assert not folder.exists()
print("all as root")
"""
)


def _as_nobody(*command):
    # setpriv itself still starts its program with root's access; the shell after it does not have it.
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *ids, "--", "/bin/sh", "-c", 'exec "$@"', "sh", *map(str, command)]


def _interpreter():
    """Returns a Python of our version, which our packages need, that the user nobody may run."""
    check = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    for python in (sys.executable, "/usr/bin/python3"):
        command = _as_nobody(python, "-c", check) if os.geteuid() == 0 else [python, "-c", check]
        try:
            if subprocess.run(command, capture_output=True).returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip("no Python of this version that an unprivileged user may run")


@pytest.fixture
def nobodys(backend):
    """A folder of the user nobody: the package, a tree, a toolbox, scratch space."""
    folder = Path(tempfile.mkdtemp(prefix="swelab-test-"))
    try:
        shutil.copytree(ROOT / "swelab", folder / "swelab", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tree").mkdir()
        (folder / "scratch").mkdir()
        (folder / "tree" / "a.txt").write_text("hello\n")
        subprocess.run([_interpreter(), "-m", "venv", "--without-pip", str(folder / "toolbox")], check=True)
        packages = next((backend.toolbox.path / "lib").glob("python*/site-packages"))
        shutil.copytree(
            packages, next((folder / "toolbox/lib").glob("python*/site-packages")), dirs_exist_ok=True
        )
        subprocess.run(["chown", "-Rh", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(nobodys, *arguments):
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{nobodys}:{sysconfig.get_path('purelib')}",
        "SWELAB_TOOLBOX": str(nobodys / "toolbox"),
        "SWELAB_SCRATCH": str(nobodys / "scratch"),
    }
    command = _as_nobody(_interpreter(), "-c", SCRIPT, nobodys / "tree", *arguments)
    return subprocess.Popen(
        command, env=environment, cwd=nobodys, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root in order to become another user")
def test_all_holds_without_root(nobodys):
    before, sleep = process_count(), token()
    caller = _run(nobodys, sleep)
    said = caller.communicate(timeout=120)[0].decode()
    if caller.returncode == 77:
        pytest.skip(said.strip())
    assert caller.returncode == 0, said
    assert said.endswith("all as root\n")
    assert processes_with(sleep) == []
    assert until(lambda: process_count() - before < 30)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root in order to become another user")
def test_a_killed_caller_without_root_leaves_no_process(nobodys):
    sleep = token()
    caller = _run(nobodys, sleep, "and stay")
    said = caller.stdout.readline()
    if said != b"staying\n" and caller.wait() == 77:
        pytest.skip(said.decode().strip())
    assert said == b"staying\n", said.decode()
    assert until(lambda: len(processes_with(sleep)) >= 5, 20)
    caller.kill()
    caller.communicate()
    assert until(lambda: processes_with(sleep) == [])
