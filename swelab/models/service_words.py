"""The only table of what a model service's refusal ends: this call, this task, or the whole run.

The table is used for hosted models, endpoints, programs that make their own calls (SWE-agent, mini-swe-agent)
and recorded runs. A refusal is read from its HTTP status and its words. Programs do not report the status.
They report the name of an exception of LiteLLM or OpenAI's client, which stands for a status.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from swelab.models import ContextLimit, ModelLost, ModelRefused, SettingRefused
from swelab.records import Fault, InputError, Record


class Ends(StrEnum):
    """What a refusal ends."""

    CALL = "call"  # the same request may succeed later
    TASK = "task"  # the service answers other tasks
    RUN = "run"  # a person must change the key, the account, the model's name or the settings


class Kind(StrEnum):
    """The reason why a service refused a request."""

    ends: Ends
    words: str

    def __new__(cls, name: str, ends: Ends, words: str) -> "Kind":
        kind = str.__new__(cls, name)
        kind._value_, kind.ends, kind.words = name, ends, words
        return kind

    QUOTA = "quota", Ends.RUN, "the account has no money left"
    KEY = "key", Ends.RUN, "the key or the account is not valid"
    OVERFLOWED = "overflowed", Ends.TASK, "the conversation is too long for the model"
    FILTERED = "filtered", Ends.TASK, "a content filter does not let the conversation pass"
    STUCK = "stuck", Ends.TASK, "the service does not take this conversation, and took its beginning"
    BUSY = "busy", Ends.CALL, "the service limits its load"
    PASSING = "passing", Ends.CALL, "the service failed and charged nothing"
    UNSURE = "unsure", Ends.CALL, "the service failed and may have charged"
    WRONG = "wrong", Ends.RUN, "the service does not take such requests at all"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    The row applies to a refusal with a status in `always`, or with a status in `with_words` and with the
    words. It also applies if the words occur and the status is unknown; `implied` is then the status.
    """

    kind: Kind
    always: Sequence[int] = ()
    with_words: Sequence[int] = ()
    words: str = r"(?!)"
    implied: int = 0


