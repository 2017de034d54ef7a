"""A container engine of the tests' own: a real dockerd in a folder of its own, ended with all it started."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from swelab.records import sha256_file
from swelab.sandbox.requirements import tool
from tests.contract.attacks import until
from tests.processes import matching

_START_SECONDS = 300


class TestEngine:
    """A dockerd; `address` is what DOCKER_HOST is set to."""

    __test__ = False

    def __init__(self, folder):
        self.folder = Path(folder)
        self.address = f"unix://{self.folder}/docker.sock"
        self._process = None

    def start(self):
        command = [
            *(
                tool("setpriv"),
                "--pdeathsig=TERM",
                tool("dockerd"),
                "--data-root",
                self.folder / "data",
                "--exec-root",
                self.folder / "exec",
            ),
            *("--host", self.address, "--pidfile", self.folder / "pid"),
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if not until(lambda: self._process.poll() is not None or self._listens(), _START_SECONDS):
            raise RuntimeError("dockerd did not start in time")
        if self._process.poll() is not None:
            raise RuntimeError((self.folder / "log").read_text().splitlines()[-1])

    def _listens(self):
        done = subprocess.run(
            [tool("docker"), "--host", self.address, "version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return done.returncode == 0

    def docker(self, *arguments, **options):
        """What the docker command says."""
        command = [tool("docker"), "--host", self.address, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, check=True, **options)
        return done.stdout.decode().strip()

    def containers(self):
        """Ids. Engines that were killed may list a dead container that is gone: nobody can look at it."""
        listed = self.docker("ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.State}}").splitlines()
        states = dict(line.split() for line in listed)
        return [id for id, state in states.items() if state != "dead" or self._knows(id)]

    def _knows(self, container):
        try:
            return bool(self.docker("inspect", container))
        except subprocess.CalledProcessError:
            return False

    def volumes(self):
        return self.docker("volume", "ls", "--quiet").split()

    def kill(self):
        """As an accident would: containers and their shims live on."""
        self._process.kill()
        self._process.wait()
        # Its containerd is a child that dies with it (by its parent-death signal).
        assert until(lambda: not self._processes("containerd"))
        # Where no init waits for orphans it stays a zombie, which the next dockerd takes for a living one.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def stop(self):
        """End the containers, then the engine, then whatever it has left."""
        if self._process.poll() is None:
            for container in self.containers():
                subprocess.run(
                    [tool("docker"), "--host", self.address, "rm", "--force", "--volumes", container],
                    capture_output=True,
                )
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pid in self._processes(""):
            with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self._processes(""))
        for line in sorted(Path("/proc/self/mounts").read_text().splitlines(), reverse=True):
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], capture_output=True)

    def _processes(self, name):
        """Processes of this engine: their command line names its folder."""

        def ours(folder):
            words = (folder / "cmdline").read_bytes()
            here = f"{self.folder}/".encode() in words and int(folder.name) != os.getpid()
            return here and name in ("", Path(os.fsdecode(words.split(b"\0")[0])).name)

        return matching(ours)


def why_not():
    """Why no engine can be started here; "" if one can."""
    if os.geteuid() != 0:
        return "dockerd needs root"
    missing = [name for name in ("dockerd", "docker", "mmdebstrap") if tool(name) is None]
    return f"no program {', '.join(missing)} (make test installs it)" if missing else ""


def start_engine():
    """A fresh engine. Skips where none can be, and raises where one that should start does not."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = tempfile.mkdtemp(prefix="swelab-engine-")  # short: a socket's path has 107 characters at most
    engine = TestEngine(folder)
    try:
        engine.start()
    except BaseException:
        engine_end(engine)
        raise
    return engine


def engine_end(engine):
    """Stop an engine and delete what it had."""
    engine.stop()
    shutil.rmtree(engine.folder, ignore_errors=True)


def sandbox_image(cache, toolbox):
    """Record of the sandbox image: the one in $SWELAB_SANDBOX_IMAGE, or made once and kept in `cache`."""
    given = os.environ.get("SWELAB_SANDBOX_IMAGE")
    if given:
        return Path(given)
    from swelab.sandbox import image_build

    packages = sorted(os.listdir(next((toolbox / "lib").glob("python*/site-packages"))))
    made_from = json.dumps([packages, sha256_file(Path(image_build.__file__))])
    record, told = cache / "image.json", cache / "made_from"
    with open(cache / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another process of the tests may be making it
        if not (record.exists() and told.exists() and told.read_text() == made_from):
            image_build.build(cache, toolbox)
            told.write_text(made_from)
    return record
