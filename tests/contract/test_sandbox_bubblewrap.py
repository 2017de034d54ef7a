"""Properties of bubblewrap only: its folders and namespaces, and machines that cannot make them."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from swelab.sandbox import Limits, SandboxLost, open_backend, python_view, rootfs
from tests.conftest import ROOT
from tests.contract.attacks import PATIENCE, SHORT, SOCKETS, processes_with, program, text, token, until

pytestmark = pytest.mark.real


# -- what the host sees


def test_the_host_is_not_there(sandbox, monkeypatch):
    monkeypatch.setenv("SWELAB_TEST_SECRET", "hunter2")
    result = sandbox.exec("ls -A / /home /etc; env; cat /proc/self/environ | tr '\\0' '\\n'; cat /etc/passwd")
    shown = text(result)
    assert "hunter2" not in shown and "shadow" not in shown and "ssh" not in shown
    top = shown.split("\n\n")[0].splitlines()[1:]
    assert set(top) <= {
        *"bin dev etc home lib lib32 lib64 opt proc root sbin testbed tmp usr".split(),
        *_prefix_tops(),
    }
    assert text(sandbox.exec("ls -A /home")) == "agent\n"
    own_python = [".python"] * Path(sys.base_prefix).is_relative_to(ROOT / ".python")
    assert text(sandbox.exec(f"ls -A {ROOT} 2>/dev/null")).split() == own_python
    for path in (Path(__file__), Path.home() / ".ssh", Path("/var"), Path("/run"), Path("/sys")):
        assert text(sandbox.exec(f"test -e {path} || echo absent")) == "absent\n", path


def _prefix_tops():
    return {Path(sys.base_prefix).parts[1]}


# Debian's own Python has the prefix /usr, which also contains programs and documents.
OTHER_PREFIX = sys.base_prefix if sys.base_prefix != "/usr" else "/usr/lib/python"
PYTHONS = ("/usr/lib/python", "/usr/local/lib/python", OTHER_PREFIX, rootfs.TOOLBOX)


@pytest.fixture(scope="module")
def toolbox_with_installers(backend, tmp_path_factory):
    """A toolbox as `python -m venv` and pip leave it, with few files."""
    folder = tmp_path_factory.mktemp("toolbox") / "venv"
    shutil.copytree(backend.toolbox.path, folder, symlinks=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    for name in ("setuptools/_vendor/ordered_set.py", "pip/__init__.py", "pkg_resources/__init__.py"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("x = 1\n")
    shutil.copy(folder / "bin/pytest", folder / "bin/pip3.11")
    return folder


@pytest.mark.parametrize("installers", [False, True])
def test_no_package_of_the_machine_is_there(backend, tree, toolbox_with_installers, installers):
    """Each package of the machine may contain a clean copy of a task's code; setuptools brings a dozen."""
    if installers:
        backend = open_backend("bubblewrap", toolbox=toolbox_with_installers)
    with backend.start(tree, limits=SHORT) as sandbox:
        _holds_no_package(sandbox, backend)
        assert _names_in_pythons(sandbox, "pip", "ordered_set*", "xmltodict*", "setuptools*") == []


def _holds_no_package(sandbox, backend):
    code = "import sys, pytest; sys.exit(any(map(__import__('importlib.util').util.find_spec, sys.argv[1:])))"
    shown = sandbox.exec(f'python -c "{code}" pip setuptools pkg_resources ordered_set xmltodict')
    assert (shown.returncode, text(shown)) == (0, "")
    places = [Path("/usr"), Path("/usr/local"), *(Path(host) for host, _ in backend.toolbox.prefixes)]
    folders = {path for place in places for path in place.glob("lib/python*/*-packages")}
    assert folders
    assert text(sandbox.exec(f"ls -A {' '.join(map(str, folders))} | grep -v ':$' | grep .")) == ""
    assert text(sandbox.exec(f"ls {rootfs.TOOLBOX}/bin | grep -i -e pip -e activate")) == ""


def _names_in_pythons(sandbox, *names):
    wanted = " -o ".join(f"-name '{name}'" for name in names)
    found = text(sandbox.exec(f"find / {wanted} 2>/dev/null")).splitlines()
    return [path for path in found if path.startswith(PYTHONS)]


def test_programs_packages_are_hidden(monkeypatch, tmp_path):
    """A program of the machine may bring packages.

    Inside the sandbox the folder with these packages is empty.
    """
    for name in ("sdk/lib/one", "sdk/third/two", "one/app/lib", "gcc/python", "pyenv/a/lib/x", "pyenv/b/x"):
        (tmp_path / "share" / name).mkdir(parents=True)
        (tmp_path / "share" / name / "__init__.py").touch()
    (tmp_path / "share/plain/data").mkdir(parents=True)
    monkeypatch.setattr(python_view, "_PLACES_OF_PROGRAMS", (str(tmp_path / "share"),))
    hidden = list(python_view.packages_of_programs(tmp_path / "share/pyenv/a"))
    assert hidden == [f"{tmp_path}/share/{name}" for name in ("one/app", "pyenv/b", "sdk")]


