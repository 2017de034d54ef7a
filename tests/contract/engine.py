"""A container engine for tests: a real dockerd in a folder of its own, which ends with all its containers."""

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
    """A running dockerd. `address` is the value for DOCKER_HOST."""

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
        """Runs the docker command and returns its output."""
        command = [tool("docker"), "--host", self.address, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, check=True, **options)
        return done.stdout.decode().strip()

    def containers(self):
        """Returns the ids of all containers.

        A killed engine may list a removed container, which cannot be inspected.
        """
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
        """Kills dockerd as an accident would: containers and their shims go on."""
        self._process.kill()
        self._process.wait()
        # Its containerd is a child process that dies with it, by its parent-death signal.
        assert until(lambda: not self._processes("containerd"))
        # Without an init process the killed dockerd stays a zombie, which the next dockerd takes for alive.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def stop(self):
        """Ends the containers, then the engine, then all other processes of the engine."""
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
            with contextlib.suppress(ProcessLookupError):  # the process may have ended meanwhile
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self._processes(""))
        for line in sorted(Path("/proc/self/mounts").read_text().splitlines(), reverse=True):
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], capture_output=True)

    def _processes(self, name):
        """Returns the processes of this engine. Their command lines contain its folder."""

        def ours(folder):
            words = (folder / "cmdline").read_bytes()
            here = f"{self.folder}/".encode() in words and int(folder.name) != os.getpid()
            return here and name in ("", Path(os.fsdecode(words.split(b"\0")[0])).name)

        return matching(ours)


def why_not():
    """Returns the reason why no engine can start here, or ""."""
    if os.geteuid() != 0:
        return "dockerd needs root"
    missing = [name for name in ("dockerd", "docker", "mmdebstrap") if tool(name) is None]
    return f"no program {', '.join(missing)} (make test installs it)" if missing else ""


def start_engine():
    """Starts an engine.

    Skips the test where no engine can run. Raises an error if an engine should start but does not.
    """
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = tempfile.mkdtemp(prefix="swelab-engine-")  # a socket's path has at most 107 characters
    engine = TestEngine(folder)
    try:
        engine.start()
    except BaseException:
        engine_end(engine)
        raise
    return engine


def engine_end(engine):
    """Stops an engine and deletes its files."""
    engine.stop()
    shutil.rmtree(engine.folder, ignore_errors=True)


def sandbox_image(cache, toolbox):
    """Returns the path of the sandbox image's record: $SWELAB_SANDBOX_IMAGE, or one made in `cache`."""
    given = os.environ.get("SWELAB_SANDBOX_IMAGE")
    if given:
        return Path(given)
    from swelab.sandbox import sandbox_image as module

    packages = sorted(os.listdir(next((toolbox / "lib").glob("python*/site-packages"))))
    made_from = json.dumps([packages, sha256_file(Path(module.__file__))])
    record, told = cache / "image.json", cache / "made_from"
    with open(cache / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another test process may be making it
        if not (record.exists() and told.exists() and told.read_text() == made_from):
            module.build(cache, toolbox)
            told.write_text(made_from)
    return record
