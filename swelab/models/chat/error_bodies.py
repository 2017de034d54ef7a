"""Errors in the bodies of responses, also of responses with status 200, and answers that broke off."""

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx

from swelab.models.service_words import implied_status
from swelab.records import Record
from swelab.sampling_settings import chat_fields, setting_in

ANSWERS = ("output", "outputs", "response", "result", "results", "data", "text", "generations", "embeddings")
"""Fields of a response that contain the answer in formats other than OpenAI's."""
WORDS = ("message", "msg", "detail", "error_msg", "error_message", "errorMessage")
CODES = ("code", "statusCode", "status_code", "error_code", "errorCode")
"""WORDS, CODES: fields for an error's text and code, if they are top-level fields of the response."""
_GIVEN_UP = re.compile(
    r"error|abort|cancel|fail|time_?out|interrupt|insufficient|overload|unavailable|disconnect|expire|preempt"
    r"|shut_?down|kill",
    re.I,
)


class ErrorInside(Exception):
    """An error in the body of a response with status 200. `litellm_errors` treats it as an error response."""

    def __init__(self, error: Record):
        super().__init__(json.dumps({"error": error}))
        self.headers = {"content-type": "application/json"}
        self.status_code = _status(error)


def _status(error: Record) -> int:
    """Returns the HTTP status that fits an error: its code, the status that its message implies, or 502."""
    code = str(error.get("code") or error.get("status") or "")
    if code.isdigit() and 400 <= int(code) < 600:
        return int(code)
    return implied_status(json.dumps(error, ensure_ascii=False))


def show_refusal(response: httpx.Response) -> None:
    """Corrects the status of a response with status 200 that contains only an error. Otherwise client
    libraries would lose the service's message."""
    if response.status_code == 200 and "json" in response.headers.get("content-type", ""):
        response.read()
        try:
            told = response.json()
        except ValueError:
            return
        if error := error_inside(told):
            response.status_code = _status(error)


def broke_off(reason: Any) -> bool:
    """Returns whether an answer's finish reason means that the service gave up before the end. Services use
    different words for this (`error`, `network_error`, `aborted`)."""
    return bool(_GIVEN_UP.search(str(reason)))


def message_in(body: str) -> str:
    """Returns the message in an error's body, or the whole body if it has an unusual form."""
    try:
        told = json.loads(body)
    except ValueError:
        return body
    found = error_inside(told) or told
    message = found.get("message") if isinstance(found, dict) else found
    return message if isinstance(message, str) else body


def refused_setting(body: str, settings: Mapping[str, Any]) -> str:
    """Returns the setting among `settings` that an error's body names, or ""."""
    try:
        error = error_inside(json.loads(body)) or {}
    except ValueError:
        error = {}
    name, names = str(error.get("param")), {**settings, **chat_fields(settings)}
    return name if name in names else setting_in(body, names)


def error_inside(body: Any) -> Record | None:
    """Returns the error in the body of a response with status 200, or None if there is none. A service may
    put the error into a choice, next to half an answer."""
    if not isinstance(body, dict):
        return None
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and (error := first.get("error")):
        return error if isinstance(error, dict) else {"message": str(error)}
    if any(body.get(name) for name in ("choices", "content", "candidates")):
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
