"""Slow request bodies give way to complete ones, and a body must keep a minimum speed."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from swelab.http import bodies as module
from swelab.http.bodies import WHOLE_SECONDS, Bodies, least_speed, pieces
from swelab.http.pace import SLOWEST, Credit, Turns
from swelab.http.refusal import Refused
from tests.loop_turns import one_turn

DOOR = SimpleNamespace(turns=Turns())


def sending(*sent, whole=False, length=b"100"):
    """A request of a client that stays connected. Without `whole` its body is incomplete."""
    messages = [{"type": "http.request", "body": each, "more_body": True} for each in sent]
    messages += [{"type": "http.request", "body": b"", "more_body": False}] * whole

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    return Request({"type": "http", "headers": [(b"content-length", length)], "door": DOOR}, receive)


async def read(bodies, request, hold=None, most=100):
    with bodies.memory() as memory:
        body = await bodies.read(request, most, memory)
        if hold:
            await hold.wait()
        return body


def test_the_oldest_body_that_does_not_end_makes_way():
    async def main():
        bodies = Bodies(400)
        slow = [asyncio.ensure_future(read(bodies, sending(b"x" * 99))) for _ in range(4)]
        await one_turn()
        assert await read(bodies, sending(b"y" * 60, b"y" * 40, whole=True)) == b"y" * 100
        assert slow[0].exception().status == 503 and not any(each.done() for each in slow[1:])
        for each in slow:
            each.cancel()
        await asyncio.wait(slow)
        assert bodies.used == 0 and not bodies.end_oldest()

    asyncio.run(main())


def test_a_request_that_is_being_answered_does_not_make_way():
    async def main():
        bodies, hold = Bodies(400), asyncio.Event()
        whole = [asyncio.ensure_future(read(bodies, sending(b"x" * 90, whole=True), hold)) for _ in range(4)]
        for _ in range(9):
            await one_turn()
        with pytest.raises(Refused, match="too many large requests at once"):
            await read(bodies, sending(b"y" * 100, whole=True))
        hold.set()
        assert await asyncio.gather(*whole) == [b"x" * 90] * 4

    asyncio.run(main())


@pytest.mark.parametrize("length", [b"100", b"50"])
def test_a_body_that_is_too_long_takes_no_memory_and_is_read_to_its_end(length):
    async def main():
        bodies, request = Bodies(50), sending(b"x" * 50, b"x" * 50, whole=True, length=length)
        with pytest.raises(Refused, match="the body has 100 bytes; at most 50 are taken") as caught:
            await read(bodies, request, most=50)
        return caught.value.status, bodies.used

    assert asyncio.run(main()) == (413, 0)


def test_a_body_of_an_immense_length_is_not_waited_for():
    with pytest.raises(Refused, match="at most 100 are taken"):
        asyncio.run(read(Bodies(400), sending(length=b"99999999999")))


def test_the_least_speed_of_a_body_grows_with_what_it_holds():
    assert least_speed(0) == least_speed(1 << 20) == SLOWEST
    assert least_speed(7 << 30) == (7 << 30) // WHOLE_SECONDS > 7 << 20


@pytest.mark.parametrize(("length", "speeds"), [("2000", [20, 20, 20]), (None, [1, 10, 20])])
def test_a_body_must_keep_up_the_speed_of_its_length_or_of_what_has_come(monkeypatch, length, speeds):
    class Noted(Credit):
        def __init__(self, seconds, slowest):
            super().__init__(seconds, slowest)
            said.append(slowest)

        def add_bytes(self, count, slowest=0):
            said.append(slowest)

    async def stream():
        yield bytes(1000)
        yield bytes(1000)

    async def come():
        headers = {"content-length": length} if length else {"transfer-encoding": "chunked"}
        request = SimpleNamespace(headers=headers, scope={"door": DOOR}, stream=stream)
        return [len(piece) async for piece in pieces(request, 5000)]

    said = []
    monkeypatch.setattr(module, "Credit", Noted)
    monkeypatch.setattr(module, "SLOWEST", 1)
    monkeypatch.setattr(module, "WHOLE_SECONDS", 100)
    assert asyncio.run(come()) == [1000, 1000] and said == speeds
