"""A client of the pool: which requests it repeats, and for how long."""

from types import SimpleNamespace

import httpx
import pytest

from swelab import patience
from swelab.sandbox import remote_client
from swelab.sandbox.protocol import EngineDown, SandboxLost
from swelab.sandbox.remote_client import PoolClient


@pytest.fixture
def pool(monkeypatch):
    """A pool that responds by `plan` (an exception or a status). Pauses and requests move its clock."""
    pool = SimpleNamespace(now=0.0, plan=[], requests=0, seconds=0.0)
    clock = SimpleNamespace(monotonic=lambda: pool.now)

    def sleep(seconds):
        pool.now += seconds

    def answer(request):
        pool.requests += 1
        pool.now += pool.seconds
        step = pool.plan.pop(0) if pool.plan else 200
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step, json={"error": "no", "error_type": "SandboxLost"})

    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "sleep", sleep)
    monkeypatch.setattr(remote_client, "time", clock)
    pool.client = PoolClient("http://pool", "token")
    pool.client._client = httpx.Client(base_url="http://pool", transport=httpx.MockTransport(answer))
    return pool


def test_a_request_without_a_response_is_repeated_while_patience_lasts(pool):
    pool.plan = [httpx.ConnectError("refused"), httpx.ReadTimeout("late")]
    assert pool.client.ask("/exec", {}, patience=60).status_code == 200 and pool.requests == 3
    pool.plan = [httpx.ConnectError("refused")] * 1000
    with pytest.raises(EngineDown, match="the pool at http://pool cannot do /exec now: refused"):
        pool.client.ask("/exec", {}, patience=60)
    assert 60 < pool.requests < 180, "pauses grow to a second"


def test_without_patience_it_is_sent_once(pool):
    pool.plan = [httpx.ConnectError("refused")]
    with pytest.raises(EngineDown):
        pool.client.ask("/exec", {})
    assert pool.requests == 1


def test_an_error_that_the_pool_reports_is_not_repeated(pool):
    pool.plan = [410]
    with pytest.raises(SandboxLost):
        pool.client.ask("/exec", {}, patience=60)
    assert pool.requests == 1


def test_patience_begins_anew_where_the_pool_had_worked_on_the_request(pool):
    pool.seconds, pool.plan = 50.0, [httpx.ReadError("cut")] * 3
    assert pool.client.ask("/exec", {}, patience=60).status_code == 200 and pool.requests == 4
    pool.plan = [httpx.ConnectError("refused")] * 3
    with pytest.raises(EngineDown):
        pool.client.ask("/exec", {}, patience=60)
    assert pool.requests == 6
