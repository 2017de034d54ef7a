"""Rude, dead or unauthenticated clients harm no other client. Servers are real, sandboxes are folders."""

import http.client
import json
import re
import secrets
import select
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from swelab.sandbox.remote_protocol import BYTES
from tests.contract import pool_servers
from tests.contract.attacks import PATIENCE, until

pytestmark = pytest.mark.alone

TTL = 5


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("door")
    node = pool_servers.folder_server(folder / "node")
    brief = pool_servers.pool_server([node], folder / "brief", ttl=TTL)
    patient = pool_servers.pool_server([node], folder / "patient", ttl=300)
    yield {"node": node, "brief": brief, "patient": patient}
    patient.stop()
    brief.stop()
    node.stop()


@pytest.fixture
def brief(servers):
    """A pool whose leases end soon."""
    yield servers["brief"]
    assert until(lambda: servers["brief"].ask("/status")["pool"]["total_leases"] == 0, PATIENCE)


@pytest.fixture
def pool(servers):
    """A pool whose leases outlive every test on any machine."""
    yield servers["patient"]
    assert until(lambda: servers["patient"].ask("/status")["pool"]["total_leases"] == 0, PATIENCE)


def lent(pool, **more):
    told = pool.ask("/allocate", {"tree": True, **more})
    assert told["ok"], told
    return {"lease_id": told["lease_id"]}


class Neighbour:
    """A lease that is renewed on time. `done` releases it and returns whether it lived until then."""

    def __init__(self, pool):
        self.pool, self.lease = pool, lent(pool, heartbeats=True)
        self._stop, self._lost = threading.Event(), []
        self._thread = threading.Thread(target=self._beat)
        self._thread.start()

    def _beat(self):
        while not self._stop.wait(TTL / 8):
            told = self.pool.ask("/heartbeat", {"lease_ids": [self.lease["lease_id"]]})
            self._lost += [told] if told.get("lost") != {} else []

    def done(self):
        self._stop.set()
        self._thread.join()
        told = self.pool.ask("/exec", {**self.lease, "command": "echo here"})
        self.pool.ask("/close", self.lease)
        assert (self._lost, told.get("output")) == ([], "here\n"), (self._lost, told)


@pytest.mark.full
def test_a_refused_request_touches_no_lease(brief):
    neighbour, rude = Neighbour(brief), lent(brief)
    began = time.monotonic()
    for path, more in (("/exec", {"command": "true"}), ("/evaluate", {"eval_script": "set -e"})):
        told = brief.ask(path, {**rude, **more, "timeout": 86400 if path == "/exec" else 86390})
        assert (told["ok"], told["error_type"]) == (False, "Refused"), told
    while time.monotonic() < began + 1.6 * TTL:
        time.sleep(0.2)
    neighbour.done()
    told = brief.ask("/exec", {**rude, "command": "true"})
    assert (told["ok"], told["error_type"]) == (False, "SandboxLost"), "a refused request kept its lease"


@pytest.mark.full
def test_a_heartbeat_is_answered_lease_by_lease(brief):
    one, other = lent(brief), lent(brief)
    began = time.monotonic()
    while time.monotonic() < began + 1.6 * TTL:
        asked = {"lease_id": "no-lease", "lease_ids": [1, one["lease_id"], None, "../x", other["lease_id"]]}
        told = brief.ask("/heartbeat", asked)
        assert told["ok"] and set(told["lost"]) == {"1", "None", "../x", "no-lease"}, told
        time.sleep(TTL / 6)
    for lease in (one, other):
        assert brief.ask("/exec", {**lease, "command": "true"})["ok"]
        brief.ask("/close", lease)


def test_a_renewal_is_done_sandbox_by_sandbox(servers):
    node = servers["node"]
    made = [
        node.ask("/container/create", {"tree": True, "owner": "me", "ttl_seconds": 3600}) for _ in range(2)
    ]
    ids = [each["container_id"] for each in made]
    bad = {"x y": 5, ids[1]: "soon", "gone": 1e12}
    told = node.ask("/container/renew", {"owner": "me", "containers": {**bad, ids[0]: 86400 * 9}})
    assert told["ok"] and told["refused"] == [ids[1]] and set(told["unknown"]) == {"x y", "gone"}, told
    left = {name: each["expires_in"] for name, each in node.ask("/status")["containers"].items()}
    assert 3600 < left[ids[0]] <= 86400 and left[ids[1]] <= 3600
    for each in ids:
        node.ask("/container/destroy", {"container_id": each})


