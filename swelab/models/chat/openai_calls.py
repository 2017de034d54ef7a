"""Requests chat completions from OpenAI-compatible services without LiteLLM.

Loading LiteLLM takes 3.5 CPU seconds, and each LiteLLM call several milliseconds. This module sends the
requests that LiteLLM would forward unchanged. It raises httpx's exceptions, which `litellm_errors` reads.
"""

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from swelab.models.chat import bounded_http
from swelab.models.chat.error_bodies import ErrorInside, broke_off, error_inside, show_refusal
from swelab.models.chat.thoughts import CALL_BACK, fields_to_send_back
from swelab.records import Record, shorten

PRICES = "model_prices_and_context_window_backup.json"
SPECIAL = re.compile(r"ft:|responses/|chatgpt|codex|gpt-|o\d|.*gpt-5", re.I | re.S)
"""Matches names of OpenAI's own models, whose settings LiteLLM adapts."""
THOUGHTS = re.compile(r"<(think|thinking|budget:thinking)>(.*?)</(think|thinking|budget:thinking)>", re.S)
"""Matches thoughts at the start of an answer. `completion` moves the thoughts to a field, as LiteLLM does."""
FINISHES = {name: name for name in ("length", "tool_calls", "function_call", "content_filter")} | {
    **dict.fromkeys(("max_tokens", "model_length", "model_context_window_exceeded"), "length")
}
"""Maps finish reasons of services to OpenAI's finish reasons. Any other reason becomes `stop`."""


@cache
def client() -> httpx.Client:
    """Returns the HTTP client of all hosted models. It is created at the first call, with the proxies set at
    that time."""
    found = bounded_http.bounded_client()
    hooks = found.event_hooks
    found.event_hooks = {"request": [_stop_trial], "response": [*hooks["response"], show_refusal]}
    return found


_TRIAL: ContextVar[list[bytes] | None] = ContextVar("trial", default=None)


@contextmanager
def nothing_sent() -> Iterator[list[bytes]]:
    """Ends each request of this thread with an exception before it is sent, during the block. Yields a list
    that gets the bodies of the requests."""
    bodies = list[bytes]()
    token = _TRIAL.set(bodies)
    try:
        yield bodies
    finally:
        _TRIAL.reset(token)


def _stop_trial(request: httpx.Request) -> None:
    if (bodies := _TRIAL.get()) is not None:
        bodies.append(request.read())
        raise httpx.RequestError("a trial", request=request)


@cache
def is_plain(model: str) -> bool:
    """Returns whether a model is `openai/NAME`, and LiteLLM has neither a price nor special rules for
    NAME."""
    service, _, name = model.partition("/")
    if service != "openai" or not name or SPECIAL.match(name):
        return False
    return not {model, name} & _priced_models()


@cache
def _priced_models() -> frozenset[str]:
    """Returns the names in LiteLLM's packaged price table."""
    found = find_spec("litellm")
    assert found and found.origin
    return frozenset(json.loads(Path(found.origin).with_name(PRICES).read_text(encoding="utf-8")))


def can_send(model: str, messages: Sequence[Record], secret: str | None, base: str | None) -> bool:
    """Returns whether `complete` can send a request. The request needs a key, a URL without a query, and only
    texts."""
    if not (base and secret and "?" not in base and is_plain(model)):
        return False
    return not any(isinstance(message.get("content"), list) for message in messages)


def complete(model: str, messages: Sequence[Record], secret: str, base: str, sampling: Record) -> Any:
    """Sends one request, without retries. The result has the attributes of LiteLLM's responses.

    The fields of `sampling["extra_body"]` become fields of the request, as in OpenAI's client. Raises
    httpx.HTTPError (HTTPStatusError for an error response), and ValueError for a malformed response.
    """
    further = sampling.get("extra_body") or {}
    asked = {name: value for name, value in sampling.items() if name != "extra_body"}
    body = {"model": model.partition("/")[2], "messages": messages, **asked, **further}
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    response = client().post(
        f"{base.rstrip('/')}/chat/completions",
        content=json.dumps(body).encode("ascii"),
        headers=headers,
        timeout=bounded_http.ANSWER_SECONDS,
    )
    response.raise_for_status()
    return completion(response.text)


def completion(text: str) -> SimpleNamespace:
    """Returns the choices and token counts in the text of a response. Raises ValueError, ErrorInside."""
    if error := error_inside(_decode(text)):
        raise ErrorInside(error)
    told = json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))
    try:
        choices = [_choice(each) for each in told.choices or []]
    except (AttributeError, TypeError) as error:
        raise ValueError(f"an answer in another form: {error}") from None
    return SimpleNamespace(choices=choices, usage=getattr(told, "usage", None))


def _decode(text: str) -> Any:
    """Parses the JSON of a response. Raises ValueError, with a clearer message than the parser's."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    raise ValueError(f"an answer that is no JSON: {shorten(text, 200)}")


def _choice(choice: SimpleNamespace) -> SimpleNamespace:
    if not isinstance(choice.message, SimpleNamespace):
        raise TypeError("no message")
    reason, content = getattr(choice, "finish_reason", None), getattr(choice.message, "content", None)
    if broke_off(reason):
        raise ErrorInside({"message": f"the answer broke off ({reason})"})
    if content is not None and not isinstance(content, str):
        raise TypeError(f"content is a {type(content).__name__}")
    message = choice.message
    back, cut = fields_to_send_back(message), ""
    found = None if back.get("reasoning_content") or back.get("reasoning") else THOUGHTS.match(content or "")
    if content and found:
        cut, content = found[2], content[found.end() :]
    calls = [_call(each) for each in getattr(choice.message, "tool_calls", None) or []]
    message = SimpleNamespace(content=content, tool_calls=calls, thoughts=cut, **back)
    ended = FINISHES.get(str(reason), "tool_calls" if calls else "stop")
    return SimpleNamespace(finish_reason=ended, message=message)


def _call(call: SimpleNamespace) -> SimpleNamespace:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, default=vars)
    function = SimpleNamespace(name=str(call.function.name), arguments=arguments)
    back = {CALL_BACK: getattr(call, CALL_BACK, None)}
    return SimpleNamespace(id=str(getattr(call, "id", None) or uuid.uuid4()), function=function, **back)
