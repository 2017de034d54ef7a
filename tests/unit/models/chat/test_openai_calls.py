"""Responses with status 200: errors inside, broken responses, other forms."""

import json

import pytest

from swelab.models.billing.paid_turns import request_message
from swelab.models.chat.error_bodies import error_inside
from swelab.models.chat.hosted import reply_of
from swelab.models.chat.litellm_errors import read_fault
from swelab.models.chat.openai_calls import completion
from swelab.models.chat.thoughts import keep_fields
from swelab.models.service_words import Kind

MESSAGE = {"role": "assistant", "content": "```bash\nrm -rf tests\n```"}


def fault_of(body):
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011  of two kinds, both are read alike
        completion(body if isinstance(body, str) else json.dumps(body))
    return read_fault(caught.value, "secret")


@pytest.mark.parametrize(
    "error, kind",
    [
        ({"message": "Rate limit exceeded: try again", "code": 429}, Kind.BUSY),
        ({"message": "Insufficient credits", "code": 402}, Kind.QUOTA),
        ({"message": "No auth credentials found", "code": 401}, Kind.KEY),
        ({"message": "Rate limit reached", "code": "rate_limit_exceeded"}, Kind.BUSY),
        ({"message": "You are over your quota of requests a minute: rate limit"}, Kind.BUSY),
        ({"message": "You exceeded your current quota", "code": "insufficient_quota"}, Kind.QUOTA),
        ({"message": "Provider overloaded", "code": 503}, Kind.BUSY),
        ({"message": "the maximum context length is 32768 tokens", "code": 400}, Kind.OVERFLOWED),
        ("prompt is too long: 200251 tokens > 199999 maximum", Kind.OVERFLOWED),
        ({"message": "upstream went away"}, Kind.UNSURE),
    ],
)
def test_an_error_inside_an_answer_is_the_services_own(error, kind):
    fault = fault_of({"error": error, "user_id": "u"})
    words = error if isinstance(error, str) else error["message"]
    assert (fault.kind, fault.text) == (kind, words)


def test_another_envelope():
    told = {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}
    fault = fault_of({"id": "x", "choices": None, "base_resp": told})
    assert (fault.kind, fault.text) == (Kind.OVERFLOWED, told["status_msg"])


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        (
            {"object": "error", "message": "longer than the model's context length", "code": 400},
            Kind.OVERFLOWED,
            "longer than the model's context length",
        ),
        ({"detail": "Not authenticated"}, Kind.KEY, "Not authenticated"),
        ({"detail": [{"msg": "field required"}]}, Kind.UNSURE, '[{"msg": "field required"}]'),
        (
            {"error_code": 17, "error_msg": "Open api daily request limit reached"},
            Kind.BUSY,
            "Open api daily request limit reached",
        ),
        (
            {"success": False, "errors": [{"code": 7009, "message": "Rate limit"}], "result": None},
            Kind.BUSY,
            "Rate limit",
        ),
        ({"success": False, "errors": ["no such model"], "result": {}}, Kind.UNSURE, "no such model"),
        ({"code": 1302, "msg": "too many requests", "success": False}, Kind.BUSY, "too many requests"),
        ({"message": "Insufficient credits", "statusCode": 402}, Kind.QUOTA, "Insufficient credits"),
        ({"choices": [], "error": {"message": "slow", "code": 429}}, Kind.BUSY, "slow"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "No"}}, Kind.BUSY, "No"),
    ],
)
def test_errors_in_forms_of_other_services(told, kind, words):
    fault = fault_of(told)
    assert (fault.kind, fault.text) == (kind, words)


@pytest.mark.parametrize(
    "told",
    [
        {"message": {"role": "assistant", "content": "a"}, "code": 1},  # Ollama, Cohere
        {"response": "a", "done": True, "message": "ok", "code": 200},
        {"success": True, "errors": [], "result": {"response": "a"}},
        {"object": "list", "data": [{"id": "m"}], "message": "ok", "code": 1},
        {"id": "x", "status": "completed"},
    ],
)
def test_an_answer_of_another_form_is_no_error(told):
    assert error_inside(told) is None


@pytest.mark.parametrize("reason", ["model_length", "model_context_window_exceeded", "max_tokens"])
def test_an_answer_that_its_room_cut_off_is_one_of_its_full_length(reason):
    answer = completion(json.dumps({"choices": [{"index": 0, "finish_reason": reason, "message": MESSAGE}]}))
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    "reason",
    ["error", "abort", "cancelled", "network_error", "TIMEOUT", "insufficient_system_resource", "shutdown"]
    + ["client_disconnect", "preempted"],
)
@pytest.mark.parametrize("error", [None, {"message": "the provider gave up", "code": 502}])
def test_half_an_answer_is_none(reason, error):
    choice = {"index": 0, "finish_reason": reason, "message": MESSAGE} | ({"error": error} if error else {})
    fault = fault_of({"choices": [choice]})
    assert fault.kind == Kind.UNSURE
    assert fault.text == (error["message"] if error else f"the answer broke off ({reason})")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            {"code": 402, "message": "Insufficient credits", "metadata": {"provider_name": "x"}},
            Kind.QUOTA,
            "Insufficient credits",
        ),
        ({"code": 401, "message": "No auth"}, Kind.KEY, "No auth"),
        ("the provider gave up", Kind.UNSURE, "the provider gave up"),
    ],
)
@pytest.mark.parametrize("reason", ["error", "stop", None])
def test_an_error_in_a_choice_is_the_services_own(error, kind, words, reason):
    fault = fault_of({"choices": [{"finish_reason": reason, "error": error, "message": MESSAGE}]})
    assert (fault.kind, fault.text) == (kind, words)


def test_what_a_service_wants_back_is_read():
    signature = {"google": {"thought_signature": "c2ln"}}
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call | {"extra_content": signature}]}
    message |= {"reasoning_content": "I look.", "reasoning_details": [{"text": "I look."}]}
    found = reply_of(completion(json.dumps({"choices": [{"message": message}]})).choices[0])
    names = ("reasoning_content", "reasoning_details")
    assert found["sent_back"] == {name: message[name] for name in names}
    assert found["tool_calls"] == message["tool_calls"]
    sent = request_message({"role": "assistant", **found})
    assert sent["reasoning_content"] == "I look." and sent["tool_calls"] == message["tool_calls"]
    assert keep_fields(sent, ()) == {"role": "assistant", "content": "", "tool_calls": [call]}


@pytest.mark.parametrize("body", ["<html>busy</html>", ""])
def test_what_is_no_json_is_shown(body):
    fault = fault_of(body)
    assert fault.kind == Kind.UNSURE and fault.text == f"an answer that is no JSON: {body}".rstrip()
