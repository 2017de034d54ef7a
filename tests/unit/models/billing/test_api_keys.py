"""Keys of a hosted model: turns, pauses, rates, and the effect of faults."""

import threading
from types import SimpleNamespace

import httpx
import pytest

from swelab.models.billing import api_keys
from swelab.models.billing.api_keys import Key, KeyRing, read_keys
from swelab.models.chat.litellm_errors import read_fault
from swelab.models.service_words import Kind
from swelab.records import InputError
from tests.contract.attacks import PATIENCE


class Changed(threading.Condition):
    """A condition that reports when a thread waits. With a clock, the seconds of a wait pass at once."""

    def __init__(self, clock=None):
        super().__init__()
        self.clock, self.waits = clock, threading.Event()

    def wait(self, timeout=None):
        if self.clock and timeout is not None:
            self.clock.now += timeout
            return False
        self.waits.set()
        return super().wait(timeout)


@pytest.fixture
def clock(monkeypatch):
    """The clock of key rings, which moves only while they wait."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(api_keys, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def ring(count=1, clock=None, **rates):
    told = []
    keys = [Key(f"KEY_{n}", f"secret-{n}") for n in range(count)]
    made = KeyRing(keys, rates, told.append, _changed=Changed(clock))
    return made, made.keys, told


def enter(made, key, tokens=0):
    """Waits for permission to send. Returns the permission and the waiting seconds."""
    began = api_keys.time.monotonic()
    return made.enter(key, tokens), api_keys.time.monotonic() - began


def enter_beside(made, key):
    """Starts a thread that waits for permission to send.

    Returns the thread and the list for the permission.
    """
    found = []
    thread = threading.Thread(target=lambda: found.append(made.enter(key, 0)), daemon=True)
    thread.start()
    assert made._changed.waits.wait(PATIENCE)
    return thread, found


def test_keys_are_read_from_variables_without_doubles(monkeypatch):
    monkeypatch.setenv("ONE", "a")
    monkeypatch.setenv("MORE", "b::: c :::a:::")
    monkeypatch.setenv("EMPTY", " ")
    assert [(key.name, key.secret) for key in read_keys(["ONE", "MORE"])] == [
        ("ONE", "a"),
        ("MORE[1]", "b"),
        ("MORE[2]", "c"),
    ]
    assert [key.secret for key in read_keys([])] == [None]
    with pytest.raises(InputError, match="EMPTY is not set"):
        read_keys(["ONE", "EMPTY"])


def test_tokens_are_spaced_by_what_they_were(clock):
    made, (key,), _ = ring(clock=clock, tokens_per_minute=60_000)
    first, waited = enter(made, key, 100)
    assert waited == 0
    made.leave(first, 300)
    second, waited = enter(made, key, 10)
    assert waited == pytest.approx(0.3), "300 tokens are 0.3 s of 60,000 a minute"
    made.leave(second, 10)


def test_a_burst_of_refusals_is_one_strike(clock):
    made, (key,), _ = ring(clock=clock)
    burst = [made.enter(key, 0) for _ in range(16)]
    for each in burst:
        made.slow(each, None)
        made.leave(each)
    assert key.window == 8 and key.strikes == 1 and key.under_way == 0
    again, waited = enter(made, key)
    assert 0.5 <= waited <= 1, "a strike is a pause of a second or a little less"
    made.slow(again, None)
    made.leave(again)
    assert key.window == 1 and key.strikes == 2
    alone, _ = enter(made, key)
    thread, others = enter_beside(made, key)
    assert not others, "one at a time now"
    made.leave(alone, 5)
    thread.join(PATIENCE)
    assert len(others) == 1 and key.window == 2 and key.strikes == 0


def test_who_waits_for_a_key_that_goes_out_of_use_takes_another():
    made, (first, second), told = ring(2)
    made.slow(made.enter(first, 0), 600)
    thread, found = enter_beside(made, first)
    made.set_aside(first, "was refused (no)")
    made.set_aside(first, "was refused (again)")
    thread.join(PATIENCE)
    assert found == [None] and told == ["warning: KEY_0 was refused (no); 1 of 2 keys left"]
    assert made.choose(first) is second and made.choose(None) is second
    made.set_aside(second, "is out of quota (no)")
    with pytest.raises(InputError, match=r"no key is left: KEY_0 was refused \(no\); KEY_1 is out of quota"):
        made.choose(second)


class Vendor(Exception):
    """A service's fault as LiteLLM wraps it, without a response of httpx."""

    status_code, headers = 429, {"Retry-After": "3"}


def wrapped(cause):
    try:
        raise RuntimeError("litellm.InternalServerError") from cause
    except RuntimeError as error:
        return error


def test_faults_are_read_from_the_exchange_behind_an_exception():
    told = read_fault(wrapped(Vendor("slow \x1b[31m secret-7 " * 40)), "secret-7")
    assert (told.kind, told.wait, told.charged) == (Kind.BUSY, 3, False)
    assert len(told.text) < 220 and "secret-7" not in told.text and "\x1b" not in told.text
    for cause, kind, charged in (
        (httpx.ConnectError("refused"), Kind.PASSING, False),
        (httpx.PoolTimeout("full"), Kind.PASSING, False),
        (httpx.ReadTimeout("stall"), Kind.UNSURE, True),
        (httpx.RemoteProtocolError("cut"), Kind.UNSURE, True),
        (KeyError("usage"), Kind.UNSURE, True),
    ):
        found = read_fault(wrapped(cause), None)
        assert (found.kind, found.charged) == (kind, charged), cause


@pytest.mark.parametrize(
    "status, body, kind",
    [
        (500, "rate limit", Kind.PASSING),
        (504, "", Kind.UNSURE),
        (403, "credit balance is too low", Kind.QUOTA),
        (403, "not allowed", Kind.KEY),
        (400, "You have reached your specified API usage limits.", Kind.QUOTA),
        (400, "This model's maximum context length is 8192 tokens.", Kind.OVERFLOWED),
        (422, "temperature", Kind.WRONG),
        (301, "moved", Kind.WRONG),
    ],
)
def test_a_status_and_its_words_tell_the_kind(status, body, kind):
    request = httpx.Request("POST", "http://x/v1")
    response = httpx.Response(status, text=body, request=request)
    error = httpx.HTTPStatusError("x", request=request, response=response)
    assert read_fault(wrapped(error), None).kind == kind
