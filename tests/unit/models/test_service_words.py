"""What the words of model services mean: the end of a call, of a task, or of the whole run."""

import pytest

from swelab.models import ContextLimit, ModelLost
from swelab.models.service_words import Ends, Kind, final_fault, implied_status, judge, judge_text
from swelab.records import InputError

FILTERS = [
    (400, "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."),
    (400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy."),
    (400, "InternalError.Algo.DataInspectionFailed: Input data may contain inappropriate content."),
    (400, "The request was rejected because it was considered high risk"),
    (400, "The system detected that the input or output may hold unsafe or sensitive content."),
    (400, "Content Exists Risk"),
    (403, "You have no permission. Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_X"),
    (403, "Your chosen model requires moderation and your input was flagged"),
    (400, "Output blocked by content filtering policy"),
    (451, "no"),
]


@pytest.mark.parametrize(("status", "words"), FILTERS)
def test_a_content_filter_ends_the_task_alone(status, words):
    kind = judge(status, words, answered=False)
    assert (kind, kind.ends) == (Kind.FILTERED, Ends.TASK)
    fault = final_fault(kind, words, "here")
    assert isinstance(fault, ModelLost) and words in str(fault)
    if status != 451:
        assert judge(implied_status(words), words, answered=False) == Kind.FILTERED


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "Incorrect API key. It violates our usage policy."),
        (403, "your organization is disabled, because it violates our usage policies"),
        (400, "This organization has been disabled."),
        (400, "API key not valid. Please pass a valid API key."),
        (403, "not allowed"),
    ],
)
def test_a_refused_key_ends_the_run(status, words):
    kind = judge(status, words, answered=True)
    assert (kind, kind.ends) == (Kind.KEY, Ends.RUN)
    assert isinstance(final_fault(kind, words, "here"), InputError)


def test_what_is_refused_after_an_answer_is_the_conversations_own():
    for status in (400, 413, 422):
        assert judge(status, "text content blocks must be non-empty", answered=True).ends == Ends.TASK
    assert judge(400, "text content blocks must be non-empty", answered=False) == Kind.WRONG
    for status in (401, 403, 404):
        assert judge(status, "no", answered=True).ends == Ends.RUN


def test_every_status_has_a_kind_and_every_kind_an_exception():
    for status in range(300, 600):
        assert judge(status, "", answered=False) in Kind
    faults = {kind: type(final_fault(kind, "no", "here")) for kind in Kind}
    assert {kind for kind in Kind if faults[kind] is InputError} == {Kind.QUOTA, Kind.KEY, Kind.WRONG}
    assert faults[Kind.OVERFLOWED] is ContextLimit


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("litellm.BadRequestError: it exceeds the maximum allowed length", Kind.OVERFLOWED),
        ("litellm.ContextWindowExceededError: no", Kind.OVERFLOWED),
        ("litellm.ContentPolicyViolationError: no", Kind.FILTERED),
        ("PermissionDeniedError: Content violates usage guidelines.", Kind.FILTERED),
        ("litellm.AuthenticationError: wrong", Kind.KEY),
        ("litellm.NotFoundError: no such model", Kind.WRONG),
        ("litellm.UnsupportedParamsError: top_k", Kind.WRONG),
        ("litellm.RateLimitError: You exceeded your current quota", Kind.QUOTA),
        ("litellm.RateLimitError: slow down", Kind.BUSY),
        ("litellm.BadRequestError: messages.3: text is empty", Kind.STUCK),
        ("bash: Permission denied", Kind.STUCK),
    ],
)  # fmt: skip
def test_the_words_of_a_program(text, kind):
    assert judge_text(text) == kind


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
    assert judge(400, words, answered=False) == Kind.OVERFLOWED


@pytest.mark.parametrize(
    "words", ["max_tokens is too large: 100000. This model supports at most 16384", "unknown field: prompt"]
)
def test_other_words_are_no_such(words):
    assert judge(400, words, answered=False) == Kind.WRONG
