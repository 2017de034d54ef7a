"""Every sampling setting reaches a service under its name in each interface, and a refusal names it."""

import json
from contextlib import closing

import pytest

from swelab.agents.swe_agent import served_model
from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.sampling import Sampling
from swelab.configs.kinds.scaffold import MiniLoop, SweAgentScaffold
from swelab.http.refusal import Refused
from swelab.models import SettingRefused
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.hosted import HostedModel
from swelab.models.chat.litellm_calls import unsupported_settings
from swelab.models.chat.open_hosted import open_service
from swelab.models.chat.served_models import ChatModel
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.serving.request_shapes import Limits, engine_body, read_request
from swelab.models.serving.server import Endpoint
from swelab.models.serving.sglang_shapes import SHAPES
from swelab.records.task_records import Task
from swelab.sampling_settings import SETTINGS
from tests.json_service import json_service

VALUES = {
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 20,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.3,
    "stop": ["</end>"],
    "max_tokens": 32,
    "seed": 7,
    "thinking": False,
    "reasoning_effort": "low",
    "extra_body": {"only_here": [1]},
}
FURTHER = {"chat_template_kwargs": {"enable_thinking": False}, "only_here": [1]}
CHAT = {name: value for name, value in VALUES.items() if name not in ("thinking", "extra_body")} | FURTHER
GENERATE = {name: VALUES[name] for name, each in SETTINGS.items() if each.generate and name != "max_tokens"}
GENERATE |= {"max_new_tokens": 32, "no_stop_trim": True}
SCAFFOLD = MiniLoop(
    system_template="",
    instance_template="",
    action_regex="(?s)(.+)",
    format_error_template="again",
    observation_template="{{output.output}}",
)
ISSUE = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ls"}}
USAGE = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
ANSWERS = {
    "/v1/chat/completions": {"id": "x", "model": "toy", "choices": [CHOICE], "usage": USAGE},
    "/generate": {
        "meta_info": {"output_token_logprobs": [[-0.5, 3, None]], "finish_reason": {"type": "stop"}}
    },
    "/v1/messages": {
        "id": "x",
        "type": "message",
        "role": "assistant",
        "model": "toy",
        "content": [{"type": "text", "text": "ls"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


@pytest.fixture
def service(monkeypatch):
    """A service that keeps the bodies of its requests. `refusal` is its answer to all, if there is one."""
    monkeypatch.setenv("TOY_KEY", "key")

    def answer(path, headers, body):
        server.bodies.append(body)
        return server.refusal or (200, ANSWERS[path])

    with json_service(answer) as server:
        server.bodies, server.refusal = [], None
        yield server


def chat(service, values, tmp_path):
    """One request as a served policy sends it."""
    ChatModel(Endpoint(service.url, "key", "toy"), SCAFFOLD, Sampling(**values).values).query(ISSUE)


def generate(service, values, tmp_path):
    """One request as rollouts of reinforcement learning send it."""
    ServedTokens(Endpoint(f"{service.url}/v1", "key", "toy")).generate([1, 2], values)


def hosted(service, values, tmp_path, model="openai/toy"):
    """One request as a hosted policy sends it. Returns what its trajectory records."""
    base = service.url if model.startswith("anthropic") else f"{service.url}/v1"
    told = {"kind": "hosted", "scaffold": "demo", "model": model, "api_base": base, "api_key_env": "TOY_KEY"}
    policy = recipes.complete(POLICY, told | {"sampling": values, "price": {"input": 1, "output": 1}}, "p")
    paid = PaidRun(tmp_path / "paid", lambda task: task.instance_id)
    with open_service(policy, "p", SCAFFOLD, paid.ledger) as opened:
        turns = lambda: paid.turns(Task.of({"instance_id": "a"}))  # noqa: E731
        with closing(HostedModel(opened, SCAFFOLD, turns)) as talk:
            talk.query(ISSUE)
            return talk.serialize()["info"]["config"]


def litellm(service, values, tmp_path):
    """Like `hosted`, through LiteLLM's own client of OpenAI's models."""
    hosted(service, values, tmp_path, "openai/gpt-4.1")


def settings_in(body):
    return {name: value for name, value in body.items() if name not in ("model", "messages", "stream")}


def test_the_cases_have_all_settings():
    assert VALUES.keys() == SETTINGS.keys()


@pytest.mark.parametrize("send", [chat, hosted])
def test_a_chat_request_has_every_setting(service, tmp_path, send):
    send(service, VALUES, tmp_path)
    (body,) = service.bodies
    assert settings_in(body) == CHAT


def test_litellm_passes_on_every_setting_of_a_model_without_thoughts(service, tmp_path, capsys):
    values = {name: value for name, value in VALUES.items() if name != "reasoning_effort"}
    litellm(service, values, tmp_path)
    (body,) = service.bodies
    assert settings_in(body) == {name: value for name, value in CHAT.items() if name != "reasoning_effort"}
    assert "is not sent" not in capsys.readouterr().err


def test_a_request_of_token_ids_has_every_setting_that_it_takes(service, tmp_path):
    generate(service, VALUES, tmp_path)
    (body,) = service.bodies
    assert body["sampling_params"] == GENERATE


def test_our_gate_passes_on_every_setting_and_refuses_what_it_does_not_know():
    messages = {"messages": [{"role": "user", "content": "a"}]}
    fields = {name: value for name, value in CHAT.items() if name != "only_here"}
    for path, body in (
        ("/v1/chat/completions", messages | fields),
        ("/generate", {"input_ids": [1], "sampling_params": GENERATE}),
    ):
        request = read_request(json.dumps(body).encode(), SHAPES[path], Limits(512, 320))
        assert json.loads(engine_body(request)) == body
    with pytest.raises(Refused, match="only_here"):
        read_request(json.dumps(messages | CHAT).encode(), SHAPES["/v1/chat/completions"], Limits(512, 320))


def test_what_a_service_does_not_take_is_one_line_and_in_the_record(service, tmp_path, capsys):
    values = {"temperature": 0.6, "top_k": 20, "seed": 3, "presence_penalty": 0.2, "stop": ["</end>"]}
    config = hosted(service, values, tmp_path, "anthropic/claude-sonnet-4-5")
    (body,) = service.bodies
    assert (body["temperature"], body["top_k"], body["stop_sequences"]) == (0.6, 20, ["</end>"])
    assert list(config["not_sent"]) == ["presence_penalty", "seed"]
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert [line.split()[1] for line in lines] == ["presence_penalty", "seed"]
    assert not {"seed", "presence_penalty"} & (body.keys() | config["sampling"].keys())


def test_a_field_of_one_service_alone_is_a_field_of_the_request(service, tmp_path):
    hosted(service, {"extra_body": {"service_tier": "auto"}}, tmp_path, "anthropic/claude-sonnet-4-5")
    assert service.bodies[0]["service_tier"] == "auto" and "extra_body" not in service.bodies[0]


def test_what_litellm_leaves_out_without_a_word_is_told():
    values = {"temperature": 0.6, "top_k": 20, "min_p": 0.05, "max_tokens": 9}
    found = unsupported_settings("gemini/gemini-2.0-flash", values, {"only_here": 1})
    assert "LiteLLM leaves it out" in found["min_p"] and "top_k" not in found and "temperature" not in found


WORDS = [
    {"error": {"message": "no", "param": "NAME", "code": "unsupported_parameter"}},
    {"error": {"message": "Unsupported parameter: 'NAME' is not supported with this model."}},
    {"error": {"message": "Unrecognized request argument supplied: NAME"}},
    {"type": "error", "error": {"message": "NAME: Extra inputs are not permitted"}},
    {"object": "error", "message": "Expected `float` <= 2.0 - at `$.NAME`", "code": 400},
]


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("send", [chat, hosted, litellm, generate])
def test_a_refusal_names_the_setting(service, tmp_path, send, words):
    for name in ("top_k", "stop", "repetition_penalty"):
        service.refusal = (400, json.loads(json.dumps(words).replace("NAME", name)))
        with pytest.raises(SettingRefused, match=f"refused the setting {name}: ") as caught:
            send(
                service, {"temperature": 0.6, "top_k": 20, "stop": ["x"], "repetition_penalty": 1.1}, tmp_path
            )
        assert caught.value.setting == name and "\n" not in str(caught.value)


def test_a_refusal_that_names_no_setting_is_none_of_a_setting(service, tmp_path):
    service.refusal = (400, {"error": {"message": "please stop; the temperature of the room is high"}})
    with pytest.raises(Exception, match="refused: please stop") as caught:
        chat(service, {"temperature": 0.6, "stop": ["x"]}, tmp_path)
    assert type(caught.value) is not SettingRefused


def test_swe_agent_sends_every_setting_too():
    told = {"kind": "checkpoint", "scaffold": "x", "weights": "w", "sampling": VALUES}
    scaffold = SweAgentScaffold(agent="swe-agent", config="x", python_standalone_dir="/root")
    made = served_model(Endpoint("http://h/v1", "", "toy"), recipes.complete(POLICY, told, "p"), scaffold)
    named = dict(made["completion_kwargs"])
    further = named.pop("extra_body")
    assert {"temperature": made["temperature"], "top_p": made["top_p"], **named, **further} == CHAT
