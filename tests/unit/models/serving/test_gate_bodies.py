"""Clients that send a part of a body, or nothing, make way for those that send all of it."""

import asyncio
import json

import pytest

from swelab.models.serving import gate as gates
from swelab.models.serving import gate_bodies, gate_server
from swelab.models.serving.gate_bodies import Bodies
from swelab.models.serving.request_shapes import Limits, Refused
from swelab.models.serving.sglang_shapes import SHAPES
from swelab.models.serving.workers import Workers
from tests.loop_turns import one_turn

SCOPE = {"headers": [(b"content-length", b"100")]}


def sending(*pieces, whole=False):
    """What a client sends, who stays; without `whole` it is not all of the body."""
    came = [{"type": "http.request", "body": each, "more_body": True} for each in pieces]
    came += [{"type": "http.request", "body": b"", "more_body": False}] * whole

    async def receive():
        return came.pop(0) if came else await asyncio.Event().wait()

    return receive


async def read(bodies, receive, hold=None):
    with bodies.room() as room:
        found = await bodies.read(SCOPE, receive, room)
        if hold:
            await hold.wait()
        return found


def test_the_oldest_body_that_does_not_end_makes_way(monkeypatch):
    monkeypatch.setattr(gate_bodies, "HELD_BYTES", 0)

    async def main():
        bodies = Bodies(100)
        slow = [asyncio.ensure_future(read(bodies, sending(b"x" * 99))) for _ in range(4)]
        await one_turn()
        assert await read(bodies, sending(b"y" * 60, b"y" * 40, whole=True)) == b"y" * 100
        assert isinstance(slow[0].exception(), TimeoutError) and not any(each.done() for each in slow[1:])
        for each in slow:
            each.cancel()
        await asyncio.wait(slow)
        assert bodies._held == 0 and not bodies._reading

    asyncio.run(main())


def test_a_request_that_is_being_answered_does_not_make_way(monkeypatch):
    monkeypatch.setattr(gate_bodies, "HELD_BYTES", 0)

    async def main():
        bodies, hold = Bodies(100), asyncio.Event()
        whole = [asyncio.ensure_future(read(bodies, sending(b"x" * 90, whole=True), hold)) for _ in range(4)]
        for _ in range(9):
            await one_turn()
        with pytest.raises(Refused, match="too many large requests at once"):
            await read(bodies, sending(b"y" * 100, whole=True))
        hold.set()
        assert await asyncio.gather(*whole) == [b"x" * 90] * 4

    asyncio.run(main())


class Peers:
    def __init__(self):
        self.ended = []

    def known(self, peer):
        pass

    def rests(self, peer):
        pass

    def cut(self, peer):
        self.ended.append(peer)


def test_requests_whose_bodies_do_not_end_leave_places_to_others(monkeypatch):
    monkeypatch.setattr(gates, "MOST_REQUESTS", 3)
    peers, answers = Peers(), []
    headers = [(b"authorization", b"Bearer token")]
    scope = {"type": "http", "method": "POST", "path": "/generate", "headers": headers, "query_string": b""}

    async def send(message):
        answers.append(message.get("status") or json.loads(message["body"])["error"]["message"])

    async def main():
        served = gates.Served(["toy"], Limits(64, 64), SHAPES)
        gate = gates.Gate(served, Workers([], "/health_generate", "key"), "token", "key", peers)
        slow = [
            asyncio.ensure_future(gate({**scope, "client": ("a", port)}, sending(b"{"), send))
            for port in range(3)
        ]
        await one_turn()
        whole = sending(b'{"text": "a"}', whole=True)
        await gate({**scope, "client": ("b", 1)}, whole, send)
        assert answers == [503, "no model server is up; try again"] and peers.ended == [("a", 0)]
        for each in slow:
            each.cancel()
        await asyncio.wait(slow)

    asyncio.run(main())


class Transport:
    def __init__(self, port):
        self.port, self.aborted = port, False

    def get_extra_info(self, name):
        return ("127.0.0.1", self.port)

    def abort(self):
        self.aborted = True


def test_of_idle_connections_the_oldest_make_way(monkeypatch):
    monkeypatch.setattr(gate_server, "IDLE", 3)

    async def main():
        connections, made = gate_server.Connections(), [Transport(port) for port in range(8)]
        for each in made:
            connections.came(each)
        for each in made[:6]:
            connections.known(each.get_extra_info("peername"))
        for port in (0, 1, 2, 3, 4, 7):
            connections.rests(("127.0.0.1", port))
        assert [each.port for each in made if each.aborted] == [0, 1]
        connections.known(("127.0.0.1", 2))  # it asks again
        for port in (5, 2):
            connections.rests(("127.0.0.1", port))
        assert [each.port for each in made if each.aborted] == [0, 1, 3]
        for each in made:
            connections.gone(("127.0.0.1", each.port))

    asyncio.run(main())