REFUSING = (400, 403, 404, 413, 421, 422, 424, 451)
TABLE = (
    Row(
        Kind.QUOTA,
        always=(402,),
        with_words=(400, 403, 429),
        words=r"insufficient[_ ](quota|balance|credits?|funds)|exceeded your current quota"
        r"|credit balance is too low|billing[_ ](hard[_ ])?limit|usage limits?\b.*\breached"
        r"|reached your .*usage limit|run out of credits",
        implied=402,
    ),
    Row(
        Kind.KEY,
        always=(401,),
        with_words=(400, 403),
        words=r"(account|organi[sz]ation|workspace)\b[^.]*\b(disabled|suspended|deactivated|banned|terminated)"
        r"|api[_ ]?key\b.{0,20}\b(not valid|invalid|expired)|invalid api[_ ]?key",
        implied=401,
    ),
    Row(
        Kind.OVERFLOWED,
        always=(413,),
        with_words=(400, 422),
        words=r"context[_ ](length|window(?!\w*\.json)|limit|size)|maximum context"
        r"|longer than the (maximum )?model|too many (input )?tokens|input tokens exceed"
        r"|tokens? (count )?exceeds (the )?(\w+ )?token limit|exceeds the token limit"
        r"|tokens in the prompt cannot exceed|current length is \d+ while limit"
        r"|maximum (allowed|prompt|input) length|maximum number of tokens|(prompt|input|messages) is too long"
        r"|max_new_tokens` must be|reduce the length of the (messages|prompt)|range of input length"
        r"|model token limit|messages\S* string too long|max_tokens must be at least 1, got -",
        implied=400,
    ),
    Row(
        Kind.FILTERED,
        always=(451,),
        with_words=REFUSING,
        words=r"content[_ ]?(filter|management|moderation|polic|safety|security)|data[_ ]?inspection"
        r"|inappropriate[_ ]content|(unsafe|sensitive|harmful|prohibited)( or \w+)?[_ ]content"
        r"|new_sensitive|content (exists|violates)|(usage|acceptable use) (polic|guideline)"
        r"|safety[_ ](system|check)|(violat\w+|flagged|blocked) .{0,60}\b(polic|guideline|safety|guardrail)"
        r"|high[_ ]risk|risk[_ ]control|requires moderation|input was flagged|responsible ?ai ?polic"
        r"|invalid_prompt|for safety reasons|block_?reason|敏感|违规",
        implied=400,
    ),
    Row(Kind.KEY, always=(403,), words=r"api[_ ]?key|unauthorized|authenticat|permission", implied=401),
    Row(Kind.BUSY, always=(429,), words=r"rate.?limit|request limit|too many requests", implied=429),
    Row(Kind.WRONG, words=r"invalid", implied=400),
    Row(Kind.BUSY, always=(503, 529), words=r"overloaded|unavailable|capacity", implied=503),
    # Statuses of proxies between us and the service. The service may still have charged for the call.
    Row(Kind.UNSURE, always=(408, 502, 504, 520, 522, 524)),
    Row(Kind.PASSING, always=(409, 425, *range(500, 600))),
    Row(Kind.WRONG, always=range(300, 600)),
)
"""What services say. The first row that applies counts."""
EXCEPTIONS = {
    "BadRequestError": 400,
    "ContextWindowExceededError": 413,
    "ContentPolicyViolationError": 451,
    "UnsupportedParamsError": 405,
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "Timeout": 408,
    "RateLimitError": 429,
    "UnprocessableEntityError": 422,
    "APIError": 500,
    "APIConnectionError": 500,
    "InternalServerError": 500,
    "BadGatewayError": 502,
    "ServiceUnavailableError": 503,
}
"""Maps the names of exceptions of LiteLLM and OpenAI's client to the status for which they stand."""
UNKNOWN_STATUS = 502
_WORDS = {row: re.compile(row.words, re.I | re.S) for row in TABLE}
_NAME = re.compile(rf"\b({'|'.join(EXCEPTIONS)})\b")


def judge(status: int, words: str, *, answered: bool) -> Kind:
    """Returns the kind of a refusal. answered: whether the service answered an earlier turn of this
    conversation. Then its key, the model's name and the settings are right, and only this conversation is
    refused."""
    found = next(
        row.kind
        for row in TABLE
        if status in row.always or (status in row.with_words and _WORDS[row].search(words))
    )
    return Kind.STUCK if found == Kind.WRONG and answered and status in (400, 413, 422) else found


def was_answered(history: Sequence[Record]) -> bool:
    """Returns whether the service answered an earlier turn of a conversation."""
    return any(message.get("role") == "assistant" for message in history)


def implied_status(words: str) -> int:
    """Returns the status for a refusal that has only words."""
    return next((row.implied for row in TABLE if _WORDS[row].search(words)), UNKNOWN_STATUS)


def judge_text(text: str) -> Kind:
    """Returns the kind of a refusal that a program reports as text, after the first turn of a conversation.
    A text without the name of an exception is read like a refusal with the status 400."""
    name = _NAME.search(text)
    return judge(EXCEPTIONS[name[1]] if name else 400, text, answered=True)


def final_fault(kind: Kind, words: str, address: str, setting: str = "") -> Fault:
    """Returns the exception for a refusal after which the request is not repeated. words: the service's
    words. setting: the sampling setting that they name, or ""."""
    if kind == Kind.OVERFLOWED:
        return ContextLimit(words)
    if kind == Kind.WRONG and setting:
        return SettingRefused(setting, words, address)
    if kind.ends == Ends.RUN:
        return InputError(f"the model service refused: {words}; another try does not help", address)
    if kind.ends == Ends.TASK:
        return ModelRefused(f"the model service does not answer this: {words}; another try does not help")
    return ModelLost(f"{words}; the same command tries it again")
