"""Over a hundred kinds of bad requests: none is accepted, and none ends or blocks a server."""

import contextlib
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from swelab.pool import request_schemas
from swelab.sandbox.docker_images import UID
from swelab.sandbox.remote_protocol import BYTES, REQUEST
from tests.contract import bad_requests as bad
from tests.contract import pool_servers
from tests.contract.attacks import PATIENCE, until

pytestmark = [pytest.mark.real, pytest.mark.full]
SANDBOX = {"container_id": "0" * 64}
LEASE = {"lease_id": "swe-lease-" + "0" * 32}
REST = {
    "exec": {"command": "touch /tmp/accepted"},
    "get": {"path": "a"},
    "diff": {},
    "evaluate": {"eval_script": "x"},
    "session_start": {"command": "touch /tmp/accepted"},
    "session_say": {"session": "x", "line": "touch /tmp/accepted", "timeout": 1},
    "session_end": {"session": "x"},
}


@pytest.fixture(scope="module")
def servers(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    node = pool_servers.exec_server(engine, folder / "node")
    pool = pool_servers.pool_server([node], folder / "pool", ttl=300)  # no lease ends by time
    yield {"node": node, "pool": pool}
    pool.stop()
    node.stop()


def status_of(server, data, seconds=120):
    """Returns the status of the response to these bytes; 0 if the connection closed without a response."""
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=seconds) as sent:
        with contextlib.suppress(OSError):  # the server may respond before it has read everything
            sent.sendall(data)
        answer = http.client.HTTPResponse(sent)
        try:
            answer.begin()
            answer.read()
            return answer.status
        except (http.client.HTTPException, ConnectionError):
            return 0
        except TimeoutError:
            return -1


def requests_to(kind, server):
    path = "/container/exec" if kind == "node" else "/exec"
    which, prefix = (SANDBOX, "/container/") if kind == "node" else (LEASE, "/")
    acts = request_schemas.acts(next(iter(which)))
    good = {f"{prefix}{verb}": {**which, **rest} for verb, rest in REST.items()}
    shape = {f"{prefix}{verb}": acts[verb] for verb in REST}
    if kind == "node":
        good |= {"/container/create": {"tree": True}, "/container/renew": {"owner": "x", "containers": {}}}
        shape |= {"/container/create": request_schemas.CREATE, "/container/renew": request_schemas.RENEW}
    else:
        good |= {"/allocate": {"tree": True}, "/heartbeat": LEASE, "/cancel": {"request_id": "0" * 16}}
        shape |= {
            "/allocate": request_schemas.ALLOCATE,
            "/heartbeat": request_schemas.HEARTBEAT,
            "/cancel": request_schemas.CANCEL,
        }
    found = {}
    for each in (*good, "/healthz", "/status", "/metrics"):
        found |= bad.without_access(each, server.token)
    found |= bad.without_sense(path, server.token) | bad.broken(path, server.token)
    schemas = {path: msgspec.json.schema(each) for path, each in shape.items()}
    return found | bad.no_json(path, server.token) | bad.wrong_fields(schemas, good, server.token)


@pytest.mark.parametrize("which", ["node", "pool"])
def test_a_hundred_kinds_of_bad_requests(engine, servers, which):
    server, before = servers[which], engine.containers()
    kinds = requests_to(which, server)
    assert len(kinds) > 100
    with ThreadPoolExecutor(8) as threads:
        statuses = dict(zip(kinds, threads.map(lambda data: status_of(server, data), kinds.values())))
    accepted = {name: status for name, status in statuses.items() if status and not 400 <= status < 500}
    assert accepted == {}
    assert sum(status == 401 for status in statuses.values()) >= 100
    assert server.process.poll() is None and server.ask("/healthz")["ok"]
    assert engine.containers() == before and server.ask("/status")["ok"]
    assert "Traceback" not in server.log(), server.log()[-3000:]


