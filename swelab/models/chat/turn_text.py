"""Handles the text of a turn: removes the model's thoughts, and shortens long text."""

import json
from typing import Any

from swelab.records import Record

SENT_BACK = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of an answer, besides its text and calls, that some services want back in later requests."""
CALL_BACK = "extra_content"
"""Such a field of a tool call. It may have a signature of the model's thoughts."""

EMPTY = "(no text)"
"""The text of an answer without text, in later requests of its conversation."""


def after_thoughts(content: str) -> str:
    """Returns a turn without the thoughts before it. Commands in thoughts do not count.

    >>> [after_thoughts(text) for text in ("run", "<think>a</think> run", "a</think> run", "<think>cut")]
    ['run', ' run', ' run', '']
    """
    thoughts, ended, said = content.rpartition("</think>")
    return said if ended or not said.lstrip().startswith("<think>") else ""


def truncate(text: str, limit: int) -> str:
    """Returns `text`. If it is longer than `limit` characters, its middle is replaced by the number of
    removed characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def argument_text(value: object) -> str:
    """Formats an argument of a tool call for XML: text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def with_texts(history: list[Record]) -> list[Record]:
    """Returns a conversation in which an empty answer has the text EMPTY. Many services refuse a request with
    an empty answer, although they gave it."""
    return [{**each, "content": EMPTY} if _is_empty(each) else each for each in history]


def _is_empty(message: Record) -> bool:
    content = message.get("content")
    blank = not content or (isinstance(content, str) and not content.strip())
    return message.get("role") == "assistant" and blank and not message.get("tool_calls")


def fields_to_send_back(message: Any) -> Record:
    """Returns the fields SENT_BACK of a service's answer as plain JSON."""
    found = {name: getattr(message, name, None) for name in SENT_BACK}
    return {name: json.loads(json.dumps(value, default=vars)) for name, value in found.items() if value}


def without_fields_sent_back(message: Record) -> Record:
    """Returns a message of a request without SENT_BACK and CALL_BACK, for a service that did not send them in
    this form."""
    found = {name: value for name, value in message.items() if name not in SENT_BACK}
    if calls := found.get("tool_calls"):
        found["tool_calls"] = [{k: v for k, v in call.items() if k != CALL_BACK} for call in calls]
    return found
