"""A push to the hub: its requests, and the messages when it fails."""

import pytest

from swelab.files.hf_hub import HubError
from swelab.sharing.hub_upload import push
from tests.json_service import json_service

TOKEN = "hf_made_up"


@pytest.fixture
def hub(monkeypatch):
    """Records requests. Makes repositories and accepts every card, refuses everything else."""

    def answer(path, headers, body):
        asked.append((path, headers.get("Authorization"), body))
        if path in ("/api/repos/create", "/api/validate-yaml"):
            return 200, {"url": f"{server.url}/datasets/me/mine"}
        return 403, {"error": "no room"}

    asked = []
    with json_service(answer) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield asked


def test_a_private_repository_is_asked_for_and_a_refusal_is_one_line(hub, tmp_path):
    (tmp_path / "README.md").write_text("# mine\n")
    with pytest.raises(HubError) as told:
        push(tmp_path, "me/mine", "dataset")
    ((key, wanted),) = [(key, body) for path, key, body in hub if path == "/api/repos/create"]
    assert key == f"Bearer {TOKEN}"
    assert (wanted["organization"], wanted["name"], wanted["type"]) == ("me", "mine", "dataset")
    assert wanted.get("private") is True or wanted.get("visibility") == "private"
    assert "403" in str(told.value), told.value
    assert [path for path, _, _ in hub if path.startswith("/api/datasets/me/mine/")]
    assert str(told.value).startswith("dataset me/mine: not pushed: ") and str(tmp_path) in str(told.value)
    assert "\n" not in str(told.value) and TOKEN not in str(told.value)


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch, tmp_path):
    with json_service(lambda *_: (0, {})) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        with pytest.raises(HubError, match="^model me/mine: not pushed: [^\n]*$"):
            push(tmp_path, "me/mine", "model")
