"""A pool of several hosts in which every part is killed at the worst moment.

Whatever happens: a command runs once, a slot is leased once, and after one time to live nothing is left.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from swelab.sandbox import Limits, SandboxLost, open_backend
from swelab.sandbox.remote_protocol import NoPlace
from tests.conftest import ROOT
from tests.contract import pool_servers
from tests.contract.attacks import PATIENCE, processes_with, text, token, until
from tests.contract.cable import Cable

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
TTL = 8  # for tests that wait until leases end
LONG = 300  # for tests in which no lease may end: longer than any test waits (PATIENCE), on any machine
PLACES = 3
SMALL = Limits(wall_seconds=20, memory_bytes=256 << 20, disk_bytes=64 << 20)


@pytest.fixture(scope="module")
def whole(engine, tmp_path_factory):
    opened = pool_servers.Site(engine, tmp_path_factory.mktemp("site"), 3, PLACES, LONG)
    yield opened
    opened.close()
    assert until(lambda: engine.containers() == [], PATIENCE)


@pytest.fixture
def site(whole, monkeypatch):
    """A pool whose leases end soon unless they are renewed."""
    yield from lent(whole, TTL, monkeypatch)


@pytest.fixture
def patient(whole, monkeypatch):
    """The pool for tests in which no lease ends by time, so that leftovers stay and are found."""
    yield from lent(whole, LONG, monkeypatch)


def lent(whole, ttl, monkeypatch):
    whole.lend_for(ttl)
    for name, value in {**whole.told(), "SWELAB_POOL_WAIT": "240"}.items():
        monkeypatch.setenv(name, value)
    yield whole
    whole.mend()
    assert whole.clean(at_once=True)


class Lives:
    """Works on instances in parallel. As in a shard, an instance is tried again if its sandbox is lost.

    With `held`, no worker ends before `release`, so an event until then affects all of them.
    """

    def __init__(self, tree, count, turns=1, pause=0.3, held=False):
        self.backend, self.tree = open_backend("remote"), tree
        self.turns, self.pause, self.enough = turns, pause, threading.Event()
        if not held:
            self.release()
        self.lost, self.done, self.wrong, self.places = Counter(), {}, [], []
        self.threads = [threading.Thread(target=self._live, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def release(self):
        self.enough.set()

    def _live(self, number):
        while number not in self.done:
            try:
                with self.backend.start(self.tree, limits=SMALL) as box:
                    self.places.append(box.container_id)
                    for turn in itertools.count():
                        if turn >= self.turns and self.enough.is_set():
                            break
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
        """Releases all workers and waits for them."""
        self.release()
        for thread in self.threads:
            thread.join(200)
        assert self.wrong == [] and len(self.done) == len(self.threads)
        assert len(set(self.places)) == len(self.places), "a sandbox was lent twice"


def test_the_pool_server_killed_under_work(patient, tree):
    lives = Lives(tree, 8, turns=4, held=True)
    time.sleep(0.5)
    restart(patient.pool)  # while sandboxes are created
    assert until(lambda: len(lives.places) == 8, PATIENCE)
    restart(patient.pool)  # while they work
    lives.join()
    assert lives.lost == {}, "work that was well was lost"
    assert patient.clean()


def restart(server):
    server.kill()
    time.sleep(0.2)
    server.start()


def test_an_exec_server_killed_under_work(patient, tree):
    lives = Lives(tree, 6, held=True)
    assert until(lambda: len(lives.places) == 6, PATIENCE)
    here = patient.hosts[0].ask("/status")["active_containers"]
    assert here >= 1
    patient.hosts[0].kill()
    time.sleep(1)
    patient.hosts[0].start()
    assert until(lambda: sum(lives.lost.values()) == here, PATIENCE)
    lives.join()
    assert sum(lives.lost.values()) == here and max(lives.lost.values()) == 1
    assert patient.clean()
    assert until(lambda: patient.pool.ask("/healthz")["healthy_nodes"] == 3, PATIENCE)


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
    sleep, backend = token(), open_backend("remote")
    ours = [backend.start(tree, limits=SMALL) for _ in range(3 * PLACES - 3)]
    working = [_client(tree, f"sleep {sleep}") for _ in range(3)]
    for each in working:
        assert each.stdout.readline()
    waiting = [_client(tree, "true") for _ in range(3)]
    assert until(lambda: site.pool.ask("/status")["pool"]["waiting"] == 3, PATIENCE)
    for each in waiting[:1] + working[:2]:
        each.kill()
    assert until(lambda: site.pool.ask("/status")["pool"]["waiting"] == 0, PATIENCE), "no place was given on"
    for each in waiting[1:]:
        assert each.wait(PATIENCE) == 0
    assert working[2].poll() is None, "a living client lost its place"
    working[2].kill()
    for box in ours:
        assert text(box.exec("cat a.txt")) == "hello\n"
        box.close()
    assert site.clean() and processes_with(sleep) == []
    for each in working + waiting:
        each.communicate()


def test_a_client_killed_at_any_moment_of_asking(site, tree):
    for number in range(6):
        caller = _client(tree, "true")
        time.sleep(0.3 + 0.25 * number)
        caller.kill()
        caller.communicate()
    assert site.clean()


def test_a_host_cut_off_for_long_and_for_a_moment(site, tree):
    lives = Lives(tree, 6, pause=0.5, held=True)
    assert until(lambda: len(lives.places) == 6, PATIENCE)
    site.cables[0].cut = True
    time.sleep(0.6)
    site.cables[0].cut = False
    time.sleep(1.0)
    assert lives.lost == {}, "a moment's silence cost work"
    here = set(site.hosts[1].ask("/status")["containers"])
    site.cables[1].cut = True
    # Nothing can reach that host, so it ends the sandboxes itself.
    assert here and until(lambda: not here & set(site.engine.containers()), PATIENCE)
    assert until(lambda: sum(lives.lost.values()) >= len(here), PATIENCE)
    site.cables[1].cut = False
    lives.join()
    assert sum(lives.lost.values()) == len(here)
    assert site.clean()
    assert until(lambda: site.pool.ask("/healthz")["healthy_nodes"] == 3, PATIENCE)


def test_a_client_cut_off_for_a_moment_and_for_long(site, tree, monkeypatch):
    cable, said = Cable(site.pool.url), []
    monkeypatch.setenv("SWELAB_POOL", cable.url)
    box = open_backend("remote").start(tree, limits=SMALL)
    asking = threading.Thread(target=lambda: said.append(text(box.exec("sleep 1; echo x >> log; cat log"))))
    asking.start()
    cable.cut = True
    time.sleep(TTL / 3)
    cable.cut = False
    asking.join(PATIENCE)
    assert said == ["x\n"]
    cable.cut = True
    assert site.clean(), "a sandbox outlived its client"
    cable.cut = False
    with pytest.raises(SandboxLost, match="not renewed"):
        box.exec("true")
    box.close()
    cable.close()


def test_a_host_that_hangs(site, tree):
    lives = Lives(tree, 6, held=True)
    assert until(lambda: len(lives.places) == 6, PATIENCE)
    here = site.hosts[2].ask("/status")["active_containers"]
    site.hosts[2].kill(signal.SIGSTOP)
    assert here and until(lambda: sum(lives.lost.values()) == here, PATIENCE)
    lives.join()
    assert sum(lives.lost.values()) == here
    site.hosts[2].kill(signal.SIGCONT)
    assert site.clean()


def test_a_slow_host(patient, tree):
    patient.cables[0].delay = 0.4
    lives = Lives(tree, 6, turns=3)
    lives.join()
    assert lives.lost == {} and patient.clean()


def test_clocks_that_disagree_and_jump(patient, tree, tmp_path):
    """During the work a host's time of day jumps a day forward, and the pool's a day back."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("no libfaketime (make test-full installs it)")
    odd, before = (patient.hosts[0], patient.pool), []
    for server in odd:
        (tmp_path / server.name).write_text("+0\n")
        before.append(server._env)
        faked = {"FAKETIME_TIMESTAMP_FILE": str(tmp_path / server.name), "LD_PRELOAD": str(library)}
        faked |= {"FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        server.kill()
        server._env = {**server._env, **faked}
        server.start()
    assert until(lambda: patient.pool.ask("/healthz")["healthy_nodes"] == 3, PATIENCE)
    lives = Lives(tree, 6, pause=0.4, held=True)
    for jumps in (("+1d", "-1d"), ("-2d", "+2d")):
        assert until(lambda: len(lives.places) == 6, PATIENCE)
        for server, jump in zip(odd, jumps):
            (tmp_path / server.name).write_text(jump + "\n")
        time.sleep(2.0)
    lives.join()
    made = odd[0].ask("/container/create", {"tree": True})["container_id"]
    shown = odd[0].ask("/status")["containers"][made]["created_at"]
    assert abs(shown - time.time()) > 86400, "the clock did not jump"
    odd[0].ask("/container/destroy", {"container_id": made})
    assert lives.lost == {} and patient.clean()
    for server, env in zip(odd, before):
        server.kill()
        server._env = env


def test_two_hundred_clients_at_once(patient, tree):
    """Half of the clients give up early and use no slot. All others are served."""
    most, ended, told = [0], threading.Event(), []
    ever = 'swelab_pool_lease_events_total{event="allocated"}'
    before = patient.pool.metrics()[ever]

    def count():
        while not ended.wait(0.2):
            most[0] = max(most[0], len(patient.engine.containers()))

    def give_up(number):
        asked = {"tree": True, "request_id": f"impatient-{number}", "deadline_seconds": number / 50}
        told.append(patient.pool.ask("/allocate", asked))
        if told[-1]["ok"]:
            patient.pool.ask("/close", {"lease_id": told[-1]["lease_id"]})

    others = [threading.Thread(target=give_up, args=(number,)) for number in range(100)]
    for thread in (counter := threading.Thread(target=count), *others):
        thread.start()
    try:
        lives = Lives(tree, 100, turns=1, pause=0)
        lives.join()
    finally:
        ended.set()
        for thread in (counter, *others):
            thread.join()
    assert lives.lost == {} and len(set(lives.done.values())) == 100
    assert most[0] <= 3 * PLACES and patient.clean()
    served = sum(answer["ok"] for answer in told)
    assert len(told) == 100 and {each.get("error_type") for each in told if not each["ok"]} == {"NoPlace"}
    assert patient.pool.metrics()[ever] == before + 100 + served


def test_a_place_in_time_or_none(patient, tree, monkeypatch):
    backend = open_backend("remote")
    held = [backend.start(tree, limits=SMALL) for _ in range(3 * PLACES)]
    monkeypatch.setenv("SWELAB_POOL_WAIT", "1")
    began = time.monotonic()
    with pytest.raises(NoPlace, match="no host had room in 1 s"):
        open_backend("remote").start(tree, limits=SMALL)
    assert time.monotonic() - began < 200, "it waited for as long as others may"
    asked = {"tree": True, "request_id": "to-be-cancelled"}
    told = []
    waiter = threading.Thread(target=lambda: told.append(patient.pool.ask("/allocate", asked)))
    waiter.start()
    assert until(lambda: patient.pool.ask("/status")["pool"]["waiting"] == 1, PATIENCE)
    assert patient.pool.ask("/cancel", {"request_id": "to-be-cancelled"}) == {"ok": True, "found": True}
    waiter.join(PATIENCE)
    assert told[0]["error"] == "the request was cancelled"
    assert not patient.pool.ask("/cancel", {"request_id": "to-be-cancelled"})["found"]
    for box in held:
        box.close()
    assert patient.clean(at_once=True)


def test_hosts_that_join_are_drained_and_leave(patient, tree):
    backend, keeper = open_backend("remote"), patient.hosts[0].token
    urls = [cable.url for cable in patient.cables]
    for url in urls[1:]:
        assert patient.pool.ask("/nodes/leave", {"url": url}, token=keeper)["ok"]
    held = [backend.start(tree, limits=SMALL) for _ in range(PLACES)]
    assert patient.hosts[0].ask("/status")["active_containers"] == PLACES
    assert patient.pool.ask("/nodes/drain", {"url": urls[0]}, token=keeper)["leases"] == PLACES
    assert f"{PLACES} leases" in patient.pool.ask("/nodes/leave", {"url": urls[0]}, token=keeper)["error"]
    assert patient.pool.ask("/nodes/join", {"url": urls[1]}, token=keeper)["ok"]
    patient.pool.kill()
    patient.pool.start()  # it still knows which hosts are in the pool and which are drained
    held.append(backend.start(tree, limits=SMALL))
    assert patient.hosts[1].ask("/status")["active_containers"] == 1
    assert text(held[0].exec("cat a.txt")) == "hello\n"
    assert patient.pool.ask("/nodes/leave", {"url": urls[0], "force": True}, token=keeper)["ok"]
    with pytest.raises(SandboxLost, match="its node left the pool"):
        held[0].exec("true")
    for box in held:
        box.close()
    assert not patient.pool.ask("/nodes/join", {"url": "http://127.0.0.1:1"}, token=keeper)["ok"]
    assert patient.clean(at_once=True)
