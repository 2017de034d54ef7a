"""Classifies failed LiteLLM calls by the HTTP response that the exception wraps.

LiteLLM 1.103 classifies some faults by words in their text. It loses headers, and gives a malformed response
the status of a failed service. But the HTTP response is in the exception's chain of causes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from swelab.models import OVERFLOW
from swelab.patience import retry_after
from swelab.records import Record, shorten

KEY, QUOTA, BUSY, OVERFLOWED, FILTERED, WRONG = "key", "quota", "busy", "overflowed", "filtered", "wrong"
PASSING, UNSURE = "passing", "unsure"
NO_QUOTA = re.compile(
    r"insufficient[_ ](quota|balance|credits?|funds)|exceeded your current quota|credit balance is too low"
    r"|billing[_ ](hard[_ ])?limit|usage limits?\b.*\breached|reached your .*usage limit|run out of credits",
    re.I | re.S,
)
FILTER = re.compile(r"content[_ ](filter|management|polic)|safety system|usage polic", re.I)
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
GATEWAYS = (408, 502, 504, 520, 522, 524)
"""HTTP statuses of proxies between us and the service. The service may still have charged for the call."""
NO_KEY = re.compile(r"missing (credentials|\w+ api key)", re.I)
SHOWN_BYTES = 1 << 16
ANSWERS = ("output", "outputs", "response", "result", "results", "data", "text", "generations", "embeddings")
"""Fields of a response that contain the answer in formats other than OpenAI's."""
WORDS = ("message", "msg", "detail", "error_msg", "error_message", "errorMessage")
CODES = ("code", "statusCode", "status_code", "error_code", "errorCode")
"""WORDS, CODES: fields for an error's text and code, if they are top-level fields of the response."""


@dataclass(eq=False)
class CallFault(Exception):
    """A call without an answer.

    kind: one of the constants for kinds of fault, such as QUOTA. charged: whether the call may have cost
    money. wait: seconds that the service asks to wait. status: HTTP status of the response, or None without a
    response.
    """

    kind: str
    text: str
    charged: bool
    wait: float | None = None
    status: int | None = None

    @property
    def words(self) -> str:
        """The service's message, followed by the HTTP status."""
        return f"{self.text} (HTTP {self.status})" if self.status else self.text


def read_fault(error: BaseException, secret: str | None) -> CallFault:
    """Converts the exception of a call to a CallFault. The API key is removed from the text."""
    response = _response(error)
    if response is not None:
        kind, wait, text = _judge(response[0], response[2]), retry_after(response[1]), _message(response[2])
        charged = kind == UNSURE
    elif kind := _before(error):
        wait, text, charged = None, _deepest(error), False
    elif any(isinstance(each, NOT_SENT) for each in _chain(error)):
        kind, wait, text, charged = PASSING, None, f"no connection: {_deepest(error)}", False
    else:
        # Without an HTTP fault, the cause is an answer of status 200 that LiteLLM cannot read.
        kind, wait, text, charged = UNSURE, None, _deepest(error) or str(error), True
    # The service's text is printed to a terminal, so control characters are removed.
    text = "".join(each if each.isprintable() else " " for each in text or type(error).__name__)
    told = shorten(text.replace(secret, "(the key)") if secret else text)
    return CallFault(kind, told, charged, wait, response[0] if response else None)


def _before(error: BaseException) -> str:
    """Returns the kind of fault if LiteLLM or its HTTP library raised before sending, otherwise ''."""
    if any(NO_KEY.search(str(each)) for each in _chain(error)):
        return KEY
    return WRONG if any(type(each).__name__ == "UnsupportedParamsError" for each in _chain(error)) else ""


def _judge(status: int, body: str) -> str:
    """Returns the kind of fault that a response's status and body indicate."""
    if status == 402 or (status in (400, 403, 429) and NO_QUOTA.search(body)):
        return QUOTA
    if status in (401, 403):
        return KEY
    if status in (429, 503, 529):
        return BUSY
    if status in GATEWAYS:
        return UNSURE
    if status >= 500 or status in (409, 425):
        return PASSING
    if status in (400, 413, 422):
        if status == 413 or OVERFLOW.search(body):
            return OVERFLOWED
        return FILTERED if FILTER.search(body) else WRONG
    return WRONG


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _response(error: BaseException) -> tuple[int, Mapping[str, str], str] | None:
    """Returns status, headers and body of the error response behind an exception, or None without such a
    response."""
    for each in _chain(error):
        if isinstance(each, httpx.HTTPStatusError):
            response = each.response
            return response.status_code, response.headers, _body(response)
    for each in _chain(error):
        headers, status = getattr(each, "headers", None), getattr(each, "status_code", None)
        if (
            isinstance(headers, Mapping | httpx.Headers)
            and headers
            and isinstance(status, int)
            and status >= 400
        ):
            return status, {str(name).lower(): str(value) for name, value in headers.items()}, str(each)
    return None


def _body(response: httpx.Response) -> str:
    try:
        return response.content[:SHOWN_BYTES].decode("utf-8", "replace")
    except httpx.HTTPError:
        return ""


def _message(body: str) -> str:
    """Returns the message in an error's body, or the whole body if it has an unusual form."""
    try:
        told = json.loads(body)
    except ValueError:
        return body
    found = error_inside(told) or told
    message = found.get("message") if isinstance(found, dict) else found
    return message if isinstance(message, str) else body


def error_inside(body: Any) -> Record | None:
    """Returns the error in the body of a response with status 200, or None if there is none."""
    if not isinstance(body, dict) or any(body.get(name) for name in ("choices", "content", "candidates")):
        return None
    other = body.get("base_resp")
    error = body.get("error") or (other.get("status_msg") if isinstance(other, dict) else None)
    error = error or _error_beside(body)
    return error if isinstance(error, dict) else {"message": str(error)} if error else None


def _error_beside(body: Record) -> Record | None:
    """Returns an error whose parts are top-level fields of the response.

    Examples are `{"object": "error", "message"}`, `{"detail"}`, `{"success": false, "errors"}`,
    `{"error_code", "error_msg"}` and `{"code", "msg"}`.
    """
    if any(body.get(name) for name in ANSWERS) or isinstance(body.get("message"), dict):
        return None
    errors = body.get("errors")
    if isinstance(errors, list) and errors:
        return errors[0] if isinstance(errors[0], dict) else {"message": str(errors[0])}
    words = next((body[name] for name in WORDS if body.get(name)), None)
    code = next((body[name] for name in CODES if body.get(name)), None)
    failed = body.get("object") == "error" or body.get("success") is False or "detail" in body
    if not words or not (code or failed):
        return None
    return {"message": words if isinstance(words, str) else json.dumps(words), "code": code}


def _deepest(error: BaseException) -> str:
    last = list(_chain(error))[-1]
    return str(last) or type(last).__name__
