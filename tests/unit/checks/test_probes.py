"""Probes of a service, a key and a sandbox, and the message when nothing responds."""

import socket

import pytest

from swelab.checks.probes import answers, ask, check_keys, check_sandboxes
from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.records import Fault
from tests.json_service import json_service


def test_an_answer_of_any_status_is_one_and_only_200_is_well(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    seen = []

    def service(path, headers, body):
        seen.append((path, headers["Authorization"]))
        return (404 if path.endswith("models") else 200), {}

    with json_service(service) as server:
        base = f"{server.url}/v1"
        assert ask(f"{base}/", "/models", "token").status_code == 404
        assert not answers(base, "/models") and answers(base, "/health")
    assert seen == [("/v1/models", "Bearer token"), ("/v1/models", None), ("/v1/health", None)]


@pytest.mark.parametrize("base", ["http://127.0.0.1:{port}", "no scheme", "http://[::1"])
def test_a_service_that_does_not_answer_is_one_sentence(base):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        base = base.format(port=taken.getsockname()[1])
        with pytest.raises(Fault) as fault:
            ask(base, "/models")
        assert str(fault.value).startswith(f"{base} does not answer (") and "\n" not in str(fault.value)
        assert not answers(base, "/models")


def test_each_key_is_looked_for_and_none_is_shown(monkeypatch):
    settings = {"kind": "hosted", "scaffold": "demo", "model": "openai/x", "api_key_env": ["A_KEY", "B_KEY"]}
    policy = recipes.complete(POLICY, settings, "mine")
    monkeypatch.setenv("A_KEY", "secret")
    monkeypatch.setenv("B_KEY", " :::")
    assert [str(finding) for finding in check_keys("mine", policy)] == [
        "ok   policy mine: A_KEY is set",
        "FIX  policy mine: its token is missing; export B_KEY=...",
    ]


def test_a_sandbox_that_does_not_start_is_said_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("SWELAB_TOOLBOX", str(tmp_path / "none"))
    assert str(check_sandboxes("podman")).startswith("FIX  sandboxes (podman): no sandbox backend is called")
    assert str(check_sandboxes("podman", "use another")).endswith("; use another")
    assert str(check_sandboxes("bubblewrap")).endswith("; see docs/sandboxes.md")
