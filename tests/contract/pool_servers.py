"""Servers of a pool as processes with their own files, which tests start, kill and start again."""

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
    """A process `python -m <room>.<name>` with its own token.

    After a kill it starts again at the same port.
    """

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
        """Starts the server again. more: arguments that override its arguments from now on."""
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
        """Waits until the server prints its address."""
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
        """Sends a GET, or a POST if there is a body. Returns the JSON response."""
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
    """Starts an exec server in front of an engine. By default it serves all images of the engine."""
    folder.mkdir(parents=True, exist_ok=True)
    allowed = folder / "images"
    if not allowed.exists():
        allowed.write_text("*\n")
    given = ("--images", allowed, "--memory-gib", 200, *arguments)
    return Server("exec_server", folder, *given, env={"DOCKER_HOST": engine.address}, **options)


def folder_server(folder, *arguments, **options):
    """Starts an exec server whose sandboxes are folders: the whole server without an engine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "images").write_text("*\n")
    given = ("--root", folder / "root", "--images", folder / "images", *arguments)
    return Server("pool_world", folder, *given, room="benchmarks", **options)


def pool_server(nodes, folder, *arguments, ttl=5, **options):
    """Starts a pool server for `nodes`. Returns when it reports them healthy."""
    given = ["--node-token", nodes[0].token_file, "--state", folder / "pool.sqlite", "--ttl", ttl]
    for node in nodes:
        given += ["--node", node.url]
    server = Server("pool_server", folder, *given, *arguments, **options)
    assert until(lambda: server.ask("/healthz")["healthy_nodes"] == len(nodes), PATIENCE), server.log()
    return server


class Site:
    """A pool and its hosts, each behind a cable. Leases last `ttl` seconds."""

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
        """Makes leases last `ttl` seconds. If `ttl` changes, the pool server is started again."""
        if ttl != self.ttl:
            self.pool.kill()
            self.pool.start("--ttl", ttl)
            self.ttl = ttl
            self.mend()

    def told(self):
        """The environment variables that lead to the pool."""
        return {"SWELAB_POOL": self.pool.url, "SWELAB_POOL_TOKEN_FILE": str(self.pool.token_file)}

    def mend(self):
        """Repairs and starts everything, and waits until all hosts are healthy."""
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
        """Returns the number of leases that have a sandbox."""
        return self.pool.ask("/status")["pool"]["total_leases"]

    def clean(self, at_once=False):
        """Returns whether all containers are removed in the end and no server counts one.

        at_once: no lease may have ended by its time limit.
        """
        ended = self.pool.metrics().get(ENDED, 0)
        return (
            until(lambda: self.engine.containers() == [] and self.leases() == 0, PATIENCE)
            and until(lambda: self.engine.volumes() == [], PATIENCE)
            and not (at_once and self.pool.metrics().get(ENDED, 0) > ended)
        )
