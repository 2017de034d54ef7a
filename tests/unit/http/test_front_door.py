"""Requests that are refused before they have any effect: no token, an unknown form, too many requests."""

import asyncio
import json
from base64 import b64encode

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from swelab.http import front_door
from swelab.http.front_door import FrontDoor
from swelab.http.refusal import Refused
from tests.loop_turns import one_turn

TOKEN, OTHER = "a" * 24, "b" * 24
SHOWN = (b"authorization", f"Bearer {TOKEN}".encode())


def error_answer(error):
    return JSONResponse({"error": str(error)}, getattr(error, "status", 500))


@pytest.fixture
def door():
    async def body(request):
        with request.scope["door"].bodies.memory() as memory:
            got = await request.scope["door"].bodies.read(request, 100, memory)
        return JSONResponse({"got": got.decode(), "roles": sorted(request.scope["roles"])})

    async def fails(request):
        raise {"refused": Refused("not here", 409), "value": ValueError("odd")}[request.path_params["how"]]

    counts = []
    routes = [Route("/body", body, methods=["POST"]), Route("/fails/{how}", fails)]
    tokens = {"caller": [TOKEN], "keeper": [TOKEN, OTHER]}
    made = FrontDoor(routes, tokens, error_answer, [ValueError], count=lambda *each: counts.append(each))
    made.counts = counts
    return made


async def answer(door, method="POST", path="/body", headers=(SHOWN,), query=b"", receive=None, port=1):
    """Returns (status, JSON, headers) of a response."""
    messages = []

    async def whole():
        return {"type": "http.request", "body": b"x", "more_body": False}

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "root_path": ""}
    length = (b"content-length", b"1")
    scope |= {"headers": [*headers, length], "client": ("192.0.2.1", port)}
    await door(scope, receive or whole, send)
    body = b"".join(each.get("body", b"") for each in messages)
    return messages[0]["status"], json.loads(body), dict(messages[0]["headers"])


def basic(text):
    return (b"authorization", b"Basic " + b64encode(text.encode()))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (SHOWN, SHOWN),
        (SHOWN, (b"authorization", b"Bearer x")),
        *(((b"authorization", each),) for each in (b"", b"Bearer", b"Bearer ", b"Bearer x", TOKEN.encode())),
        ((b"authorization", f"Token {TOKEN}".encode()),),
        ((b"authorization", f"Basic {TOKEN}".encode()),),
        (basic(TOKEN),),
        (basic(f"{TOKEN}:x"),),
    ],
)
def test_without_a_token_nothing_is_read(door, headers):
    async def receive():
        pytest.fail("the body was read")

    status, told, sent = asyncio.run(answer(door, headers=headers, receive=receive))
    assert status == 401 and "token" in told["error"] and sent[b"connection"] == b"close"
    assert sent[b"www-authenticate"].startswith(b"Basic") and door.counts == [("/body", 401)]


def test_a_token_has_its_roles(door):
    bearer = (b"authorization", f"BEARER  {TOKEN}".encode())
    for shown in (SHOWN, basic(f"anybody:{TOKEN}"), bearer):
        told = asyncio.run(answer(door, headers=(shown,)))[1]
        assert told == {"got": "x", "roles": ["caller", "keeper"]}
    told = asyncio.run(answer(door, headers=((b"authorization", f"Bearer {OTHER}".encode()),)))[1]
    assert told["roles"] == ["keeper"]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"query": b"a=b"}, 400),
        ({"headers": (SHOWN, (b"content-encoding", b"gzip"))}, 415),
        ({"headers": (SHOWN, (b"upgrade", b"websocket"))}, 415),
        ({"path": "/other"}, 404),
        ({"path": "/body/"}, 404),
        ({"method": "PUT"}, 405),
        ({"path": "/fails/refused", "method": "GET"}, 409),
    ],
)
def test_what_is_refused_closes_its_connection(door, more, status):
    got, told, sent = asyncio.run(answer(door, **more))
    assert got == status and told["error"] and sent[b"connection"] == b"close"
    assert door.counts[0][0] in ("/body", "?")


def test_an_error_that_callers_are_told_is_an_answer(door):
    status, told, sent = asyncio.run(answer(door, path="/fails/value", method="GET"))
    assert (status, told) == (500, {"error": "odd"}) and b"connection" not in sent


def test_requests_whose_bodies_do_not_end_leave_places_to_others(door, monkeypatch):
    monkeypatch.setattr(front_door, "AT_ONCE", 3)

    async def main():
        slow = [asyncio.ensure_future(answer(door, receive=asyncio.Event().wait, port=n)) for n in range(3)]
        await one_turn()
        assert (await answer(door, port=9))[0] == 200
        assert (await slow[0])[0] == 503 and not slow[1].done()
        for each in slow:
            each.cancel()
        await asyncio.wait(slow)

    asyncio.run(main())


def test_requests_that_are_being_answered_leave_no_place(door, monkeypatch):
    monkeypatch.setattr(front_door, "AT_ONCE", 0)
    status, told, _ = asyncio.run(answer(door))
    assert status == 503 and "try again" in told["error"]
