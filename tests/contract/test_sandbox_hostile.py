"""Hostile code in a sandbox. Every attack is real."""

import errno
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from swelab.sandbox import Limits
from tests.conftest import ROOT
from tests.contract.attacks import process_count, processes_with, text, token, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
BACKENDS = ("bubblewrap", "docker")


# -- processes


@pytest.mark.full
@pytest.mark.parametrize(
    "bomb",
    [
        ":(){ :|:& };:",
        ":(){ :|:& };:; sleep 2",
        "python -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'",
        "python -c 'from threading import *\nwhile True: Timer(99, print).start()'",
    ],
)
def test_fork_bombs_burn_out(sandbox, bomb):
    before = process_count()
    started = time.monotonic()
    peak = 0

    def watch():
        nonlocal peak
        while time.monotonic() - started < 1.0:
            peak = max(peak, process_count())
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    sandbox.exec(bomb, limits=Limits(wall_seconds=1.5, processes=48))
    watcher.join()
    assert time.monotonic() - started < 6
    assert peak - before < 48 + 60
    assert until(lambda: process_count() - before < 30)
    assert text(sandbox.exec("echo fine")) == "fine\n"


def test_daemons_end_with_the_command_even_if_they_hold_its_output(sandbox):
    sleep = token()
    result = sandbox.exec(
        f"nohup sleep {sleep} & setsid sh -c 'setsid sleep {sleep} & setsid sleep {sleep} &'; "
        f"(trap '' HUP TERM INT; sleep {sleep}) & disown -a; "
        "until test $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep) = 4; do :; done; echo started"
    )
    assert (result.returncode, result.limit, text(result).splitlines()[-1]) == (0, "", "started")
    assert processes_with(sleep) == []


def test_killing_everything_kills_only_the_command(sandbox):
    bystander = subprocess.Popen(["sleep", token()])
    result = sandbox.exec("sleep 60 & sh -c 'kill -9 -1'; sleep 60")
    assert result.returncode == 137
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert sandbox.exec("true").returncode == 0


def test_processes_of_the_host_are_neither_seen_nor_signalled(sandbox):
    bystander = subprocess.Popen(["sleep", token()])
    try:
        result = sandbox.exec(
            f"kill -9 {bystander.pid}; kill -9 {os.getpid()}; "
            "ls -d /proc/[0-9]* | wc -l; kill -9 1; echo alive"
        )
        assert bystander.poll() is None
        lines = text(result).splitlines()
        assert lines[-1] == "alive"
        assert sum("No such process" in line for line in lines) == 2
        assert int(next(line for line in lines if line.isdigit())) <= 8
        assert bystander.args[1] not in text(sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))
    finally:
        bystander.kill()
        bystander.wait()


# -- what is visible


@pytest.mark.on_docker
def test_the_root_cannot_be_written(sandbox):
    places = "/ /usr /usr/bin /etc /opt/toolbox /opt/toolbox/bin /opt/toolbox/lib /dev /proc /proc/sys /home"
    result = sandbox.exec(
        f"for d in {places}; do touch $d/mine 2>/dev/null && echo WROTE $d; done; "
        "echo 127.0.0.1 x >> /etc/hosts; rm -f /usr/bin/env /etc/passwd; echo end"
    )
    assert "WROTE" not in text(result) and text(result).endswith("end\n")
    assert os.path.exists("/usr/bin/env")


def test_the_host_is_not_there(sandbox, monkeypatch):
    monkeypatch.setenv("SWELAB_TEST_SECRET", "hunter2")
    shown = text(sandbox.exec("env; cat /proc/self/environ | tr '\\0' '\\n'; cat /etc/passwd; ls -A /home"))
    assert "hunter2" not in shown and shown.splitlines()[-1] == "agent"
    # If uv fetched the Python of the sandboxes into the clone, a sandbox sees this Python, and nothing else.
    fetched = [".python\n"] if (ROOT / ".python").is_dir() else []
    assert text(sandbox.exec(f"ls -A {ROOT} 2>/dev/null || echo absent")) in ["absent\n", *fetched]
    for path in (Path(__file__), Path.home() / ".ssh"):
        assert text(sandbox.exec(f"test -e {path} || echo absent")) == "absent\n", path
    assert sandbox.exec("cat /etc/shadow /root/x /proc/1/environ /proc/kcore").returncode != 0


