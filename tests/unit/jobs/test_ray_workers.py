"""Instances on hosts of a Ray cluster that are lost: what several threads get, without a cluster."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from swelab.jobs import ray_workers
from swelab.jobs.ray_workers import RayFailed, _Seat, _Spread


class Lost(Exception):
    """The fault of a host that is gone."""


class LosingRay:
    """A cluster whose only host takes `count` instances, and is then lost."""

    exceptions = SimpleNamespace(RayActorError=Lost, ObjectLostError=Lost, NodeDiedError=Lost)

    def __init__(self, count):
        self.started = threading.Barrier(count)
        self.alive, self.asked = True, 0

    def nodes(self):
        self.asked += not self.alive
        return [{"NodeID": "one", "Alive": True}] if self.alive else []

    def get(self, reference):
        self.started.wait(10)
        self.alive = False
        raise Lost("the node is gone")

    def kill(self, actor):
        """The host is gone."""


def test_every_thread_learns_in_one_line_that_the_last_host_is_lost(monkeypatch):
    threads = 3
    actor = SimpleNamespace(call=SimpleNamespace(remote=lambda *call: call))
    monkeypatch.setattr(_Spread, "_sit", lambda self, node, hosts: _Seat(node, actor, threads))
    monkeypatch.setattr(ray_workers, "RETRY_SECONDS", (0, 0))
    ray = LosingRay(threads)
    spread = _Spread(ray, threads, None)
    with ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(spread.call, str(number), {}) for number in range(threads)]
    for call in calls:
        with pytest.raises(RayFailed, match="no host that can work"):
            call.result()
    assert ray.asked == 5  # one thread waits for a host, not each in turn
