"""Hosted models with a paid service, over real HTTP by LiteLLM."""

import copy
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from swelab import patience
from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models import ContextLimit, ModelLost, ModelRefused, SettingRefused
from swelab.models.billing import api_keys
from swelab.models.billing.ledger import Ledger
from swelab.models.billing.paid_turns import PaidRun, request_message
from swelab.models.billing.prices import CallTokens, price_of, read_usage
from swelab.models.chat import bounded_http, hosted, litellm_calls, openai_calls
from swelab.models.chat.hosted import HostedModel, Talk
from swelab.models.chat.open_hosted import open_service
from swelab.models.chat.thoughts import SENT_BACK
from swelab.patience import Pauses
from swelab.records import InputError, read_jsonl
from swelab.records.task_records import Task
from swelab.rollouts.recorded_thoughts import thoughts_of
from tests.contract.hosted_service import PRICE, Fault, Odd, Service

# isort: split
# imported after our modules, which stop it from printing a greeting and from writing to the home folder
from minisweagent.exceptions import FormatError

pytestmark = pytest.mark.alone

SCAFFOLD = MiniLoop(
    system_template="",
    instance_template="",
    action_regex=r"```bash\n(.*?)\n```",
    format_error_template="One block.",
    observation_template="{{output.output}}",
    max_observation_chars=100,
)
MODELS = ["openai/toy", "anthropic/claude-sonnet-4-5"]
ISSUE = [{"role": "system", "content": "You mend."}, {"role": "user", "content": "Mend it, please."}]


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    monkeypatch.setattr(api_keys, "KEYS", Pauses(first=0.02))
    monkeypatch.setenv("KEY_A", "secret-a")
    monkeypatch.setenv("KEY_B", "secret-b")
    monkeypatch.setenv("KEY_C", "secret-c")
    service = Service()
    yield service
    service.close()


def named(name):
    return Task.of({"instance_id": name})


@pytest.fixture
def opened(service, tmp_path):
    """Opens a policy's service. Returns it and a function that begins a conversation."""
    stack = []

    def start(model="openai/toy", **settings):
        policy = {"kind": "hosted", "scaffold": "demo", "model": model, "api_key_env": "KEY_A"}
        base = service.url + ("/v1" if model.startswith("openai") else "")
        policy |= {"price": PRICE, "api_base": base, **settings}
        policy = recipes.complete(POLICY, {k: v for k, v in policy.items() if v is not None}, "policy")
        paid = PaidRun(tmp_path / "paid", lambda task: task["instance_id"])
        manager = open_service(policy, "expert", SCAFFOLD, paid.ledger)
        stack.append(manager)
        found = manager.__enter__()
        return found, lambda name: HostedModel(found, SCAFFOLD, lambda: paid.turns(named(name)))

    yield start
    for manager in stack:
        manager.__exit__(None, None, None)


def spent(tmp_path):
    ledger = Ledger(tmp_path / "paid" / "ledger.jsonl", None)
    account = ledger.account()
    ledger.close()
    return account


@pytest.mark.parametrize("model", MODELS)
def test_an_answer_costs_what_the_service_charges(service, opened, tmp_path, model, capfd):
    _, begin = opened(model, sampling={"temperature": 0, "max_tokens": 50, "seed": 7})
    message = begin("one").query(ISSUE)
    assert message["extra"]["actions"] == [{"command": "date +%N"}]
    assert message["extra"]["cost"] == pytest.approx(service.charged, abs=2e-9) and service.charged > 0
    assert spent(tmp_path).spent == round(message["extra"]["cost"] * 1e9)
    (request,) = service.requests
    assert request["key"] == "secret-a" and request["body"]["max_tokens"] == 50
    assert "top_p" not in request["body"] and request["body"]["temperature"] == 0
    assert request["body"].get("seed") == (7 if model.startswith("openai") else None)
    service.plan = lambda number, request: Fault(429, "slow") if number == 1 else None
    begin("two").query(ISSUE)
    said = capfd.readouterr()
    assert said.out == "" and all("warning: seed" in line for line in said.err.splitlines())


