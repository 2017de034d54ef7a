"""A client of the older servers with these paths does its whole work with ours; only the token is new."""

import subprocess

import httpx
import pytest

from tests.contract import pool_servers

ATTEMPTS = 10
ANSWER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class Client:
    """Repeats every failed request as often as those programs do. (They wait a second in between.)"""

    def __init__(self, url, token):
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=None)
        self.sent = 0

    def post(self, path, payload, attempts=ATTEMPTS):
        for attempt in range(attempts):
            self.sent += 1
            try:
                answer = self.http.post(path, json=payload)
                answer.raise_for_status()
                break
            except httpx.HTTPError as error:
                if attempt + 1 == attempts:
                    raise RuntimeError(str(error)) from None
        told = answer.json()
        if not told["ok"]:
            raise RuntimeError(told.get("error"))
        return told

    def allocate(self, image, instance_id=""):
        return self.post("/allocate", {"image": image, "instance_id": instance_id})

    def heartbeat(self, lease):
        self.post("/heartbeat", {"lease_id": lease})

    def exec(self, lease, command, cwd="/testbed", timeout=180, env=None):
        asked = {"lease_id": lease, "command": command, "cwd": cwd, "timeout": timeout, "env": env}
        return self.post("/exec", asked)

    def diff(self, lease, cwd="/testbed"):
        return self.post("/diff", {"lease_id": lease, "cwd": cwd})["patch"]

    def evaluate(self, lease, patch, eval_script, cwd="/testbed", timeout=3600):
        asked = {"patch": patch, "eval_script": eval_script, "cwd": cwd, "timeout": timeout}
        return self.post("/evaluate", {"lease_id": lease, **asked}, attempts=3)

    def close(self, lease):
        self.post("/close", {"lease_id": lease})


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("others")
    node = pool_servers.folder_server(folder / "node")
    repository = node.folder / "image"
    subprocess.run(["git", "init", "-q", repository], check=True)
    (repository / "f").write_text("one\n")
    for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", repository, *words], check=True)
    pool = pool_servers.pool_server([node], folder / "pool", ttl=300)
    yield Client(pool.url, pool.token)
    pool.stop()
    node.stop()


def test_a_task_from_its_lease_to_its_verdict(client):
    image = "swebench/sweb.eval.x86_64.a_1776_b-1:latest"
    told = client.allocate(image, "a__b-1")
    assert {"lease_id", "container_id", "node_url"} <= told.keys()
    lease = told["lease_id"]
    for command, code, output in (
        ("cat f", 0, "one\n"),
        ("echo two > f; echo new > g", 0, ""),
        ("grep -c three f", 1, "0\n"),
    ):
        client.heartbeat(lease)
        told = client.exec(lease, command)
        assert (told["returncode"], told["output"]) == (code, output)
    told = client.exec(lease, "echo $A; pwd; printf '\\377'; exit 3", cwd="/tmp", env={"A": "b"})
    assert (told["returncode"], told["output"]) == (3, "b\n/tmp\n\udcff")
    told = client.exec(lease, "echo begun; sleep 60", timeout=1)
    assert (told["returncode"], told["output"]) == (124, "begun\n")  # not -1, and not a text
    told = client.exec(lease, f"echo {ANSWER} && git add -A && git diff --cached")
    patch = told["output"].removeprefix(ANSWER + "\n")
    assert "-one\n+two\n" in patch and client.diff(lease) == patch
    client.close(lease)
    again = client.allocate(image, "a__b-1__eval")["lease_id"]
    script = "set -exo pipefail\ncd /testbed\ngrep -q two f\n"
    assert client.evaluate(again, patch, script)["resolved"] is True
    assert client.evaluate(again, "", script)["resolved"] is False
    assert client.evaluate(again, "no patch", script)["resolved"] is False
    for _ in range(2):  # the patch adds g; the earlier g is removed first
        assert client.evaluate(again, patch, script)["resolved"] is True
    client.close(again)
    client.close(again)
    status = client.http.get("/status").json()["pool"]
    assert status["total_leases"] == 0
    assert {"url", "active_containers", "max_containers", "healthy"} <= status["nodes"][0].keys()
    assert client.http.get("/healthz").json()["ok"]


def test_what_they_are_refused_in_their_shape(client):
    lease, before = client.allocate("swebench/x:latest")["lease_id"], client.sent
    with pytest.raises(RuntimeError, match="400"):
        client.evaluate(lease, "", "set -uxo pipefail\nexit 0")
    assert client.sent == before + 3
    client.close(lease)
    for ask in (client.exec, client.diff):
        with pytest.raises(RuntimeError, match="410"):
            ask(lease, "/testbed")
    answer = client.http.post("/exec", json={"lease_id": lease, "command": "true"})
    assert answer.json().keys() >= {"ok", "error"} and answer.json()["ok"] is False
