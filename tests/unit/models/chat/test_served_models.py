"""Chat models with a real HTTP service that answers, fails, refuses and disappears."""

import json
from types import SimpleNamespace

import pytest

from swelab import patience
from swelab.agents.mini import run_rollout
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models import ContextLimit, ModelLost, ServingError
from swelab.models.chat import served_models
from swelab.models.chat.error_bodies import broke_off
from swelab.models.chat.served_models import ChatModel
from swelab.models.chat.text_model import warn_of_cut
from swelab.models.chat.turn_text import EMPTY
from swelab.models.serving.server import Endpoint, free_port
from swelab.patience import SERVED
from swelab.records import InputError
from swelab.records.task_records import Task
from tests.json_service import json_service

# isort: split
# imported after our modules, which stop it from printing a greeting and from writing to the home folder
from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import FormatError

SCAFFOLD = MiniLoop(
    system_template="",
    instance_template="",
    action_regex=r"```bash\n(.*?)\n```",
    format_error_template="One block, not {{ actions|length }} ({{ finish_reason }}).",
    observation_template="exit {{output.returncode}}\n{{output.output}}",
    max_observation_chars=100,
)
SAMPLING = {"temperature": 0, "top_p": 1, "max_tokens": 16, "seed": 0}
ISSUE = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


def answer(content, finish_reason="stop"):
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content},
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return 200, {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "toy",
        "choices": [choice],
        "usage": usage,
    }


def fault(status, message):
    return status, {"object": "error", "message": message, "type": "t", "code": status}


@pytest.fixture
def service(monkeypatch):
    """A service. `script` is the list of its next responses, and `requests` are those that it got."""
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)

    def reply(path, headers, body):
        server.requests.append((path, headers["Authorization"], body))
        return server.script.pop(0) if server.script else answer("```bash\nls\n```")

    with json_service(reply) as server:
        server.script, server.requests = [], []
        yield server


def model(service, **endpoint):
    return ChatModel(Endpoint(service.url, "key", "toy", **endpoint), SCAFFOLD, SAMPLING)


def test_an_answer_is_a_message_with_its_seconds_but_no_date_or_address(service, monkeypatch):
    monkeypatch.setattr(served_models, "time", SimpleNamespace(monotonic=iter([5.0, 7.5]).__next__))
    history = [
        *ISSUE,
        {"role": "assistant", "content": "a", "extra": {"x": 1}},
        {"role": "user", "content": "b"},
    ]
    message = model(service).query(history)
    assert message == {
        "role": "assistant",
        "content": "```bash\nls\n```",
        "extra": {
            "cost": 0.0,
            "usage": {"prompt_tokens": 7, "completion_tokens": 3},
            "finish_reason": "stop",
            "seconds": 2.5,
            "actions": [{"command": "ls"}],
        },
    }
    ((path, key, body),) = service.requests
    assert path == "/v1/chat/completions" and key == "Bearer key"
    assert body["messages"] == [{"role": m["role"], "content": m["content"]} for m in history]
    assert {name: body[name] for name in SAMPLING} == SAMPLING
    stored = json.dumps(model(service).serialize())
    assert "127.0.0.1" not in stored and "key" not in stored


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_passing_faults_are_tried_again(service, status):
    service.script = [fault(status, "busy"), fault(status, "busy")]
    assert model(service).query(ISSUE)["extra"]["actions"] == [{"command": "ls"}]
    assert len(service.requests) == 3


def test_faults_that_stay_lose_the_model(service):
    service.script = [fault(503, "busy")] * SERVED.attempts
    with pytest.raises(ModelLost, match=f"no answer in {SERVED.attempts} attempts: busy"):
        model(service).query(ISSUE)


def test_the_service_says_how_long_to_wait_but_no_longer_than_our_longest_pause(service, monkeypatch):
    pauses = []
    monkeypatch.setattr(patience, "sleep", pauses.append)
    status, body = fault(429, "busy")
    service.script = [(status, body, {"Retry-After": seconds}) for seconds in ("25", "9999")]
    model(service).query(ISSUE)
    assert pauses == [25, SERVED.longest] and len(service.requests) == 3


def test_no_connection_loses_the_model(monkeypatch):
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    with pytest.raises(ModelLost):
        ChatModel(Endpoint(f"http://127.0.0.1:{free_port()}/v1", "", "toy"), SCAFFOLD, SAMPLING).query(ISSUE)