def test_what_a_model_does_not_take_is_told_and_stored(opened, capsys):
    _, begin = opened("anthropic/claude-sonnet-4-5", sampling={"seed": 3})
    told = capsys.readouterr().err
    assert told.count("warning: seed is not sent to anthropic/claude-sonnet-4-5") == 1
    stored = begin("one").serialize()["info"]["config"]
    assert list(stored["not_sent"]) == ["seed"] and "seed" not in stored["sampling"]


def test_prompt_caching_is_asked_for_counted_and_priced(service, opened, tmp_path):
    service.cached = lambda history, prompt: prompt // 2 if len(history) > 2 else 0
    _, begin = opened("anthropic/claude-sonnet-4-5", cache_last_messages=2)
    model = begin("one")
    first = model.query(ISSUE)
    second = model.query([*ISSUE, first, {"role": "user", "content": "seen"}])
    marks = [json.dumps(each["body"]).count("cache_control") for each in service.requests]
    assert marks == [2, 3], "the system prompt, and of the messages the last two"
    usage = second["extra"]["usage"]
    assert usage["cached_tokens"] == usage["prompt_tokens"] // 2
    assert usage["cache_write_tokens"] == usage["prompt_tokens"] - usage["cached_tokens"]
    paid = first["extra"]["cost"] + second["extra"]["cost"]
    assert paid == pytest.approx(service.charged, abs=4e-9)


BUSY = {
    "429": Fault(429, "slow down", "rate_limit_error"),
    "529": Fault(529, "Overloaded", "overloaded_error"),
}
BUSY |= {"503": Fault(503, "rate limit exceeded"), "500": Fault(500, "boom"), "409": Fault(409, "conflict")}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", BUSY.values(), ids=BUSY)
def test_passing_faults_are_waited_out_and_not_paid(service, opened, tmp_path, model, fault):
    service.plan = lambda number, request: fault if number < 3 else None
    _, begin = opened(model)
    begin("one").query(ISSUE)
    assert len(service.requests) == 4
    account = spent(tmp_path)
    assert (account.calls, account.unsure_calls) == (4, 0)
    assert account.spent == pytest.approx(service.charged * 1e9, abs=2)


UNSURE = [(model, what) for model in MODELS for what in ("cut", "html", "error")]


@pytest.mark.parametrize("model, what", [*UNSURE, ("openai/toy", "no choices")])
def test_answers_that_nobody_can_read_count_with_their_worst_case(service, opened, tmp_path, model, what):
    service.plan = lambda number, request: Odd(what) if number == 0 else None
    _, begin = opened(model)
    begin("one").query(ISSUE)
    account = spent(tmp_path)
    assert (account.calls, account.unsure_calls) == (2, 1)
    assert account.spent / 1e9 > service.charged > 0
    service.plan = lambda number, request: Odd(what)
    with pytest.raises(ModelLost, match=r"no answer in 3 attempts"):
        begin("two").query(ISSUE)


@pytest.mark.full
@pytest.mark.parametrize("model", MODELS)
def test_stalls_and_trickles_end(service, opened, tmp_path, model, monkeypatch):
    monkeypatch.setattr(bounded_http, "ANSWER_SECONDS", 0.5)
    service.plan = lambda number, request: [Odd("stall", 1.0), Odd("drip", 0.05), None][number]
    _, begin = opened(model)
    began = time.monotonic()
    begin("one").query(ISSUE)
    assert time.monotonic() - began < 5
    assert spent(tmp_path).unsure_calls == 2


