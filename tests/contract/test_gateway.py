"""A hosted model behind the gateway, called as SWE-agent does: by LiteLLM, with only a token."""

import json
import threading
import urllib.error
import urllib.request

import openai
import pytest

from swelab import patience
from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.billing import api_keys
from swelab.models.billing.ledger import Ledger
from swelab.models.chat import gateway
from swelab.models.chat.gateway import litellm_registry, open_gateway
from swelab.models.chat.litellm_calls import quiet_litellm
from swelab.models.chat.open_hosted import open_service
from swelab.patience import Pauses
from tests.contract.hosted_service import PRICE, Fault, Service

ISSUE = [{"role": "system", "content": "You mend."}, {"role": "user", "content": "Mend it, please."}]
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    monkeypatch.setattr(api_keys, "KEYS", Pauses(first=0.02))
    monkeypatch.setenv("KEY_A", "secret-a:::secret-b")
    service = Service()
    yield service
    service.close()


@pytest.fixture
def behind(service, tmp_path):
    """Opens a policy behind a gateway. Returns its service and its endpoint."""
    stack = []

    def start(**settings):
        policy = {"kind": "hosted", "scaffold": "x", "model": "openai/toy", "api_key_env": "KEY_A"}
        policy |= {"api_base": f"{service.url}/v1", "price": PRICE, **settings}
        found = open_service(
            recipes.complete(POLICY, policy, "policy"),
            "expert",
            MiniLoop.model_construct(cost_limit=2),
            tmp_path / "ledger",
        )
        stack.append(found)
        opened = found.__enter__()
        stack.append(open_gateway(opened, "expert"))
        return opened, stack[-1].__enter__()

    yield start
    for manager in reversed(stack):
        manager.__exit__(None, None, None)


def ask(endpoint, messages=ISSUE, **settings):
    named = {"model": f"openai/{endpoint.model}", "api_base": endpoint.url, "api_key": endpoint.api_key}
    return quiet_litellm().completion(messages=messages, max_retries=0, **named, **settings)


def post(url, data, token=""):
    """Sends a plain request. Returns status and body."""
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_calls_are_those_of_the_policy_and_are_charged_once(service, behind, tmp_path):
    sampling = {"temperature": 0.5, "max_tokens": 50, "seed": 7}
    opened, endpoint = behind(sampling=sampling)
    service.calls = lambda turn: (
        {"id": "c1", "name": "bash", "arguments": {"command": "ls"}} if not turn else None
    )
    first = ask(endpoint, temperature=0.5, max_tokens=50, tools=TOOLS)
    (call,) = first.choices[0].message.tool_calls
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == (
        "c1",
        "bash",
        {"command": "ls"},
    )
    said = {"role": "assistant", "content": "", "tool_calls": [call.model_dump()]}
    seen = {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}],
    }
    second = ask(endpoint, [*ISSUE, said, seen], tools=TOOLS)
    assert second.choices[0].message.content.startswith("Turn 1")
    one, two = (request["body"] for request in service.requests)
    assert (
        one["temperature"] == 0.5 and one["max_tokens"] == 50 and one["seed"] == 7 and one["tools"] == TOOLS
    )
    assert two["messages"][3] == {"role": "tool", "tool_call_id": "c1", "content": "a b"}
    assert two["messages"][2]["tool_calls"][0]["function"]["name"] == "bash"
    keys_used = {request["key"] for request in service.requests}
    assert len(keys_used) == 1 and keys_used <= {"secret-a", "secret-b"}
    litellm = quiet_litellm()
    litellm.register_model(litellm_registry(opened, "expert"))
    told = sum(litellm.completion_cost(answer, model="openai/expert") for answer in (first, second))
    ledger = Ledger(tmp_path / "ledger", None)
    assert (
        ledger.account().spent
        == pytest.approx(1e9 * told, abs=2)
        == pytest.approx(1e9 * service.charged, abs=2)
    )
    ledger.close()