def test_environment_is_ours_alone_and_additions_reach_the_command(sandbox):
    names = {line.partition("=")[0] for line in text(sandbox.exec("env")).splitlines()}
    ours = {"HOME", "PATH", "LC_ALL", "TZ", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"}
    assert names == ours | {"PWD", "SHLVL", "_"}
    assert text(sandbox.exec("echo $A-$TZ", env={"A": "b c\n$(d)", "TZ": "UTC+3"})) == "b c $(d)-UTC+3\n"
    with pytest.raises(ValueError):
        sandbox.exec("true", env={"A=B": "c"})


def test_hostile_variables_do_not_reach_what_runs_before_the_command(sandbox):
    """BASH_ENV and LD_PRELOAD affect the command as usual, but not the shell that drops privileges."""
    sandbox.put("evil.sh", b"echo evil $$")
    result = sandbox.exec("echo ran", env={"BASH_ENV": "/testbed/evil.sh", "LD_PRELOAD": "/testbed/none.so"})
    assert text(result).count("evil") == 1
    sandbox.exec("echo 'echo from bashrc' > ~/.bashrc; cp ~/.bashrc ~/.profile")
    assert text(sandbox.exec("echo ran")) == "ran\n"


@pytest.mark.on_docker
def test_no_descriptor_is_inherited(sandbox):
    kept = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        links = text(sandbox.exec("readlink /proc/self/fd/*")).splitlines()
    finally:
        os.close(kept)
    assert links[0] == "/dev/null" and links[1].startswith("pipe:") and links[2] == links[1]
    assert len(links) <= 4 and all(link.startswith(("/dev/null", "pipe:", "/proc/")) for link in links)


def test_the_end_of_a_command_cannot_be_forged_nor_its_stream_broken(sandbox):
    """Attacks: lines of our own protocols, a non-blocking stream, processes that outlive their parent."""
    forged = f"{'0' * 32} 0 -"
    result = sandbox.exec(f"echo '{forged}'; printf '{forged}' >&2; exit 5")
    assert (result.returncode, text(result)) == (5, f"{forged}\n{forged}")
    setting = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_NONBLOCK)"
    late = 'setsid sh -c "while :; do echo late; touch /tmp/late; done" & until test -e /tmp/late; do :; done'
    sandbox.exec(f'python -c "{setting}"; {late}')
    result = sandbox.exec("head -c 3000000 /dev/zero; exit 6")
    assert (result.returncode, result.dropped_bytes) == (6, 3_000_000 - Limits().output_bytes)
    assert b"late" not in result.output


# -- the network


@pytest.mark.on_docker
def test_there_is_no_network(sandbox):
    listeners = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
    name = f"swelab-test-{os.getpid()}"
    listeners[1].bind("\0" + name)
    listeners[1].listen()
    try:
        result = sandbox.exec(
            "python - <<'E'\nimport socket\n"
            "def attempt(family, address):\n"
            "  try: s = socket.socket(family); s.settimeout(60); s.connect(address); print('CONNECTED')\n"
            "  except OSError as e: print(type(e).__name__)\n"
            f"attempt(socket.AF_INET, ('127.0.0.1', {listeners[0].getsockname()[1]}))\n"
            f"attempt(socket.AF_UNIX, '\\0{name}')\n"
            "attempt(socket.AF_INET, ('1.1.1.1', 53))\n"
            "attempt(socket.AF_VSOCK, (2, 2024))\n"
            "s = socket.create_server(('127.0.0.1', 0)); attempt(socket.AF_INET, s.getsockname())\nE"
        )
    finally:
        for listener in listeners:
            listener.close()
    lines = text(result).splitlines()
    assert lines[:2] == ["ConnectionRefusedError", "ConnectionRefusedError"]
    assert lines[2:4] == ["OSError", "OSError"]
    assert lines[4] == "CONNECTED"  # its own loopback works, so tests can run servers


# -- privileges


@pytest.mark.on_docker
def test_no_privilege_is_held_or_gained(sandbox):
    status = text(sandbox.exec("cat /proc/self/status"))
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert all(int(fields[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    result = sandbox.exec(
        "id -un; whoami; (mount -t tmpfs none /tmp; unshare -Ur true; unshare -m true; chroot / true; "
        "su -c true; nsenter -t 1 -m true; mknod /tmp/d c 1 3; chown root a.txt; "
        "cp /bin/bash /tmp/suid && chmod 4755 /tmp/suid && chown root /tmp/suid) >/dev/null 2>&1; "
        "/tmp/suid -p -c 'id -un'; stat -c %U a.txt; ls /tmp/d 2>&1"
    )
    assert text(result).split()[:4] == ["agent"] * 4
    assert "No such file" in text(result)


@pytest.mark.on_docker
def test_dangerous_calls_of_the_kernel_are_refused(sandbox):
    calls = {
        "ptrace": 101,
        "unshare": 272,
        "mount": 165,
        "keyctl": 250,
        "bpf": 321,
        "setns": 308,
        "io_uring_setup": 425,
        "userfaultfd": 323,
        "perf_event_open": 298,
        "clone3": 435,
        "fadvise64": 221,
        "readahead": 187,
        "mincore": 27,
        "sync_file_range": 277,
        "cachestat": 451,
    }
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers in this test are those of x86_64")
    result = sandbox.exec(
        "python - <<'E'\nimport ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {calls}.items():\n"
        "  print(name, libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())\n"
        "print('x32', libc.syscall(0x40000000 + 39), ctypes.get_errno())\n"
        "print('clone', libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0), ctypes.get_errno())\n"
        "room = ctypes.create_string_buffer(8192)\n"
        "part = (ctypes.c_uint64 * 2)(ctypes.addressof(room), 1)\n"
        "page = ctypes.c_uint64(ctypes.addressof(room) + 4095 & ~4095)\n"
        "for advice in (20, 21): print('madvise', libc.syscall(28, page, ctypes.c_size_t(4096), advice), "
        "ctypes.get_errno())\n"
        "file = open('a.txt', 'rb')\n"
        "here = file.fileno()\n"
        "print('nowait', libc.syscall(327, here, part, 1, 0, 0, 8), ctypes.get_errno())\n"
        "print('waits', libc.syscall(327, here, part, 1, 0, 0, 0))\n"
        "print('advised', libc.syscall(28, page, ctypes.c_size_t(4096), 4))\nE"
    )
    answers = {line.split()[0]: line.split()[1:] for line in text(result).splitlines()}
    assert (answers.pop("waits"), answers.pop("advised")) == (["1"], ["0"])
    assert len(answers) == len(calls) + 4
    refused = {"1", "38", str(errno.EOPNOTSUPP)}
    assert all(answer[0] == "-1" and answer[1] in refused for answer in answers.values()), answers