def test_a_huge_answer_is_not_taken(service, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(bounded_http, "LARGEST_BYTES", 1 << 20)
    service.plan = lambda number, request: [Odd("huge", 2 << 20), Odd("huge", 1 << 19), None][number]
    _, begin = opened()
    assert len(begin("one").query(ISSUE)["content"]) < 100
    assert spent(tmp_path).unsure_calls == 2


@pytest.mark.parametrize("what", ["no usage", "lies"])
def test_an_answer_without_its_tokens_is_kept_at_its_most(service, opened, tmp_path, what):
    service.plan = lambda number, request: Odd(what)
    _, begin = opened()
    extra = begin("one").query(ISSUE)["extra"]
    assert extra["usage"] is None and extra["cost_is"] == "at most"
    assert extra["cost"] > service.charged and spent(tmp_path).unsure_calls == 1


def test_an_unreachable_service_costs_nothing(service, opened, tmp_path, dead_port):
    _, begin = opened(api_base=f"http://127.0.0.1:{dead_port}")
    with pytest.raises(ModelLost, match="no answer in 7 attempts: no connection"):
        begin("one").query(ISSUE)
    assert spent(tmp_path).spent == 0


@pytest.mark.parametrize("model", MODELS)
def test_what_is_the_conversations_own_fault_is_not_tried_again(service, opened, model):
    _, begin = opened(model)
    for fault, error, text in (
        (Fault(400, "prompt is too long: 210000 tokens > 200000 maximum"), ContextLimit, "too long"),
        (Fault(413, "Request exceeds the maximum size"), ContextLimit, "maximum size"),
        (Fault(400, "Output blocked by content filtering policy"), ModelRefused, "does not answer"),
        (Fault(404, "no such model"), InputError, "refused: no such model"),
        (Fault(400, "max_tokens: must be positive"), SettingRefused, "refused the setting max_tokens"),
    ):
        before = len(service.requests)
        service.plan = lambda number, request, fault=fault: fault
        with pytest.raises(error, match=text):
            begin(text).query(ISSUE)
        assert len(service.requests) == before + 1


REFUSALS = {
    "wrong key": (Fault(401, "Incorrect API key provided: THE KEY"), "KEY_A was refused"),
    "forbidden": (Fault(403, "your organization is disabled", "permission_error"), "KEY_A was refused"),
    "openai quota": (
        Fault(429, "You exceeded your current quota", "insufficient_quota", code="insufficient_quota"),
        "KEY_A is out of quota",
    ),
    "anthropic quota": (
        Fault(400, "Your credit balance is too low to access the Anthropic API.", "invalid_request_error"),
        "KEY_A is out of quota",
    ),
    "unpaid": (Fault(402, "Insufficient Balance"), "KEY_A is out of quota"),
    "tomorrow": (
        Fault(429, "daily limit", headers={"Retry-After": "7200"}),
        "KEY_A is asked to wait 120 minutes",
    ),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault, told", REFUSALS.values(), ids=REFUSALS)
def test_a_bad_key_is_set_aside_with_one_warning(service, opened, capsys, model, fault, told):

    def refuse(number, request):
        told = copy.deepcopy(fault)
        told.body["error"]["message"] = fault.body["error"]["message"].replace("THE KEY", request["key"])
        return told

    service.plan = lambda number, request: refuse(number, request) if request["key"] == "secret-a" else None
    _, begin = opened(model, api_key_env=["KEY_A", "KEY_B"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: begin(f"task-{n}").query(ISSUE), range(8)))
    err = capsys.readouterr().err
    assert err.count(f"warning: {told}") == 1 and "1 of 2 keys left" in err
    service.plan = refuse
    with pytest.raises(InputError, match=f"no key is left: {told}.*; KEY_B") as error:
        begin("last").query(ISSUE)
    assert "\n" not in str(error.value)
    assert "secret" not in err + str(error.value)


def test_keys_turn_by_conversation(service, opened, monkeypatch):
    monkeypatch.setenv("KEY_B", "secret-b:::secret-c")
    _, begin = opened(api_key_env=["KEY_A", "KEY_B"])
    for name in ("one", "two", "three", "four"):
        model = begin(name)
        first = model.query(ISSUE)
        model.query([*ISSUE, first, {"role": "user", "content": "seen"}])
    used = [each["key"][-1] for each in service.requests]
    assert used == list("aabbccaa")


@pytest.mark.full
def test_fifty_threads_live_through_a_storm(service, opened, tmp_path):
    """The service answers five requests at once and rejects others. Fifty threads adapt to it."""
    service.seconds = 0.03
    service.plan = lambda number, request: Fault(429, "slow down") if service.under_way > 5 else None
    _, begin = opened()
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda n: begin(f"task-{n}").query(ISSUE), range(150)))
    assert len(answers) == 150
    refused = len(service.requests) - 150
    assert refused < 150, "most requests are answered"
    account = spent(tmp_path)
    assert account.spent == pytest.approx(service.charged * 1e9, abs=200) and not account.open