@pytest.mark.full
def test_a_client_that_dies_frees_its_place_after_its_request(brief):
    rude = lent(brief)
    assert brief.ask("/evaluate", {**rude, "eval_script": "set -e", "timeout": 3600})["ok"]
    assert brief.ask("/status")["pool"]["total_leases"] == 1
    began = time.monotonic()
    assert until(lambda: brief.ask("/status")["pool"]["total_leases"] == 0, 60)
    assert time.monotonic() - began < 30


@pytest.mark.full
def test_a_client_without_heartbeats_keeps_its_place_while_a_command_runs(brief):
    lease = lent(brief)
    assert brief.ask("/exec", {**lease, "command": f"sleep {1.6 * TTL}; echo done"})["output"] == "done\n"
    brief.ask("/close", lease)


def begun(server, path, head, length, data=b""):
    """Opens a connection and begins a request with a body of `length` bytes."""
    place = urlsplit(server.url)
    sent = socket.create_connection((place.hostname, place.port), timeout=PATIENCE)
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.token}", *head]
    sent.sendall("\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode() + data)
    return sent


def answered(sent):
    answer = http.client.HTTPResponse(sent)
    answer.begin()
    return answer


def memory(server):
    """Returns the resident bytes of a server's process."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10


JSON = ["Content-Type: application/json"]


@pytest.mark.full
def test_uploads_that_do_not_end_take_no_more_than_the_requests_of_a_sandbox(servers, pool):
    neighbour, node = Neighbour(pool), servers["node"]
    told = json.dumps({**neighbour.lease, "path": "f"})
    head = ["Content-Type: application/octet-stream", f"swelab-request: {told}"]
    sent = [begun(pool, "/put", head, 8 << 20, bytes(1 << 20)) for _ in range(24)]
    came = lambda: node.metrics()["swelab_exec_uploads_bytes"] / (8 << 20)  # noqa: E731
    assert until(lambda: 1 <= came() < 1.5, PATIENCE), came()
    assert until(lambda: len(select.select(sent, [], [], 0)[0]) == 16, PATIENCE)
    refused = select.select(sent, [], [], 0)[0]
    assert len(refused) == 16 and {answered(each).status for each in refused} <= {400, 503}
    for each in sent:
        each.close()
    assert until(lambda: node.metrics()["swelab_exec_uploads_bytes"] == 0, PATIENCE)
    assert pool.ask("/exec", {**neighbour.lease, "command": "ls"})["output"] == ""
    neighbour.done()


@pytest.mark.full
def test_an_upload_that_is_only_announced_takes_nothing(pool):
    """An announced upload used to reserve the host's disk before its first byte."""
    rude, other = lent(pool), lent(pool)
    head = ["Content-Type: application/octet-stream", f"swelab-request: {json.dumps(rude)}"]
    sent = begun(pool, "/fill", head, 1 << 30, bytes(1000))
    began = time.monotonic()
    assert put(pool, other, b"x").json() == {"ok": True} and time.monotonic() - began < 15
    sent.close()
    for lease in (rude, other):
        pool.ask("/close", lease)


def test_a_tar_beyond_the_sandbox_s_disk_and_limits_beyond_the_host_s_are_refused_at_once(pool):
    """The tar used to reserve the host's disk for uploads, and the limits waited for their whole deadline."""
    rude = lent(pool, limits={"disk_bytes": 16 << 20})
    head = ["Content-Type: application/octet-stream", f"swelab-request: {json.dumps(rude)}"]
    sent = begun(pool, "/fill", head, 7 << 30, bytes(1000))
    assert answered(sent).status == 413
    sent.close()
    told = pool.ask("/allocate", {"tree": True, "limits": {"processes": 1 << 40}})
    assert (told["error_type"], told["retryable"]) == ("Refused", False)
    assert "limits.processes: 1099511627776; expected at most" in told["error"]
    pool.ask("/close", rude)


def put(pool, lease, data):
    headers = {"Authorization": f"Bearer {pool.token}", "Content-Type": BYTES}
    headers["swelab-request"] = json.dumps({**lease, "path": "f"})
    return httpx.post(pool.url + "/put", content=data, headers=headers, timeout=PATIENCE)


@pytest.mark.full
def test_outputs_that_nobody_reads_count_as_memory_of_their_sandbox(tmp_path):
    """Such outputs used not to be counted: 1.6 GiB of four sandboxes of 0.2 GiB."""
    node, size, mib = pool_servers.folder_server(tmp_path, "--memory-gib", 1), 24 << 20, 1 << 20
    try:
        limits = {"memory_bytes": 32 * mib, "disk_bytes": 16 * mib, "shm_bytes": mib, "output_bytes": mib}
        box = {
            "container_id": node.ask("/container/create", {"tree": True, "limits": limits})["container_id"]
        }
        place = lambda: node.metrics()["swelab_exec_memory_bytes"]  # noqa: E731
        before, own = place(), {**limits, "output_bytes": size}
        asked = {**box, "command": f"head -c {size} /dev/zero", "limits": own}
        body = json.dumps(asked).encode()
        sent = [
            begun(node, "/container/exec", [*JSON, f"Accept: {BYTES}"], len(body), body) for _ in range(6)
        ]
        more = 6 * size - 33 * mib  # more than the one command for which a sandbox has memory
        assert until(lambda: place() - before == more, PATIENCE), (place() - before, more)
        for each in sent:
            each.close()
        assert until(lambda: place() == before, PATIENCE)
    finally:
        node.stop()


@pytest.mark.full
def test_answers_that_nobody_reads_are_bounded_and_end_with_their_sandbox(servers):
    node = servers["node"]
    made = [node.ask("/container/create", {"tree": True})["container_id"] for _ in range(2)]
    size, most = 48 << 20, 512 << 20
    for each in made:
        node.ask("/container/exec", {"container_id": each, "command": f"head -c {size} /dev/zero > big"})
    before, sent = memory(node), []
    for each in made * 14:
        body = json.dumps({"container_id": each, "path": "big", "max_bytes": size}).encode()
        sent.append(begun(node, "/container/get", JSON, len(body), body))
    # Of each sandbox one output is being sent. The others wait and hold only a small buffer.
    held = lambda: node.metrics()["swelab_exec_answers_bytes"]  # noqa: E731
    assert until(lambda: held() >= 2 * size, PATIENCE)
    for _ in range(20):
        assert held() <= 2 * size + len(sent) * (1 << 20) <= most
        assert memory(node) - before < 2 * size + (96 << 20)
        time.sleep(0.1)
    small = {"container_id": node.ask("/container/create", {"tree": True})["container_id"]}
    node.ask("/container/exec", {**small, "command": "echo x > small"})
    headers = {"Authorization": f"Bearer {node.token}"}
    began = time.monotonic()
    got = httpx.post(
        f"{node.url}/container/get", json={**small, "path": "small"}, headers=headers, timeout=99
    )
    assert got.content == b"x\n" and time.monotonic() - began < 15, "a small answer waited for large ones"
    for each in (*made, small["container_id"]):
        node.ask("/container/destroy", {"container_id": each})
    assert until(lambda: node.metrics()["swelab_exec_answers_bytes"] == 0, 20)
    assert until(lambda: memory(node) - before < 64 << 20, 20), memory(node) - before
    for each in sent:
        each.close()


def test_disks_in_memory_count(tmp_path):
    node = pool_servers.folder_server(tmp_path, "--memory-gib", 20)
    try:
        asked = {"tree": True, "limits": {"memory_bytes": 1 << 28, "disk_bytes": 15 << 30}}
        told = [node.ask("/container/create", asked) for _ in range(3)]
        assert [each["ok"] for each in told] == [True, False, False]
        assert told[1]["error_type"] == "NoPlace" and "memory" in told[1]["error"]
        told = node.ask("/container/create", {"tree": True, "limits": {"disk_bytes": 32 << 30}})
        assert (told["ok"], told["error_type"]) == (False, "Refused") and "memory" in told["error"]
    finally:
        node.stop()


def test_places_are_shared_out_by_token(tmp_path):
    node = pool_servers.folder_server(tmp_path / "node", "--max-containers", 1)
    other = secrets.token_urlsafe(32)
    pool = pool_servers.pool_server([node], tmp_path / "pool", ttl=3600)
    pool.kill()
    pool.token_file.write_text(f"{pool.token}\n{other}\n")
    pool.start()
    try:
        held, order, threads = lent(pool), [], []

        def ask(name, token):
            told = pool.ask("/allocate", {"tree": True, "run": name}, token=token)
            order.append(name)
            pool.ask("/close", {"lease_id": told["lease_id"]}, token=token)

        for name, token in (("a", None), ("b", None), ("invented", None), ("z", other)):
            threads.append(threading.Thread(target=ask, args=(name, token)))
            threads[-1].start()
            assert until(lambda: pool.ask("/status")["pool"]["waiting"] == len(threads), PATIENCE)
        pool.ask("/close", held)
        for each in threads:
            each.join(PATIENCE)
        assert order.index("z") <= 1 and [each for each in order if each != "z"] == ["a", "b", "invented"]
    finally:
        pool.stop()
        node.stop()