def test_a_request_that_comes_again_is_not_done_again(servers):
    node = servers["node"]
    made = node.ask("/container/create", {"tree": True, "request_id": "create-1"})
    assert node.ask("/container/create", {"tree": True, "request_id": "create-1"}) == made
    other = node.ask("/container/create", {"tree": True, "request_id": "create-1", "name": "other"})
    assert (other["ok"], other["error"]) == (False, "request_id was used by another request")
    asked = {"container_id": made["container_id"], "command": "echo x >> f; cat f", "request_id": "exec-0001"}
    first = node.ask("/container/exec", asked)
    assert first["output"] == "x\n" and node.ask("/container/exec", asked) == first
    assert not node.ask("/container/exec", {**asked, "command": "rm f"})["ok"]
    assert node.ask("/container/exec", {**asked, "request_id": "exec-0002"})["output"] == "x\nx\n"
    for number in range(12):
        node.ask("/container/exec", {**asked, "command": "true", "request_id": f"later-{number:04}"})
    late = node.ask("/container/exec", asked)
    assert (late["ok"], late["error_type"]) == (False, "SandboxLost")
    assert node.ask("/container/destroy", {"container_id": made["container_id"]}) == {
        "ok": True,
        "found": True,
    }
    assert node.ask("/container/destroy", {"container_id": made["container_id"]}) == {
        "ok": True,
        "found": False,
    }


def test_the_pool_does_nothing_twice_either(engine, servers):
    """Requests that an eavesdropper could record, sent again at once and later."""
    pool = servers["pool"]
    asked = {"tree": True, "request_id": "recorded-allocate"}
    lease = pool.ask("/allocate", asked)
    before = engine.containers()
    assert pool.ask("/allocate", asked) == lease and engine.containers() == before
    assert (
        pool.ask("/allocate", {**asked, "run": "other"})["error"] == "request_id was used by another request"
    )
    which = {"lease_id": lease["lease_id"]}
    command = {**which, "command": "echo x >> f; cat f", "request_id": "recorded-exec"}
    assert pool.ask("/exec", command)["output"] == "x\n" == pool.ask("/exec", command)["output"]
    file = {**which, "path": "f", "request_id": "recorded-put"}
    headers = {"Authorization": f"Bearer {pool.token}", "Content-Type": BYTES, REQUEST: json.dumps(file)}
    for _ in range(2):
        assert httpx.post(pool.url + "/put", content=b"new\n", headers=headers).status_code == 200
        added = pool.ask("/exec", {**which, "command": "echo more >> f; cat f", "request_id": "recorded-add"})
    assert added["output"] == "new\nmore\n"
    assert pool.ask("/exec", {**which, "command": "cat f"})["output"] == "new\nmore\n"
    assert httpx.post(pool.url + "/put", content=b"other", headers=headers).status_code == 409
    assert pool.ask("/close", which) == {"ok": True, "found": True}
    for path, body in (("/allocate", asked), ("/exec", command)):
        told = pool.ask(path, body)
        assert (told["ok"], told["error_type"]) == (False, "SandboxLost")
    assert pool.ask("/close", which)["found"] and pool.ask("/cancel", {"request_id": asked["request_id"]})
    assert lease["container_id"] not in engine.containers()


def test_what_is_not_ours_is_not_touched(engine, servers, image):
    engine.docker("image", "inspect", image.digest)
    foreign = engine.docker("run", "--detach", "--network=none", image.digest, "sleep", "600")
    try:
        for server, which in ((servers["node"], "container_id"), (servers["pool"], "lease_id")):
            prefix = "/container" if which == "container_id" else ""
            for body in ({"command": "true"}, {"command": "true", "cwd": "/tmp"}):
                told = server.ask(f"{prefix}/exec", {which: foreign, **body})
                assert (told["ok"], told["error_type"]) == (False, "SandboxLost")
            server.ask(f"{prefix}/destroy" if prefix else "/close", {which: foreign})
        told = servers["node"].ask("/container/renew", {"owner": "me", "containers": {foreign: 5}})
        assert told["unknown"] == [foreign] and told["extra"] == {}
        assert foreign in engine.containers()
    finally:
        engine.docker("rm", "--force", foreign)