def test_a_redirect_is_not_followed_with_a_key(service, opened):
    service.plan = lambda number, request: Fault(307, "moved", headers={"Location": "http://127.0.0.1:9/"})
    for model in MODELS:
        _, begin = opened(model)
        with pytest.raises(InputError, match="refused: moved"):
            begin(model.partition("/")[0]).query(ISSUE)


def test_a_limit_without_a_price_is_an_error_before_the_first_request(service, opened):
    with pytest.raises(
        InputError, match="budget_dollars of the policy is set, and no price of openai/toy is known"
    ):
        opened(price=None, budget_dollars=1.0)
    assert not service.requests


def test_a_model_without_a_price_is_told_not_taken_for_free(service, opened, tmp_path, capsys):
    _, begin = opened(price=None)
    assert begin("one").query(ISSUE)["extra"]["cost_is"] == "unknown"
    assert "no price of openai/toy is known: costs are not counted" in capsys.readouterr().err
    assert spent(tmp_path).unpriced == 1


@pytest.mark.parametrize(
    "model", ["anthropic/claude-sonnet-4-5", "openai/gpt-4o-2024-08-06", "gemini/gemini-2.5-pro", "gpt-5"]
)
@pytest.mark.parametrize("prompt", [1000, 250_000])
def test_costs_are_those_of_litellms_own_reckoning(model, prompt):
    litellm = litellm_calls.quiet_litellm()
    cached = prompt // 2
    usage = litellm.Usage(
        prompt_tokens=prompt,
        completion_tokens=77,
        total_tokens=prompt + 77,
        prompt_tokens_details={"cached_tokens": cached},
        cache_read_input_tokens=cached,
    )
    theirs = sum(litellm.cost_per_token(model=model, usage_object=usage))
    ours = price_of(None, litellm_calls.listed_price(model)).cost(CallTokens(prompt, 77, cached))
    assert ours == pytest.approx(theirs * 1e9, abs=2)


def test_a_malformed_turn_is_paid_once_too(service, opened):
    service.speak = lambda turn, history: "no block" if turn == 0 else "```bash\nls\n```"
    _, begin = opened()
    for _ in range(2):
        model = begin("one")
        with pytest.raises(FormatError) as error:
            model.query(ISSUE)
        model.query([*ISSUE, *error.value.messages])
        model.close()
        assert len(service.requests) == 2


def test_an_answer_is_kept_before_its_bill_is_closed(service, opened, tmp_path, monkeypatch):
    _, begin = opened()

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(Ledger, "settle", full)
        begin("one").query(ISSUE)
    assert begin("one").query(ISSUE)["extra"]["cost"] > 0
    assert len(service.requests) == 1 and len(spent(tmp_path).open) == 1


