"""The servers of a pool as processes, with files of their own: started, killed, started again."""

import os
import re
import secrets
import signal
import subprocess
import sys

import httpx

from swelab.sandbox.requirements import tool
from tests.conftest import ROOT
from tests.contract.attacks import PATIENCE, until
from tests.contract.cable import Cable

ENDED = 'swelab_pool_lease_events_total{event="expired"}'


class Server:
    """`python -m <room>.<name>` with a token of its own; after a kill it comes back at the same port."""

    def __init__(self, name, folder, *arguments, env=None, prefix=(), token=None, wait=True, room="scripts"):
        self.name, self.folder, self._room = name, folder, room
        folder.mkdir(parents=True, exist_ok=True)
        self.token_file = token or write_token(folder / "token")
        self.token = self.token_file.read_text().strip()
        self._arguments = [*map(str, arguments), "--token", str(self.token_file)]
        self._env, self._prefix, self._port = {**os.environ, **(env or {})}, prefix, 0
        self.process = self.url = None
        self._spawn()
        if wait:
            self.heard()

    def start(self, *more):
        """Start it again; what `more` says overrides its arguments from now on."""
        self._arguments += map(str, more)
        self._spawn()
        self.heard()

    def _spawn(self):
        command = [
            *(*self._prefix, tool("setpriv"), "--pdeathsig=KILL"),
            *(sys.executable, "-m", f"{self._room}.{self.name}", "--port", self._port, *self._arguments),
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, command)),
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def heard(self):
        """Wait until it says where it listens."""
        line = self.process.stdout.readline()
        found = re.fullmatch(r".* at (https?://.*:(\d+))\n", line)
        assert found, (line, self.log())
        self.url, self._port = found[1], int(found[2])

    def log(self):
        return (self.folder / "log").read_text()

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        if how == signal.SIGKILL:
            self.end()

    def end(self):
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def stop(self):
        """As systemd would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        self.end()

    def ask(self, path, body=None, token=None, **options):
        """The JSON answer to a GET, or to a POST of a body."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        if body is None:
            answer = httpx.get(self.url + path, headers=headers, timeout=PATIENCE, **options)
        else:
            answer = httpx.post(self.url + path, json=body, headers=headers, timeout=PATIENCE, **options)
        return answer.json()

    def metrics(self):
        headers = {"Authorization": f"Bearer {self.token}"}
        lines = httpx.get(self.url + "/metrics", headers=headers, timeout=PATIENCE).text.splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def write_token(path):
    path.write_text(secrets.token_urlsafe(32) + "\n")
    path.chmod(0o600)
    return path


def exec_server(engine, folder, *arguments, **options):
    """One in front of an engine, for all its images unless told."""
    folder.mkdir(parents=True, exist_ok=True)
    allowed = folder / "images"
    if not allowed.exists():
        allowed.write_text("*\n")
    given = ("--images", allowed, "--memory-gib", 200, *arguments)
    return Server("exec_server", folder, *given, env={"DOCKER_HOST": engine.address}, **options)


def folder_server(folder, *arguments, **options):
    """An exec server whose sandboxes are folders: all of the server, no engine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "images").write_text("*\n")
    given = ("--root", folder / "root", "--images", folder / "images", *arguments)
    return Server("pool_world", folder, *given, room="benchmarks", **options)


def pool_server(nodes, folder, *arguments, ttl=5, **options):
    """One that lends what `nodes` have; returns when they are known to be healthy."""
    given = ["--node-token", nodes[0].token_file, "--state", folder / "pool.sqlite", "--ttl", ttl]
    for node in nodes:
        given += ["--node", node.url]
    server = Server("pool_server", folder, *given, *arguments, **options)
    assert until(lambda: server.ask("/healthz")["healthy_nodes"] == len(nodes), PATIENCE), server.log()
    return server


class Site:
    """Hosts, each behind a cable, and their pool with leases of `ttl` seconds."""

    def __init__(self, engine, folder, hosts, places, ttl):
        self.engine, self.ttl = engine, ttl
        folder.mkdir(parents=True, exist_ok=True)
        shared = {"token": write_token(folder / "nodes.token"), "wait": False}
        self.hosts = [
            exec_server(engine, folder / f"host{n}", "--max-containers", places, **shared)
            for n in range(hosts)
        ]
        for host in self.hosts:
            host.heard()
        self.cables = [Cable(host.url) for host in self.hosts]
        direct = [host.url for host in self.hosts]
        for host, cable in zip(self.hosts, self.cables):
            host.url = cable.url
        self.pool = pool_server(self.hosts, folder / "pool", ttl=ttl)
        for host, url in zip(self.hosts, direct):
            host.url = url

    def lend_for(self, ttl):
        """Leases are of `ttl` seconds from now on: where they were not, the pool server is started again."""
        if ttl != self.ttl:
            self.pool.kill()
            self.pool.start("--ttl", ttl)
            self.ttl = ttl
            self.mend()

    def told(self):
        """The environment that leads to it."""
        return {"SWELAB_POOL": self.pool.url, "SWELAB_POOL_TOKEN_FILE": str(self.pool.token_file)}

    def mend(self):
        """Everything runs again, and the pool knows all its hosts."""
        for cable in self.cables:
            cable.cut, cable.delay = False, 0.0
        for server in (*self.hosts, self.pool):
            if server.process.poll() is not None:
                server.start()
            server.process.send_signal(signal.SIGCONT)
        for cable in self.cables:
            asked = {"url": cable.url}
            assert self.pool.ask("/nodes/join", asked, token=self.hosts[0].token)["ok"]
        assert until(lambda: self.pool.ask("/healthz")["healthy_nodes"] == len(self.hosts), PATIENCE)

    def close(self):
        self.pool.stop()
        for host in self.hosts:
            host.stop()
        for cable in self.cables:
            cable.close()

    def leases(self):
        """How many have a place."""
        return self.pool.ask("/status")["pool"]["total_leases"]

    def clean(self, at_once=False):
        """Whether in the end no container is left, and nobody believes that one is.

        at_once: and nothing was left to the end of its lease.
        """
        ended = self.pool.metrics().get(ENDED, 0)
        return (
            until(lambda: self.engine.containers() == [] and self.leases() == 0, PATIENCE)
            and until(lambda: self.engine.volumes() == [], PATIENCE)
            and not (at_once and self.pool.metrics().get(ENDED, 0) > ended)
        )
