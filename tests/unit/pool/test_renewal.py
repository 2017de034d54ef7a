"""Which leases a heartbeat renews, and how long a lease lives after it."""

import asyncio
from types import SimpleNamespace

import pytest

from swelab.pool import renewal
from swelab.pool.leases import Lease
from swelab.pool.renewal import renew_leases, renew_on_host
from swelab.pool.request_schemas import PoolRequest
from swelab.sandbox.protocol import SandboxLost


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(renewal, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def lease(ends):
    return Lease("request", PoolRequest(request_id="request"), ends=ends)


def test_each_lease_is_renewed_by_itself_and_none_is_shortened(clock):
    leases = {"a": lease(105.0), "b": lease(500.0)}

    def find(lease_id):
        if lease_id not in leases:
            raise SandboxLost("there is no such lease")
        return leases[lease_id]

    lost = renew_leases(find, ["gone", "a", 7, "b"], 60)
    assert lost == {"gone": "there is no such lease", "7": "that is not the id of a lease"}
    assert leases["a"].until() == 160 and leases["b"].until() == 500


def test_a_request_that_runs_keeps_a_lease_alive_and_no_longer(clock):
    one = lease(105.0)
    with one.in_use(300):
        assert one.until() == 400
    assert one.until() == 105


def test_a_pool_renews_its_sandboxes_on_a_host_and_reads_its_state():
    sent = []

    async def ask(path, body, seconds):
        sent.append((path, body, seconds))
        return {"boot": "x", "unknown": ["b"]}

    state = asyncio.run(renew_on_host(SimpleNamespace(ask=ask), "pool", {"a": 3.0, "b": 4.0}, 5.0))
    assert sent == [("/container/renew", {"owner": "pool", "containers": {"a": 3.0, "b": 4.0}}, 5.0)]
    assert state.boot == "x" and state.unknown == ["b"]
