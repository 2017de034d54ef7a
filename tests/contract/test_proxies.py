"""With proxies in the environment that do not respond, servers on this machine are still reached."""

import json
import os
import sys

import pytest

from swelab.jobs import proxies
from tests.conftest import run_program
from tests.contract.hosted_service import PRICE, Service
from tests.json_service import json_service

pytestmark = pytest.mark.real
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
ASK = """
import json, os, sys, urllib.request
from swelab.models.chat.served_models import ChatModel
from swelab.models.serving.server_watchdog import generates
from swelab.models.chat.gateway import open_gateway
from swelab.configs.kinds.policy import HostedPolicy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.hosted import Talk
from swelab.models.chat.open_hosted import open_service
from swelab.checks.probes import answers
from swelab.models.serving.server import Endpoint
from swelab.sandbox.docker_engine import DockerEngine
from pathlib import Path
url, folder = sys.argv[1], Path(sys.argv[2])
model = Endpoint(f"{url}/v1", "k", "toy")
scaffold = MiniLoop(action_regex="(.*)", system_template="", instance_template="", observation_template="")
history = [{"role": "user", "content": "hello"}]
sampling = {"temperature": 0, "top_p": 1, "max_tokens": 50, "seed": 0}
named = {"kind": "hosted", "scaffold": "x", "model": "openai/toy"}
policy = HostedPolicy(
    **named, api_base=model.url, api_key_env="TOY_KEY", sampling=sampling, price=json.loads(sys.argv[3])
)
said = {"chat": ChatModel(model, scaffold, sampling).ask(history).content}
with open_service(policy, "p", scaffold, folder / "ledger") as service:
    said["litellm"] = service.answer(history, Talk(), lambda answer: None)["content"]
    with open_gateway(service, "p") as gateway:
        said["gateway"] = ChatModel(gateway, scaffold, {}).ask(history).content
said["probe"] = any(answers(sys.argv[4], "/") for _ in range(20))  # it waits for seconds only
said["generates"] = generates(Endpoint(sys.argv[4], "k", "toy"))
os.environ["DOCKER_HOST"] = sys.argv[4].replace("http:", "tcp:")
said["engine"] = DockerEngine().answers()
print(json.dumps(said))
"""


def environment(port, **more):
    """Returns the environment of a user behind a proxy that does not respond."""
    dead = f"http://127.0.0.1:{port}"
    kept = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    return kept | dict.fromkeys(PROXIES, dead) | {"TOY_KEY": "secret"} | more


def test_every_client_of_ours_goes_around_a_dead_proxy(tmp_path, dead_port):
    service = Service()
    with json_service(lambda path, headers, body: (200, b"OK")) as plain:
        arguments = [service.url, str(tmp_path), json.dumps(PRICE), plain.url]
        try:
            done = run_program(
                [sys.executable, "-c", ASK, *arguments], env=environment(dead_port), timeout=600
            )
        finally:
            service.close()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    turns = {name: said.pop(name)[:7] for name in ("chat", "litellm", "gateway")}
    assert turns == dict.fromkeys(turns, "Turn 0.")
    assert said == {"probe": True, "generates": True, "engine": True}


@pytest.mark.parametrize(
    "before, after",
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "corp.example, 10.0.0.7"}, "corp.example,10.0.0.7,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "corp.example"}, "corp.example,localhost,127.0.0.1,::1"),
        ({"no_proxy": "a", "NO_PROXY": "b"}, "a,b,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "*"}, "*"),
    ],
)
def test_what_was_listed_stays(monkeypatch, before, after):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, before.get(name, ""))
    proxies.bypass(*proxies.LOOPBACK)
    proxies.bypass(*proxies.LOOPBACK)
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == after


def test_children_of_a_script_inherit_it(dead_port):
    child = "import os; print(os.environ['no_proxy'])"
    code = f"import subprocess, sys, swelab; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    done = run_program([sys.executable, "-c", code], env=environment(dead_port, no_proxy="x"))
    assert done.stdout == "x,localhost,127.0.0.1,::1\n", done.stderr
