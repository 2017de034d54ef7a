"""Silent, slow or non-reading clients are disconnected. A stopping server waits for its requests."""

import asyncio
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from swelab.http import connections
from swelab.http.front_door import FrontDoor
from swelab.http.run_server import in_background
from swelab.http.sockets import address, listen
from swelab.records import InputError
from tests.contract.attacks import PATIENCE

TOKEN = "a" * 24
ASK = f"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


@contextmanager
def client_of(answer, most=64):
    """Returns a connection to a server that runs an ASGI application and has `most` connections."""

    async def handle(request):
        return answer

    door = FrontDoor(
        [Route("/", handle)],
        {"client": [TOKEN]},
        lambda error: JSONResponse(str(error), 400),
        connections=connections.Connections(most),
    )
    with in_background(door) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(place, timeout=PATIENCE) as client:
            yield client


@pytest.mark.parametrize("sent", [b"", ASK])
def test_a_head_that_does_not_end_is_not_waited_for(monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.01)
    with client_of(JSONResponse({})) as client:
        client.sendall(sent)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_a_silent_connection_gives_its_place_to_a_later_one():
    with client_of(JSONResponse({}), most=16) as first, ExitStack() as stack:
        later = [stack.enter_context(socket.create_connection(first.getpeername())) for _ in range(4)]
        assert first.recv(1) == b""
        later[-1].sendall(ASK + b"Connection: close\r\n\r\n")
        assert later[-1].makefile("rb").read().endswith(b"{}")


def test_a_client_that_takes_no_answer_is_disconnected_and_its_request_ends(monkeypatch):
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.0)
    gone = threading.Event()

    async def send_on(send):
        while True:
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sending = asyncio.ensure_future(send_on(send))
        while (await receive())["type"] != "http.disconnect":
            continue
        sending.cancel()
        gone.set()

    with client_of(answer) as client:
        client.sendall(ASK + b"\r\n")
        assert gone.wait(PATIENCE)


def test_an_end_waits_for_the_requests_under_way():
    begun, release = threading.Event(), threading.Event()

    async def answer(scope, receive, send):
        begun.set()
        await asyncio.to_thread(release.wait)
        await JSONResponse("late")(scope, receive, send)

    serving = client_of(answer)
    client = serving.__enter__()
    client.sendall(ASK + b"Connection: close\r\n\r\n")
    assert begun.wait(PATIENCE)
    lines = client.makefile("rb")
    ending = threading.Thread(target=serving.__exit__, args=(None, None, None))
    ending.start()
    release.set()
    assert lines.read().endswith(b'"late"')
    ending.join(PATIENCE)
    lines.close()


def test_a_port_that_is_taken_is_said_in_one_line():
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert address(bound) == f"http://127.0.0.1:{port}"
        with pytest.raises(InputError, match=f"127.0.0.1 port {port}: cannot listen.*expected a free port"):
            listen("127.0.0.1", port)
