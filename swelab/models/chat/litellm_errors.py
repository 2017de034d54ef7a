"""Classifies failed LiteLLM calls by the HTTP response that the exception wraps.

LiteLLM 1.103 classifies some faults by words in their text. It loses headers, and gives a malformed response
the status of a failed service. But the HTTP response is in the exception's chain of causes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx

from swelab.models.chat.error_bodies import message_in, refused_setting
from swelab.models.service_words import Kind, judge
from swelab.patience import retry_after
from swelab.records import shorten

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
NO_KEY = re.compile(r"missing (credentials|\w+ api key)", re.I)
SHOWN_BYTES = 1 << 16


@dataclass(eq=False)
class CallFault(Exception):
    """A call without an answer.

    kind: the reason, which says what the fault ends. charged: whether the call may have cost money. wait:
    seconds that the service asks to wait. status: HTTP status of the response, or None without a response.
    setting: the sampling setting that is refused, or "".
    """

    kind: Kind
    text: str
    charged: bool
    wait: float | None = None
    status: int | None = None
    setting: str = ""

    @property
    def words(self) -> str:
        """The service's message, followed by the HTTP status."""
        return f"{self.text} (HTTP {self.status})" if self.status else self.text


def read_fault(
    error: BaseException,
    secret: str | None,
    answered: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> CallFault:
    """Converts the exception of a call to a CallFault. The API key is removed from the text. answered: see
    `service_words.judge`. settings: the sampling settings of the request."""
    response, setting = _response(error), ""
    if response is not None:
        status, headers, body = response
        kind, wait, text = judge(status, body, answered=answered), retry_after(headers), message_in(body)
        charged = kind == Kind.UNSURE
        setting = refused_setting(body, settings) if kind == Kind.WRONG else ""
    elif early := _before(error):
        kind, wait, text, charged = early, None, _deepest(error), False
        setting = refused_setting(text, settings) if kind == Kind.WRONG else ""
    elif any(isinstance(each, NOT_SENT) for each in _chain(error)):
        kind, wait, text, charged = Kind.PASSING, None, f"no connection: {_deepest(error)}", False
    else:
        # Without an HTTP fault, the cause is an answer of status 200 that LiteLLM cannot read.
        kind, wait, text, charged = Kind.UNSURE, None, _deepest(error) or str(error), True
    # The service's text is printed to a terminal, so control characters are removed.
    text = "".join(each if each.isprintable() else " " for each in text or type(error).__name__)
    told = shorten(text.replace(secret, "(the key)") if secret else text)
    return CallFault(kind, told, charged, wait, response[0] if response else None, setting)


def _before(error: BaseException) -> Kind | None:
    """Returns the kind of fault if LiteLLM or its HTTP library raised before sending, otherwise None."""
    if any(NO_KEY.search(str(each)) for each in _chain(error)):
        return Kind.KEY
    wrong = any(type(each).__name__ == "UnsupportedParamsError" for each in _chain(error))
    return Kind.WRONG if wrong else None


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


def _deepest(error: BaseException) -> str:
    last = list(_chain(error))[-1]
    return str(last) or type(last).__name__
