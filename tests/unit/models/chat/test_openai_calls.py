"""Responses with status 200: errors inside, broken responses, other forms."""

import json

import pytest

from swelab.models import OVERFLOW
from swelab.models.chat import litellm_errors as faults
from swelab.models.chat.litellm_errors import error_inside, read_fault
from swelab.models.chat.openai_calls import completion

MESSAGE = {"role": "assistant", "content": "```bash\nrm -rf tests\n```"}


def fault_of(body):
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011  of two kinds, both are read alike
        completion(body if isinstance(body, str) else json.dumps(body))
    return read_fault(caught.value, "secret")


@pytest.mark.parametrize(
    "error, kind",
    [
        ({"message": "Rate limit exceeded: try again", "code": 429}, faults.BUSY),
        ({"message": "Insufficient credits", "code": 402}, faults.QUOTA),
        ({"message": "No auth credentials found", "code": 401}, faults.KEY),
        ({"message": "Rate limit reached", "code": "rate_limit_exceeded"}, faults.BUSY),
        ({"message": "You are over your quota of requests a minute: rate limit"}, faults.BUSY),
        ({"message": "You exceeded your current quota", "code": "insufficient_quota"}, faults.QUOTA),
        ({"message": "Provider overloaded", "code": 503}, faults.BUSY),
        (
            {"message": "the maximum context length is 32768 tokens", "code": 400},
            faults.OVERFLOWED,
        ),
        ("prompt is too long: 200251 tokens > 199999 maximum", faults.OVERFLOWED),
        ({"message": "upstream went away"}, faults.UNSURE),
    ],
)
def test_an_error_inside_an_answer_is_the_services_own(error, kind):
    fault = fault_of({"error": error, "user_id": "u"})
    words = error if isinstance(error, str) else error["message"]
    assert (fault.kind, fault.text) == (kind, words)


def test_another_envelope():
    told = {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}
    fault = fault_of({"id": "x", "choices": None, "base_resp": told})
    assert (fault.kind, fault.text) == (faults.OVERFLOWED, told["status_msg"])


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        (
            {
                "object": "error",
                "message": "longer than the model's context length",
                "code": 400,
            },
            faults.OVERFLOWED,
            "longer than the model's context length",
        ),
        ({"detail": "Not authenticated"}, faults.KEY, "Not authenticated"),
        ({"detail": [{"msg": "field required"}]}, faults.UNSURE, '[{"msg": "field required"}]'),
        (
            {"error_code": 17, "error_msg": "Open api daily request limit reached"},
            faults.BUSY,
            "Open api daily request limit reached",
        ),
        (
            {"success": False, "errors": [{"code": 7009, "message": "Rate limit"}], "result": None},
            faults.BUSY,
            "Rate limit",
        ),
        ({"success": False, "errors": ["no such model"], "result": {}}, faults.UNSURE, "no such model"),
        ({"code": 1302, "msg": "too many requests", "success": False}, faults.BUSY, "too many requests"),
        ({"message": "Insufficient credits", "statusCode": 402}, faults.QUOTA, "Insufficient credits"),
        ({"choices": [], "error": {"message": "slow", "code": 429}}, faults.BUSY, "slow"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "No"}}, faults.BUSY, "No"),
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
    assert fault.kind == faults.UNSURE
    assert fault.text == (error["message"] if error else f"the answer broke off ({reason})")


@pytest.mark.parametrize("body", ["<html>busy</html>", ""])
def test_what_is_no_json_is_shown(body):
    fault = fault_of(body)
    assert fault.kind == faults.UNSURE and fault.text == f"an answer that is no JSON: {body}".rstrip()


@pytest.mark.parametrize(
    "words",
    [
        "input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096.",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Input length (70001 tokens) exceeds the maximum allowed length (53682 tokens).",
        "Input is too long for requested model.",
        "Please reduce the length of the messages or completion.",
        "InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
        "Invalid request: Your request exceeded model token limit: 8192 (requested: 9001)",
        "Input tokens exceed the configured limit of 272000 tokens.",
        "The total length of all messages is too long.",
        "too many input tokens: 250000 > 200000",
        "The decoder prompt (length 21535) is longer than the maximum model length of 16384.",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 8192",
        "Prompt size exceeds the token limit. Please reduce prompt size.",
        "Initial token count exceeds token limit",
        "invalid params, context window exceeds limit (2013)",
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576",
        "max_tokens must be at least 1, got -25.",
    ],
)
def test_services_words_for_a_conversation_that_is_too_long(words):
    assert OVERFLOW.search(words)


@pytest.mark.parametrize(
    "words", ["max_tokens is too large: 100000. This model supports at most 16384", "unknown field: prompt"]
)
def test_other_words_are_no_such(words):
    assert not OVERFLOW.search(words)
