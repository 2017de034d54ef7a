"""Keys of a hosted model: turns, pauses, rates, and what faults say of them."""

import threading
import time

import httpx
import pytest

from swelab.models.billing import api_keys
from swelab.models.billing.api_keys import Key, KeyRing, read_keys
from swelab.models.chat import litellm_errors
from swelab.models.chat.litellm_errors import read_fault
from swelab.records import InputError


def ring(count=1, **rates):
    told = []
    made = KeyRing([Key(f"KEY_{n}", f"secret-{n}") for n in range(count)], rates, told.append)
    return made, made.keys, told


def enter(made, key, tokens=0):
    """Leave to send, and the seconds that it took."""
    began = time.monotonic()
    return made.enter(key, tokens), time.monotonic() - began


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


def test_tokens_are_spaced_by_what_they_were():
    made, (key,), _ = ring(tokens_per_minute=60_000)
    first, waited = enter(made, key, 100)
    assert waited < 0.05
    made.leave(first, 300)
    second, waited = enter(made, key, 10)
    assert 0.2 < waited < 0.6, "300 tokens are 0.3 s of 60,000 a minute"
    made.leave(second, 10)


def test_a_burst_of_refusals_is_one_strike(monkeypatch):
    monkeypatch.setattr(api_keys, "FIRST_PAUSE_SECONDS", 0.2)
    made, (key,), _ = ring()
    burst = [made.enter(key, 0) for _ in range(16)]
    for each in burst:
        made.slow(each, None)
        made.leave(each)
    assert key.window == 8 and key.strikes == 1 and key.under_way == 0
    again, waited = enter(made, key)
    assert 0.05 < waited < 1
    made.slow(again, None)
    made.leave(again)
    assert key.window == 1 and key.strikes == 2
    alone, _ = enter(made, key)
    others = []
    thread = threading.Thread(target=lambda: others.append(made.enter(key, 0)))
    thread.start()
    thread.join(0.1)
    assert not others, "one at a time now"
    made.leave(alone, 5)
    thread.join(5)
    assert len(others) == 1 and key.window == 2 and key.strikes == 0


def test_who_waits_for_a_key_that_goes_out_of_use_takes_another():
    made, (first, second), told = ring(2)
    made.slow(made.enter(first, 0), 600)
    found = []
    thread = threading.Thread(target=lambda: found.append(made.enter(first, 0)))
    thread.start()
    made.set_aside(first, "was refused (no)")
    made.set_aside(first, "was refused (again)")
    thread.join(5)
    assert found == [None] and told == ["warning: KEY_0 was refused (no); 1 of 2 keys left"]
    assert made.choose(first) is second and made.choose(None) is second
    made.set_aside(second, "is out of quota (no)")
    with pytest.raises(InputError, match=r"no key is left: KEY_0 was refused \(no\); KEY_1 is out of quota"):
        made.choose(second)


class Vendor(Exception):
    """As LiteLLM wraps a fault of a service without a response of httpx."""

    status_code, headers = 429, {"Retry-After": "3"}


def wrapped(cause):
    try:
        raise RuntimeError("litellm.InternalServerError") from cause
    except RuntimeError as error:
        return error


def test_faults_are_read_from_the_exchange_behind_an_exception():
    told = read_fault(wrapped(Vendor("slow \x1b[31m secret-7 " * 40)), "secret-7")
    assert (told.kind, told.wait, told.charged) == (litellm_errors.BUSY, 3, False)
    assert len(told.text) < 220 and "secret-7" not in told.text and "\x1b" not in told.text
    for cause, kind, charged in (
        (httpx.ConnectError("refused"), litellm_errors.PASSING, False),
        (httpx.PoolTimeout("full"), litellm_errors.PASSING, False),
        (httpx.ReadTimeout("stall"), litellm_errors.UNSURE, True),
        (httpx.RemoteProtocolError("cut"), litellm_errors.UNSURE, True),
        (KeyError("usage"), litellm_errors.UNSURE, True),
    ):
        found = read_fault(wrapped(cause), None)
        assert (found.kind, found.charged) == (kind, charged), cause


@pytest.mark.parametrize(
    "status, body, kind",
    [
        (500, "rate limit", litellm_errors.PASSING),
        (504, "", litellm_errors.UNSURE),
        (403, "credit balance is too low", litellm_errors.QUOTA),
        (403, "not allowed", litellm_errors.KEY),
        (400, "You have reached your specified API usage limits.", litellm_errors.QUOTA),
        (400, "This model's maximum context length is 8192 tokens.", litellm_errors.OVERFLOWED),
        (422, "temperature", litellm_errors.WRONG),
        (301, "moved", litellm_errors.WRONG),
    ],
)
def test_a_status_and_its_words_tell_the_kind(status, body, kind):
    request = httpx.Request("POST", "http://x/v1")
    response = httpx.Response(status, text=body, request=request)
    error = httpx.HTTPStatusError("x", request=request, response=response)
    assert read_fault(wrapped(error), None).kind == kind
