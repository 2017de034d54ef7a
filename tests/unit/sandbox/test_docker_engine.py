"""Parts of the docker backend that need no engine: its stream, labels, rules, and an engine that dies."""

import errno
import json
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest

from swelab.sandbox import EngineDown, container_owner
from swelab.sandbox.bounded_output import BoundedOutput
from swelab.sandbox.bwrap_process import refusal
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_protocol import Disconnected, Overdue, Talk
from swelab.sandbox.protocol import Limits
from swelab.sandbox.seccomp import _ABSENT, _REFUSED, engine_profile
from tests.contract.attacks import PATIENCE, until


class _Wire:
    def __init__(self, end):
        self.socket = end


def _frame(stream, data):
    return struct.pack(">BxxxI", stream, len(data)) + data


def _asked(answer, words=(b"echo",), given=None, due=PATIENCE, pieces=0):
    """Returns the result of Talk for an answer, and the request that it sent.

    `answer` is called with the nonce. `given` is input that ends with b"3".
    """
    ours, theirs = socket.socketpair()
    seen = []

    def serve():
        request = b""
        while request.count(b"\n") < 1 + len(words) or (given and not request.endswith(b"\n30\n")):
            request += theirs.recv(1 << 16)
        seen.append(request)
        data = answer(request.split()[0])
        for start in range(0, len(data), pieces or len(data) or 1):
            theirs.sendall(data[start : start + (pieces or len(data))])
        theirs.shutdown(socket.SHUT_WR)

    server = threading.Thread(target=serve)
    server.start()
    kept = BoundedOutput(1 << 20)
    try:
        talk = Talk(_Wire(ours))
        ended = talk.ask(list(words), Limits(wall_seconds=1.5), kept, time.monotonic() + due, given)
        return ended, kept.value(), seen[0]
    finally:
        server.join()
        ours.close()
        theirs.close()


@pytest.mark.parametrize("pieces", [0, 1, 7, 33])
def test_an_answer_in_any_pieces(pieces, monkeypatch):
    # One in sixteen nonces ends as it begins. After all but its end, such a nonce is found too early.
    monkeypatch.setattr("secrets.token_hex", lambda size: "0f" * (size - 1) + "1e")

    def answer(nonce):
        text = b"out" + bytes(range(256)) + nonce[:31]
        end = nonce + b" 3 cpu\n"
        return b"".join(_frame(1, part) for part in (text, end[:20], end[20:-1], end[-1:])) + _frame(2, b"x")

    ended, output, request = _asked(answer, pieces=pieces)
    assert (ended.code, ended.limit) == (3, "cpu")
    assert output[:259] == b"out" + bytes(range(256)) and len(output) == 259 + 31
    assert request.split()[1:7] == [b"0", b"150", b"6000", b"%d" % (2 << 30), b"%d" % (4 << 30), b"1"]


def test_input_goes_in_chunks_with_their_length():
    ended, _, request = _asked(
        lambda nonce: _frame(1, nonce + b" 0 -\n"), words=(b"a b", b""), given=iter([b"12", b"", b"3"])
    )
    assert (ended.code, ended.limit) == (0, "")
    assert request.endswith(b" 2\n3\na b0\n2\n121\n30\n")


def test_a_stream_that_ends_tells_what_was_said_on_the_other():
    with pytest.raises(Disconnected, match="cannot read its cgroup"):
        _asked(lambda nonce: _frame(1, b"some") + _frame(2, b"cannot read its cgroup\n"))


def test_an_answer_that_does_not_come_is_overdue():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Overdue):
        Talk(_Wire(ours)).ask([b"x"], Limits(), BoundedOutput(9), time.monotonic() + 0.1)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Overdue):  # the data that is sent is not read
        endless = iter(lambda: b"x" * 100_000, b"")
        Talk(_Wire(ours)).ask([b"x"], Limits(), BoundedOutput(9), time.monotonic() + 0.2, endless)


def test_an_owner_is_gone_only_for_certain():
    here = container_owner.this_process()
    assert not container_owner.is_gone(json.dumps(here))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    theirs = {**here, "pid": child.pid, "start": container_owner._start_time(child.pid)}
    assert not container_owner.is_gone(json.dumps(theirs))
    assert container_owner.is_gone(json.dumps({**theirs, "start": theirs["start"] - 1})), (
        "its pid was given to another"
    )
    child.kill()
    assert until(lambda: not container_owner._start_time(child.pid), PATIENCE)
    assert container_owner.is_gone(json.dumps(theirs)), "a zombie has ended"
    child.communicate()
    assert container_owner.is_gone(json.dumps(theirs))
    for change in (
        {"user": os.getuid() + 1},
        {"space": "pid:[1]"},
        {"boot": "x", "machine": "another"},
        {"boot": "x", "host": "another"},
    ):
        assert not container_owner.is_gone(json.dumps({**theirs, **change})), change
    for label in ("", "[]", "null", "{}", "{bad", '{"user": 0}'):
        assert not container_owner.is_gone(label)


def test_the_engines_rules_are_those_of_bubblewrap():
    profile = engine_profile()
    rules = {}
    for rule in profile["syscalls"]:
        if "args" not in rule:
            rules.update(dict.fromkeys(rule["names"], rule["errnoRet"]))
    assert rules == dict.fromkeys(_REFUSED, errno.EPERM) | dict.fromkeys(_ABSENT, errno.ENOSYS)
    sockets = [rule["args"][0] for rule in profile["syscalls"] if rule["names"] == ["socket"]]
    refused = {each["value"] for each in sockets if each["op"] == "SCMP_CMP_EQ"}
    assert refused == set(range(64)) - {1, 2, 10, 16}
    assert [each["value"] for each in sockets if each["op"] == "SCMP_CMP_GE"] == [64]
    bounded = {"madvise": [(2, 20), (2, 21)], "preadv2": [(5, 8)]}
    for name, expected in bounded.items():
        arguments = [rule["args"][0] for rule in profile["syscalls"] if rule["names"] == [name]]
        assert [(each["index"], each["value"]) for each in arguments] == expected


def test_commands_that_bash_cannot_be_given():
    assert refusal("echo", {}) == "" and refusal("x" * 131071, {}) == ""
    assert refusal("x" * 131072, {}) == "Argument list too long"
    assert "NUL" in refusal("a\0", {})
    for env in ({"1A": ""}, {"A B": ""}, {"A": "\0"}):
        with pytest.raises(ValueError, match="not an environment variable"):
            refusal("true", env)


class DiesWhileItAnswers(BaseHTTPRequestHandler):
    """Answers a ping. Of any other response it sends only the beginning."""

    def do_GET(self):
        self.send_response(200)
        if self.path.endswith("/_ping"):
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"OK")
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def engine(monkeypatch):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), DiesWhileItAnswers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_address[1]}")
        yield DockerEngine()
        server.shutdown()


def test_half_an_answer_read_piece_by_piece_is_an_engine_that_is_down(engine):
    with pytest.raises(EngineDown, match="loading: the engine at tcp://127.0.0.1"), engine.request("loading"):
        list(engine.api.load_image(b""))