def test_a_budget_is_never_exceeded_and_ends_the_program(service, behind, monkeypatch):
    opened, endpoint = behind(budget_dollars=0.003, sampling={"max_tokens": 50})
    refused, litellm = [], quiet_litellm()

    def work(number):
        while True:
            try:
                ask(endpoint, [ISSUE[0], {"role": "user", "content": f"{number}" * 100}])
            except litellm.exceptions.APIError as error:
                refused.append(str(error))
                return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 4 and "the budget of $0.0030 of policy expert has no room" in refused[0]
    assert 0.0015 < service.charged <= 0.003 and opened.spent
    assert endpoint.alive(), "others may still have room"
    monkeypatch.setattr(gateway, "LAST_CALLS_SECONDS", 0)
    assert not endpoint.alive()


def test_faults_reach_the_program_as_what_they_are(service, behind):
    _, endpoint = behind()
    litellm = quiet_litellm()
    for fault, kind in (
        (
            Fault(400, "maximum context length is 9 tokens", code="context_length_exceeded"),
            "ContextWindowExceededError",
        ),
        (Fault(400, "no such setting"), "AuthenticationError"),
        (Fault(500, "down"), "ServiceUnavailableError"),
        (Fault(401, "wrong key"), "AuthenticationError"),
    ):
        service.plan = lambda number, request, fault=fault: fault
        with pytest.raises(getattr(litellm.exceptions, kind)) as caught:
            ask(endpoint)
        assert "secret" not in str(caught.value)


def test_nobody_else_is_answered(service, behind):
    _, endpoint = behind()
    call, body = f"{endpoint.url}/chat/completions", json.dumps({"messages": ISSUE}).encode()
    assert post(call, body)[0] == post(call, body, "x" * 32)[0] == post(call, body, "ü")[0] == 401
    assert post(f"{endpoint.url}/models", body, endpoint.api_key)[0] == 404
    assert post(call, b"{", endpoint.api_key)[0] == 400
    for odd in (b"[]", b'{"messages": []}', b'{"messages": [1]}', b'{"messages": [{"content": 5}]}'):
        status, told = post(call, odd, endpoint.api_key)
        assert status == 400 and "expected" in json.loads(told)["error"]["message"]
    assert not service.requests
    assert endpoint.url.startswith("http://127.0.0.1:")
    assert post(call, body, endpoint.api_key)[0] == 200 and len(service.requests) == 1


def nested(levels, opening, closing):
    return opening * levels + closing * levels


@pytest.mark.parametrize(
    "body",
    [
        nested(100_000, "[", "]"),
        nested(100_000, '{"a":', "}").replace(":}", ":1}"),
        json.dumps({"messages": ISSUE})[:-1] + f', "tools": {nested(100_000, "[", "]")}}}',
        json.dumps({"messages": ISSUE})[:-1] + f', "tools": {nested(200, "[", "]")}}}',
        json.dumps({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}),
        *(json.dumps({"messages": ISSUE, **more}) for more in ({"n": True}, {"tools": 5}, {"model": [1]})),
    ],
)
def test_what_is_no_call_is_a_clear_refusal(service, behind, body):
    _, endpoint = behind()
    status, told = post(f"{endpoint.url}/chat/completions", body.encode(), endpoint.api_key)
    assert status == 400 and "expected" in json.loads(told)["error"]["message"]
    assert not service.requests


REFUSED = {
    "temperature": 1.9,
    "top_p": 0.5,
    "max_tokens": 9999,
    "max_completion_tokens": 9999,
    "seed": 8,
    "n": 2,
    "stream": True,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"5": 100},
    "stop": ["x"],
    "presence_penalty": 0.5,
    "response_format": {"type": "json_object"},
    "reasoning_effort": "low",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_asked_for_and_not_done_is_refused_by_name(service, behind, name):
    _, endpoint = behind(sampling={"temperature": 0.5, "max_tokens": 50, "seed": 7})
    client = openai.OpenAI(base_url=endpoint.url, api_key=endpoint.api_key, max_retries=0)
    with pytest.raises(openai.BadRequestError, match=f"{name}: .* is not done here; expected") as caught:
        client.chat.completions.create(model="expert", messages=ISSUE, **{name: REFUSED[name]})
    assert caught.value.param == name and caught.value.code == "unsupported_parameter"
    assert not service.requests and not service.charged
