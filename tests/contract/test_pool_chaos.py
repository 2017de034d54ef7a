"""A pool of several hosts on which everything ends at the wrong moment, for real.

Whatever happens: a command is done once, a place is lent once, and one time to live later nothing is left.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from swelab.sandbox import Limits, SandboxLost, open_backend
from swelab.sandbox.remote_wire import NoPlace
from tests.conftest import ROOT
from tests.contract import pool_servers
from tests.contract.attacks import processes_with, text, token, until
from tests.contract.cable import Cable

pytestmark = pytest.mark.real
TTL = 8
PLACES = 4
SMALL = Limits(wall_seconds=20, memory_bytes=256 << 20, disk_bytes=64 << 20)


class Site:
    """Hosts, each behind a cable, and their pool; an environment that leads to it."""

    def __init__(self, engine, folder, monkeypatch, hosts=3, places=PLACES, **options):
        self.engine, self.folder = engine, folder
        shared = pool_servers.write_token(folder / "nodes.token")
        self.hosts = [
            pool_servers.exec_server(
                engine, folder / f"host{n}", "--max-containers", places, token=shared, **options
            )
            for n in range(hosts)
        ]
        self.cables = [Cable(host.url) for host in self.hosts]
        for host, cable in zip(self.hosts, self.cables):
            host.direct, host.url = host.url, cable.url
        self.pool = pool_servers.pool_server(self.hosts, folder / "pool", ttl=TTL, **options)
        for host in self.hosts:
            host.url = host.direct
        monkeypatch.setenv("SWELAB_POOL", self.pool.url)
        monkeypatch.setenv("SWELAB_POOL_TOKEN_FILE", str(self.pool.token_file))
        monkeypatch.setenv("SWELAB_POOL_WAIT", "240")

    def close(self):
        self.pool.stop()
        for host in self.hosts:
            host.stop()
        for cable in self.cables:
            cable.close()

    def clean(self, seconds=TTL + 3):
        """Whether in time no container is left, and nobody believes that one is."""
        return until(
            lambda: self.engine.containers() == [] and self.pool.ask("/status")["pool"]["total_leases"] == 0,
            seconds,
        ) and until(lambda: self.engine.volumes() == [], 5)


@pytest.fixture
def site(engine, tmp_path, monkeypatch):
    opened = Site(engine, tmp_path, monkeypatch)
    yield opened
    opened.close()
    assert until(lambda: engine.containers() == [], 10)


class Lives:
    """Instances worked at side by side; each is tried again, as a shard does, when its sandbox is lost."""

    def __init__(self, tree, count, turns=8, pause=0.3):
        self.backend, self.tree = open_backend("remote"), tree
        self.turns, self.pause = turns, pause
        self.lost, self.done, self.wrong, self.places = Counter(), {}, [], []
        self.threads = [threading.Thread(target=self._live, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def _live(self, number):
        while number not in self.done:
            try:
                with self.backend.start(self.tree, limits=SMALL) as box:
                    self.places.append(box.container_id)
                    for turn in range(self.turns):
                        said = text(box.exec(f"sleep {self.pause}; echo {turn} >> log; tr '\\n' ' ' < log"))
                        assert said == "".join(f"{each} " for each in range(turn + 1)), said
                assert number not in self.done
                self.done[number] = box.container_id
            except SandboxLost as error:
                self.lost[number] += 1
                if self.lost[number] > 5:
                    self.wrong.append(error)
                    return
            except BaseException as error:
                self.wrong.append(error)
                return

    def join(self):
        for thread in self.threads:
            thread.join(200)
        assert self.wrong == [] and len(self.done) == len(self.threads)
        assert len(set(self.places)) == len(self.places), "a sandbox was lent twice"


def test_the_pool_server_killed_under_work(site, tree):
    lives = Lives(tree, 12)
    for _ in range(3):
        time.sleep(0.8)
        site.pool.kill()
        time.sleep(0.2)
        site.pool.start()
    lives.join()
    assert lives.lost == {}, "work that was well was lost"
    assert site.clean()


def test_an_exec_server_killed_under_work(site, tree):
    lives = Lives(tree, 9)
    assert until(lambda: len(lives.places) == 9, 20)
    here = site.hosts[0].ask("/status")["active_containers"]
    assert here >= 2
    site.hosts[0].kill()
    time.sleep(1)
    site.hosts[0].start()
    lives.join()
    assert 1 <= sum(lives.lost.values()) <= here and max(lives.lost.values()) == 1
    assert site.clean()
    assert until(lambda: site.pool.ask("/healthz")["healthy_nodes"] == 3, 10)


CLIENT = """
import sys
from pathlib import Path
from swelab.sandbox import open_backend, Limits
small = Limits(memory_bytes=256 << 20, disk_bytes=64 << 20)
box = open_backend("remote").start(Path(sys.argv[1]), limits=small)
print(box.container_id, flush=True)
box.exec(sys.argv[2], limits=Limits(wall_seconds=100, memory_bytes=256 << 20))
"""


def _client(tree, command):
    words = [sys.executable, "-c", CLIENT, str(tree), command]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ)


def test_clients_killed_while_they_wait_and_while_they_work(site, tree):
    sleep = token()
    working = [_client(tree, f"sleep {sleep}") for _ in range(3 * PLACES)]
    for each in working:
        assert each.stdout.readline()
    waiting = [_client(tree, "true") for _ in range(4)]
    assert until(lambda: site.pool.ask("/status")["pool"]["waiting"] == 4, 20)
    for each in waiting[:2] + working[:6]:
        each.kill()
    assert until(lambda: site.pool.ask("/status")["pool"]["waiting"] == 0, TTL + 5), (
        "their places were not given on"
    )
    for each in waiting[2:]:
        each.wait(20)
    for each in working[6:]:
        assert each.poll() is None, "a living client lost its place"
        each.kill()
    assert site.clean(TTL + 4) and processes_with(sleep) == []
    for each in working + waiting:
        each.communicate()


def test_a_client_killed_at_any_moment_of_asking(site, tree):
    for number in range(10):
        caller = _client(tree, "true")
        time.sleep(0.3 + 0.15 * number)
        caller.kill()
        caller.communicate()
    assert site.clean(TTL + 4)


def test_a_host_cut_off_for_long_and_for_a_moment(site, tree):
    lives = Lives(tree, 6, turns=30)
    assert until(lambda: len(lives.places) == 6, 20)
    site.cables[0].cut = True
    time.sleep(0.6)
    site.cables[0].cut = False
    time.sleep(1.0)
    assert lives.lost == {}, "a moment's silence cost work"
    here = set(site.hosts[1].ask("/status")["containers"])
    site.cables[1].cut = True
    # Nobody can tell that host what to do: it ends the sandboxes itself.
    assert here and until(lambda: not here & set(site.engine.containers()), TTL + 3)
    assert until(lambda: sum(lives.lost.values()) >= len(here), TTL + 5)
    site.cables[1].cut = False
    lives.join()
    assert sum(lives.lost.values()) == len(here)
    assert site.clean()
    assert until(lambda: site.pool.ask("/healthz")["healthy_nodes"] == 3, 15)


def test_a_slow_host(site, tree):
    site.cables[0].delay = 0.4
    lives = Lives(tree, 6, turns=3)
    lives.join()
    assert lives.lost == {} and site.clean(TTL + 8)


def test_a_host_that_hangs(site, tree):
    lives = Lives(tree, 6, turns=12)
    assert until(lambda: len(lives.places) == 6, 20)
    here = site.hosts[2].ask("/status")["active_containers"]
    site.hosts[2].kill(signal.SIGSTOP)
    lives.join()
    assert 1 <= sum(lives.lost.values()) <= here
    site.hosts[2].kill(signal.SIGCONT)
    assert site.clean(TTL + 5)


def test_clocks_that_disagree(engine, tree, tmp_path, monkeypatch):
    """A day ahead on the hosts, a day behind at the pool, by what their Python takes for the time."""
    folder = tmp_path / "skew"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os, time\nreal = time.time\ntime.time = lambda: real() + float(os.environ['SKEW'])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("SKEW", "86400")
    site = Site(engine, tmp_path, monkeypatch, hosts=2)
    try:
        site.pool.kill()
        site.pool._env["SKEW"] = "-86400"
        site.pool.start()
        lives = Lives(tree, 4, turns=12, pause=0.5)
        lives.join()
        assert lives.lost == {} and site.clean()
    finally:
        site.close()


def test_two_hundred_clients_at_once(site, tree):
    most, ended = [0], threading.Event()

    def count():
        while not ended.wait(0.2):
            most[0] = max(most[0], len(site.engine.containers()))

    counter = threading.Thread(target=count)
    counter.start()
    began = time.monotonic()
    try:
        lives = Lives(tree, 200, turns=1, pause=0)
        lives.join()
    finally:
        ended.set()
        counter.join()
    print(f"200 clients on {3 * PLACES} places: {time.monotonic() - began:.1f} s")
    assert lives.lost == {} and len(set(lives.done.values())) == 200
    assert most[0] <= 3 * PLACES and site.clean()
    assert site.pool.metrics()['swelab_pool_leases_ever{how="allocated"}'] == 200


def test_a_place_in_time_or_none(site, tree, monkeypatch):
    backend = open_backend("remote")
    held = [backend.start(tree, limits=SMALL) for _ in range(3 * PLACES)]
    monkeypatch.setenv("SWELAB_POOL_WAIT", "1")
    began = time.monotonic()
    with pytest.raises(NoPlace, match="no host had room in 1 s"):
        open_backend("remote").start(tree, limits=SMALL)
    assert time.monotonic() - began < 4
    asked = {"tree": True, "request_id": "to-be-cancelled"}
    told = []
    waiter = threading.Thread(target=lambda: told.append(site.pool.ask("/allocate", asked)))
    waiter.start()
    assert until(lambda: site.pool.ask("/status")["pool"]["waiting"] == 1)
    assert site.pool.ask("/cancel", {"request_id": "to-be-cancelled"}) == {"ok": True, "found": True}
    waiter.join(5)
    assert told[0]["error"] == "the request was cancelled"
    assert not site.pool.ask("/cancel", {"request_id": "to-be-cancelled"})["found"]
    for box in held:
        box.close()
    assert site.clean(2)


def test_hosts_that_join_are_drained_and_leave(site, engine, tree):
    backend, keeper = open_backend("remote"), site.hosts[0].token
    urls = [cable.url for cable in site.cables]
    for url in urls[1:]:
        assert site.pool.ask("/nodes/leave", {"url": url}, token=keeper)["ok"]
    held = [backend.start(tree, limits=SMALL) for _ in range(PLACES)]
    assert site.hosts[0].ask("/status")["active_containers"] == PLACES
    assert site.pool.ask("/nodes/drain", {"url": urls[0]}, token=keeper)["leases"] == PLACES
    assert "4 leases" in site.pool.ask("/nodes/leave", {"url": urls[0]}, token=keeper)["error"]
    assert site.pool.ask("/nodes/join", {"url": urls[1]}, token=keeper)["ok"]
    site.pool.kill()
    site.pool.start()  # who is in the pool, and who is drained, it still knows
    held.append(backend.start(tree, limits=SMALL))
    assert site.hosts[1].ask("/status")["active_containers"] == 1
    assert text(held[0].exec("cat a.txt")) == "hello\n"
    assert site.pool.ask("/nodes/leave", {"url": urls[0], "force": True}, token=keeper)["ok"]
    with pytest.raises(SandboxLost, match="its node left the pool"):
        held[0].exec("true")
    for box in held:
        box.close()
    assert not site.pool.ask("/nodes/join", {"url": "http://127.0.0.1:1"}, token=keeper)["ok"]
    assert site.clean(3)


def test_clients_of_the_seed(site, image, monkeypatch):
    """Requests as they are sent by programs that know the older servers; but for the token."""
    for host in site.hosts:
        host.ask("/container/create", {"tree": True})  # loads the image
    pool = site.pool
    lease = pool.ask("/allocate", {"image": "swelab-sandbox:latest", "instance_id": "a__b-1"})
    assert {"ok", "lease_id", "container_id", "node_url"} <= lease.keys() and lease["ok"]
    named = {"lease_id": lease["lease_id"]}
    assert pool.ask("/heartbeat", named)["ok"]
    setup = "git init -q . && echo one > f && git add -A && git commit -qm x && echo two > f && echo new > g"
    told = pool.ask("/exec", {**named, "command": setup, "cwd": "/testbed", "timeout": 30, "env": {"A": "b"}})
    assert (told["ok"], told["returncode"], told["output"]) == (True, 0, "")
    told = pool.ask(
        "/exec",
        {**named, "command": "echo $A; pwd; printf '\\377'; exit 3", "env": {"A": "b"}, "cwd": "/tmp"},
    )
    assert (told["returncode"], told["output"]) == (3, "b\n/tmp\n\udcff")
    told = pool.ask("/exec", {**named, "command": "sleep 30", "timeout": 1})
    assert (told["ok"], told["returncode"], told["timed_out"]) == (True, 124, True)
    patch = pool.ask("/diff", {**named, "cwd": "/testbed"})["patch"]
    assert "-one\n+two\n" in patch and "+++ b/g" in patch
    script = "set -e\ngrep -q two f"
    assert (
        pool.ask("/evaluate", {**named, "patch": patch, "eval_script": script, "timeout": 60})["resolved"]
        is True
    )
    assert pool.ask("/evaluate", {**named, "patch": "", "eval_script": script})["resolved"] is False
    told = pool.ask("/evaluate", {**named, "patch": "no patch", "eval_script": script})
    assert (told["ok"], told["resolved"], told["error"]) == (True, False, "the patch does not apply")
    status = pool.ask("/status")["pool"]
    assert status["total_leases"] == 1
    assert {"url", "active_containers", "max_containers", "healthy"} <= status["nodes"][0].keys()
    assert pool.ask("/close", named)["ok"] and pool.ask("/close", named)["ok"]
    assert json.dumps(pool.ask("/exec", {**named, "command": "true"})).count("SandboxLost") == 1