def test_our_own_dead_server_ends_the_run_at_once(service):
    service.script = [fault(500, "dying")] * 2
    with pytest.raises(ServingError, match="has ended"):
        model(service, alive=lambda: False).query(ISSUE)
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "message",
    [
        "The input (1216 tokens) is longer than the model's context length (256 tokens).",
        "Requested token count exceeds the model's maximum context length of 256 tokens.",
        "This model's maximum context length is 8192 tokens.",
    ],
)
def test_an_overflow_is_the_context_limit(service, message):
    service.script = [fault(400, message)]
    with pytest.raises(ContextLimit):
        model(service).query(ISSUE)
    assert len(service.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_the_users_to_mend(service, status):
    service.script = [fault(status, "no such model")]
    with pytest.raises(InputError, match="refused: no such model"):
        model(service).query(ISSUE)
    assert len(service.requests) == 1


def test_a_refusal_of_one_conversation_loses_it_alone(service):
    service.script = [fault(403, "Content violates usage guidelines.")]
    with pytest.raises(ModelLost, match="does not answer this: Content violates usage guidelines"):
        model(service).query(ISSUE)
    service.script = [fault(400, "messages.2: text content blocks must be non-empty")]
    with pytest.raises(ModelLost, match="does not answer this: messages.2"):
        model(service).query(
            [*ISSUE, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
        )
    assert len(service.requests) == 2


def test_a_malformed_turn_stays_in_the_conversation(service):
    service.script = [answer("no block", "length")]
    with pytest.raises(FormatError) as error:
        model(service).query(ISSUE)
    turn, reply = error.value.messages
    assert (turn["role"], turn["content"]) == ("assistant", "no block")
    assert (reply["role"], reply["content"]) == ("user", "One block, not 0 (length).")
    assert reply["extra"]["interrupt_type"] == "FormatError"


def test_roles_alternate_in_the_agent_loop(service):
    class Environment:
        config = None

        def execute(self, action, cwd=""):
            return {"output": f"ran {action['command']}", "returncode": 0, "exception_info": ""}

        def get_template_vars(self, **kwargs):
            return kwargs

        def serialize(self):
            return {}

    service.script = [answer("no block"), answer("```bash\nls\n```"), *[answer("no block")] * 3]
    agent = DefaultAgent(model(service), Environment(), system_template="s", instance_template="{{task}}")
    assert agent.run("issue")["exit_status"] == "RepeatedFormatError"
    assert [m["role"] for m in agent.messages] == ["system"] + ["user", "assistant"] * 5 + ["user", "exit"]
    assert agent.messages[5]["content"] == "exit 0\nran ls"
    assert "timestamp" not in json.dumps(agent.messages)


@pytest.mark.parametrize(
    ("content", "finish", "is_cut"),
    [(None, "length", True), ("<think>on", "length", True), ("so", "length", False), (None, "stop", False)],
)
def test_thoughts_without_end_are_malformed_and_name_the_setting(service, capsys, content, finish, is_cut):
    warn_of_cut.cache_clear()
    service.script = [answer(content, finish)] * 3
    for _, body in service.script:
        body["choices"][0]["message"]["reasoning_content"] = "on and"
    talk = model(service)
    place = SimpleNamespace(
        config=None, close=lambda: None, unsubmitted_patch=lambda: "", get_template_vars=dict, serialize=dict
    )
    task = Task.of({"instance_id": "a__b-1", "problem_statement": "Mend it."})
    record = run_rollout(task, talk, None, "", SCAFFOLD, lambda *_: place)
    said = "no answer in 16 tokens, only thoughts; raise max_tokens"
    assert record.outcome == "malformed" and (said in record.info.get("reason", "")) == is_cut
    assert capsys.readouterr().err.count(said) == is_cut


def test_an_empty_answer_is_malformed(service):
    service.script = [answer(None), answer(" \n")]
    talk = model(service)
    with pytest.raises(FormatError) as first:
        talk.query(ISSUE)
    assert first.value.messages[0]["content"] == ""
    with pytest.raises(FormatError) as second:
        talk.query([*ISSUE, *first.value.messages])
    talk.query([*ISSUE, *first.value.messages, *second.value.messages])
    sent = service.requests[-1][2]["messages"]
    assert [each["content"] for each in sent if each["role"] == "assistant"] == [EMPTY, EMPTY]


def test_what_a_service_wants_back_is_kept_and_sent_back(service):
    thoughts = {"reasoning_content": "I look.", "reasoning_details": [{"text": "I look."}]}
    service.script = [answer("```bash\nls\n```"), answer("no block")]
    for _, body in service.script:
        body["choices"][0]["message"] |= thoughts
    talk = model(service)
    turn = talk.query(ISSUE)
    assert {"reasoning_content": turn["reasoning_content"], **turn["extra"]["sent_back"]} == thoughts
    assert turn["content"] == "```bash\nls\n```"
    history = [*ISSUE, turn, {"role": "user", "content": "seen"}]
    with pytest.raises(FormatError) as malformed:
        talk.query(history)
    talk.query([*history, *malformed.value.messages])
    said = [each for each in service.requests[-1][2]["messages"] if each["role"] == "assistant"]
    assert len(said) == 2 and all(thoughts.items() <= each.items() for each in said)


@pytest.mark.parametrize("reason", [None, "stop", "length", "tool_calls", "content_filter", "end_turn"])
def test_an_answer_that_came_to_its_end_did_not_break_off(reason):
    assert not broke_off(reason)


@pytest.mark.parametrize("reason", ["error", "network_error", "abort", "Aborted", "cancelled", "timeout"])
def test_an_answer_that_its_service_gave_up_broke_off(reason):
    assert broke_off(reason)