def test_what_a_host_does_not_give(servers):
    node = servers["node"]
    asked = [
        {"memory_bytes": 1 << 45},
        {"wall_seconds": 80_000},
        {"output_bytes": 1 << 40},
        {"processes": 1 << 20},
    ]
    for limits in asked:
        told = node.ask("/container/create", {"tree": True, "limits": limits})
        assert not told["ok"] and "is more than this host's" in told["error"], told
    made = node.ask("/container/create", {"tree": True})["container_id"]
    for limits in asked:
        told = node.ask("/container/exec", {"container_id": made, "command": "true", "limits": limits})
        assert not told["ok"] and "is more than this host's" in told["error"]
    refused = [
        ({"command": "true", "env": {"A=B": "c"}}, "ValueError"),
        ({"command": "true", "cwd": "relative"}, "Refused"),
    ]
    for body, kind in refused:
        told = node.ask("/container/exec", {"container_id": made, **body})
        assert (told["ok"], told["error_type"]) == (False, kind)
    told = node.ask("/container/get", {"container_id": made, "path": "../../etc/shadow"})
    assert (told["ok"], told["error_type"]) == (False, "PathRefused")
    headers = {"Authorization": f"Bearer {node.token}", "Content-Type": BYTES}
    for path in ("/etc/passwd", "../x", "/tmp/../etc/x", "/proc/self/mem"):
        headers[REQUEST] = json.dumps({"container_id": made, "path": path})
        assert httpx.post(node.url + "/container/put", content=b"x", headers=headers).status_code == 422
    headers[REQUEST] = json.dumps({"container_id": made})
    assert httpx.post(node.url + "/container/fill", content=b"no tar", headers=headers).status_code == 500
    for script in ("", "exit 0", "set -uxo pipefail\nexit 0"):
        told = node.ask("/container/evaluate", {"container_id": made, "eval_script": script})
        assert (told["ok"], told["error_type"]) == (False, "Refused"), told
    node.ask("/container/destroy", {"container_id": made})


def test_more_than_a_host_takes(engine, tmp_path):
    node = pool_servers.exec_server(engine, tmp_path, "--max-containers", 2)
    try:
        made = [node.ask("/container/create", {"tree": True}) for _ in range(3)]
        assert [each["ok"] for each in made] == [True, True, False]
        assert (made[2]["error_type"], made[2]["retryable"]) == ("NoPlace", True)
        # Commands run until the test releases them, so all accepted commands run at the same time.
        container, answers, waiters = made[0]["container_id"], [], []
        body = {"container_id": container, "command": "until test -e /tmp/go; do sleep 0.1; done"}
        for _ in range(12):
            waiters.append(threading.Thread(target=lambda: answers.append(node.ask("/container/exec", body))))
        for each in waiters:
            each.start()
        refused_first = until(lambda: len(answers) == 4, PATIENCE)
        engine.docker("exec", "--user", UID, container, "touch", "/tmp/go")
        for each in waiters:
            each.join()
        assert refused_first
        assert sum(answer["ok"] for answer in answers) == 8
        assert {answer["error"] for answer in answers if not answer["ok"]} == {
            "8 requests at once are the most in one sandbox"
        }
    finally:
        node.stop()
    assert until(lambda: engine.containers() == [], PATIENCE)


def test_a_sandbox_that_nobody_renews_ends(engine, servers):
    node = servers["node"]
    before = engine.containers()
    made = node.ask("/container/create", {"tree": True, "owner": "me", "ttl_seconds": 600})
    assert len(engine.containers()) == len(before) + 1
    node.ask("/container/renew", {"owner": "me", "containers": {made["container_id"]: 1}})
    assert until(lambda: engine.containers() == before, PATIENCE)
    told = node.ask("/container/exec", {"container_id": made["container_id"], "command": "true"})
    assert (told["ok"], told["error_type"]) == (False, "SandboxLost")


def test_an_engine_that_is_down_is_not_healthy(image_record, tmp_path):
    from tests.contract.engine import engine_end, start_engine

    own = start_engine()
    node = pool_servers.exec_server(own, tmp_path)
    try:
        assert node.ask("/healthz")["running_containers"] == "0"
        own.kill()
        told = node.ask("/healthz")
        assert (told["ok"], told["error_type"]) == (False, "EngineDown")
        own.start()
        assert until(lambda: node.ask("/healthz")["ok"], PATIENCE)
    finally:
        node.stop()
        engine_end(own)


def test_only_the_keeper_changes_the_nodes(servers):
    pool, node = servers["pool"], servers["node"]
    for path in ("/nodes/join", "/nodes/drain", "/nodes/leave"):
        assert not pool.ask(path, {"url": node.url})["ok"]
        assert not pool.ask(path, {"url": "http://127.0.0.1:1"}, token=node.token)["ok"]
    for url in (
        "file:///etc/passwd",
        "http://u:p@host",
        "http://host/path",
        "http://host?x",
        "gopher://x",
        "",
    ):
        assert not pool.ask("/nodes/join", {"url": url}, token=node.token)["ok"]
    other = node.url.replace("127.0.0.1", "localhost")
    told = pool.ask("/nodes/join", {"url": other}, token=node.token)
    assert (told["ok"], told["error"]) == (False, "that host is in the pool under another address")
    assert not pool.ask("/allocate", {"tree": True}, token=node.token)["ok"]
    assert [each["url"] for each in pool.ask("/status")["pool"]["nodes"]] == [node.url]