TOOLS = {"tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]}


@pytest.mark.parametrize("model", MODELS)
def test_tools_are_offered_called_and_answered(service, opened, tmp_path, model):
    service.calls = lambda turn: {"id": f"call-{turn}", "name": "bash", "arguments": {"command": "ls"}}
    found, _ = opened(model, cache_last_messages=2)
    talk, kept = Talk(TOOLS), []
    first = found.answer(ISSUE, talk, kept.append)
    (call,) = first["tool_calls"]
    assert call["id"] == "call-0" and json.loads(call["function"]["arguments"]) == {"command": "ls"}
    turn = {"role": "assistant", "content": first["content"], "tool_calls": first["tool_calls"]}
    history = [*ISSUE, turn, {"role": "tool", "tool_call_id": "call-0", "content": "a.txt"}]
    assert found.answer(history, talk, kept.append)["tool_calls"][0]["id"] == "call-1"
    second = service.requests[1]["body"]
    assert "a.txt" in json.dumps(second["messages"]) and "call-0" in json.dumps(second["messages"])
    assert second["tools"] and spent(tmp_path).unsure_calls == 0


SIGNED = {"type": "thinking", "thinking": "I look.", "signature": "c2lnbmVk/=="}
SEALED = {"type": "redacted_thinking", "data": "c2VhbGVk/=="}
THINKERS = {
    "text": ("openai/toy", {"reasoning_content": "I look."}),
    "text under another name": ("openai/toy", {"reasoning": "I look."}),
    "details": ("openai/toy", {"reasoning": "I look.", "reasoning_details": [{"text": "I look.", "id": 1}]}),
    "a proxy's blocks": ("openai/toy", {"thinking_blocks": [SIGNED]}),
    "deepseek": ("deepseek/deepseek-reasoner", {"reasoning_content": "I look."}),
    "openrouter": ("openrouter/x/y", {"reasoning": "I look.", "reasoning_details": [{"text": "I look."}]}),
    "a service that refuses them": ("mistral/mistral-large-latest", {"reasoning_content": "I look."}),
    "anthropic": ("anthropic/claude-sonnet-4-5", {"blocks": [SIGNED, SEALED]}),
}


@pytest.mark.parametrize("model, thoughts", THINKERS.values(), ids=THINKERS)
def test_thoughts_are_kept_and_go_back_as_the_service_wants_them(service, opened, model, thoughts):
    def of_turn(turn):  # so that the order shows
        return json.loads(json.dumps(thoughts).replace("I look.", f"I look {turn}."))

    service.thoughts = of_turn
    talk, history = opened(model, cache_last_messages=2)[1]("one"), list(ISSUE)
    for turn in range(3):
        message = talk.query(history)
        assert thoughts_of(message) == f"I look {turn}."
        if "blocks" not in thoughts:
            assert message["extra"]["usage"]["reasoning_tokens"] == 2
        history += [message, {"role": "user", "content": "seen"}]
    said = [each for each in service.requests[-1]["body"]["messages"] if each["role"] == "assistant"]
    if "blocks" in thoughts:
        sent = [{"blocks": [b for b in each["content"] if b["type"] != "text"]} for each in said]
    else:
        sent = [{name: each[name] for name in SENT_BACK if name in each} for each in said]
    assert sent == [{} if model.startswith("mistral") else of_turn(turn) for turn in range(2)]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_goes_on_thinking_between_its_tool_calls(service, opened, model):
    """LiteLLM asks Anthropic for no thoughts if the last call of a conversation comes without its blocks."""
    service.calls = lambda turn: {"id": f"call-{turn}", "name": "bash", "arguments": {"command": "ls"}}
    field = "blocks" if model.startswith("anthropic") else "reasoning_details"
    service.thoughts = lambda turn: {field: [SIGNED | {"signature": f"c2ln{turn}"}]}
    sampling = {"temperature": 1, "max_tokens": 4096, "reasoning_effort": "low"}
    found, talk, history = opened(model, sampling=sampling)[0], Talk(TOOLS), list(ISSUE)
    for turn in range(3):
        answer = found.answer(history, talk, lambda reply: None)
        told = {"role": "tool", "tool_call_id": f"call-{turn}", "content": "a.txt"}
        history += [request_message({"role": "assistant", **answer}), told]
    for number, request in enumerate(service.requests):
        body = request["body"]
        if field == "blocks":
            assert body["thinking"]["type"] == "enabled" and "reasoning_effort" not in body
        else:
            assert body["reasoning_effort"] == "low"
        assert [f"c2ln{turn}" in json.dumps(body["messages"]) for turn in range(3)] == [
            turn < number for turn in range(3)
        ]


def test_paid_turns_are_not_paid_again(service, opened, tmp_path):
    _, begin = opened()
    model = begin("one")
    first = model.query(ISSUE)
    seen = model.format_observation_messages(
        first, [{"output": "at 11:59", "returncode": 0, "exception_info": ""}], {}
    )
    second = model.query([*ISSUE, first, *seen])
    model.close()
    asked = len(service.requests)
    again = begin("one")
    assert again.query(ISSUE) == first
    kept = again.format_observation_messages(
        first, [{"output": "at 12:34", "returncode": 0, "exception_info": ""}], {}
    )
    assert kept == seen
    assert again.query([*ISSUE, first, *kept]) == second
    assert len(service.requests) == asked
    assert again.serialize()["info"]["resumed"] == {"paid_turns": 2, "kept_observations": 1}
    again.query([*ISSUE, first, *kept, second, {"role": "user", "content": "new"}])
    assert len(service.requests) == asked + 1
    assert len(list(read_jsonl(tmp_path / "paid/turns/one.jsonl"))) == 5  # and what was seen before two
    again.close()


CALLED = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
TURNS = {
    "text": ({"content": "hello"}, "stop"),
    "cut": ({"content": "hel"}, "length"),
    "nothing": ({"content": None}, None),
    "tools": ({"content": None, "tool_calls": [CALLED]}, "tool_calls"),
    "tools, ended as text": ({"content": "", "tool_calls": [CALLED]}, "stop"),
    "thoughts in the text": ({"content": "<think>a\nb</think>\nhello"}, "stop"),
    "thoughts apart": ({"content": "<think>a</think>x", "reasoning_content": "b"}, "stop"),
    "open thoughts": ({"content": "<think>a"}, "length"),
    "another word": ({"content": "x"}, "done"),
    "tokens": ({"content": "x"}, "max_tokens"),
}


@pytest.mark.parametrize("message, reason", TURNS.values(), ids=TURNS)
def test_an_answer_is_read_as_litellm_reads_it(message, reason):
    """Services with their own names are called without LiteLLM (`openai_calls`)."""
    litellm = litellm_calls.quiet_litellm()
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    usage["prompt_tokens_details"] = {"cached_tokens": 5}
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "toy", "choices": [choice]}
    answer["usage"] = usage
    theirs = litellm.utils.convert_to_model_response_object(
        response_object=copy.deepcopy(answer), model_response_object=litellm.ModelResponse()
    )
    ours = openai_calls.completion(json.dumps(answer))
    replies = [hosted.reply_of(each.choices[0]) for each in (ours, theirs)]
    # LiteLLM moves thoughts out of a text into a field. Only a field of the service goes back to it.
    own = {name: message[name] for name in ("reasoning_content",) if name in message}
    assert replies[0].pop("sent_back", {}) == own
    cut, moved = replies[0].pop("thoughts", ""), replies[1].get("sent_back", {}).get("reasoning_content")
    assert not cut or cut == moved
    assert replies[0] == {name: value for name, value in replies[1].items() if name != "sent_back"}
    assert read_usage(ours) == read_usage(theirs) == CallTokens(9, 4, 5, 0)


@pytest.mark.parametrize(
    "name, plain",
    [("toy", True), ("Qwen/Qwen3-4B", True), ("my-gpt-5", False)]
    + [(name, False) for name in ("gpt-4o", "o3-mini", "ft:gpt-4o:me::1", "gpt-9", "whisper-1", "")],
)
def test_names_that_litellm_knows_are_left_to_it(name, plain):
    assert openai_calls.is_plain(f"openai/{name}") == plain
    assert not openai_calls.is_plain(f"anthropic/{name}")
    if plain:
        litellm = litellm_calls.quiet_litellm()
        with pytest.raises(Exception, match="isn't mapped|not mapped"):
            litellm.get_model_info(f"openai/{name}")