@pytest.mark.full
def test_many_processes_at_once_take_no_more_memory_than_the_control_group_gives(backend, tree):
    """Forty processes, each below the bound of one, would exceed the group's memory between two checks."""
    limits = Limits(memory_bytes=512 << 20, disk_bytes=64 << 20, shm_bytes=16 << 20, processes=64)
    code = (
        "import os, time\nfor _ in range(40):\n"
        "  os.fork() or (bytearray(200 << 20), time.sleep(20), os._exit(0))"
    )
    with backend.start(tree, limits=limits) as box:
        if box._group is None:
            pytest.skip("no control group for memory may be made here")
        met = box.exec(f"python3 -c '{code}\ntime.sleep(10)'")
        assert (met.returncode, met.limit) == (137, "memory")
        group = box._group.folder
        peaks = [
            path for name in ("memory.max_usage_in_bytes", "memory.peak") if (path := group / name).exists()
        ]
        assert peaks and 400 << 20 < int(peaks[0].read_text()) <= 592 << 20
        assert box.exec("echo ok").output == b"ok\n"
        group.rmdir()  # cleans up as another caller does, which takes the folder for a leftover
        assert box.exec("cat /proc/self/cgroup").returncode == 0 and group.exists()
    assert not group.exists()


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
def test_what_one_sandbox_fills_is_missing_in_no_other(backend, tree):
    """The kernel bounds bytes and inodes of each sandbox. Checks at intervals would miss bursts."""
    own = Limits(disk_bytes=64 << 20, processes=64)
    make = "mkdir m; for p in {1..8}; do (for ((;;)); do : >m/$p-$((++n)); done) & done; wait"
    with backend.start(tree, limits=own) as one, backend.start(tree, limits=own) as other:
        if backend.mounter() is None:
            pytest.skip("sandboxes share a file system here")
        free = text(other.exec("stat -f -c '%d %a' /tmp"))
        assert one.exec(make).limit == "disk"
        assert len(os.listdir(one.folder / "testbed/m")) < 14_000
        assert text(other.exec("stat -f -c '%d %a' /tmp")) == free
        assert one.exec("cat /dev/zero >m/1-1").limit in ("disk", "file", "")
        room = os.statvfs(one.folder)
        assert room.f_blocks * room.f_frsize <= 145 << 20
        assert text(other.exec("stat -f -c '%d %a' /tmp")) == free
    assert not one.folder.exists()


def test_a_script_of_the_toolbox_and_a_new_venv_work(sandbox):
    made = sandbox.exec(
        "pytest --version && python -m venv --without-pip /tmp/v && /tmp/v/bin/python -c 'import ssl'"
    )
    assert made.returncode == 0, text(made)


def test_the_user_of_the_host_is_nobody_in_particular(sandbox):
    """Files made inside belong to a user of the host that is not root (or to the caller)."""
    sandbox.exec("touch mine")
    owner = os.stat(sandbox._scratch.path / "testbed" / "mine").st_uid
    assert owner != 0
    if os.geteuid() == 0:
        assert owner > 60000


@pytest.mark.full
@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_what_waits_in_sockets_is_memory(sandbox, family):
    own = Limits(wall_seconds=600, memory_bytes=512 << 20)
    few = "python -c 'import socket; k = [socket.socketpair() for _ in range(200)]; print(len(k))'"
    assert text(sandbox.exec(few, limits=own)) == "200\n"
    result = sandbox.exec(SOCKETS.replace("KIND", family), limits=own)
    assert (result.returncode, result.limit) == (137, "memory")


# -- ends


def test_a_sandbox_whose_folder_is_gone_is_lost(backend, tree):
    box = backend.start(tree)
    subprocess.run(["rm", "-rf", str(box._scratch.path)], check=True)
    with pytest.raises(SandboxLost, match="bwrap"):
        box.exec("true")
    box.close()


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


@pytest.mark.full
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
    assert until(lambda: sleeping("parent") and sleeping("child"))
    os.kill(pids[first_to_die], signal.SIGKILL)
    assert until(lambda: not sleeping(first_to_die))
    assert sleeping(second)
    os.kill(pids[second], signal.SIGKILL)
    assert until(lambda: not sleeping(second))
    parent.communicate()


@pytest.mark.full
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
        runner.join(PATIENCE)
        assert len(failure) == 1
        assert processes_with(sleep) == []
        assert until(lambda: not backend._lifeline.holds())
        assert text(box.exec("echo again")) == "again\n"


# -- machines that cannot make sandboxes


def _open(*wrap, **env):
    code = "from swelab.sandbox import BackendMissing, open_backend\ntry: open_backend(); print('fine')\n"
    code += "except BackendMissing as error: print(error)"
    command = [*wrap, sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    options = {"stdout": subprocess.PIPE, "text": True, "timeout": 600}
    done = subprocess.run(command, env=environment, cwd=ROOT, **options)
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


_OPENED_AT_ONCE = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from swelab.sandbox import open_backend
together = threading.Barrier(8)

def one(_):
    together.wait()
    with open_backend("bubblewrap").start(Path(sys.argv[1])) as sandbox:
        return sandbox.exec("cat there").output

with ThreadPoolExecutor(8) as pool:
    print(set(pool.map(one, range(8))))
"""


def test_threads_that_open_backends_at_once_all_get_working_sandboxes(tmp_path, backend):
    (tmp_path / "there").write_text("here")
    command = [sys.executable, "-c", _OPENED_AT_ONCE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "{b'here'}\n", done.stderr[-2000:]
