"""Handles the text of a turn: removes the model's thoughts, and shortens long text."""

import json

from swelab.records import Record

EMPTY = "(no text)"
"""The text of an answer without text, in later requests of its conversation."""


def after_thoughts(content: str) -> str:
    """Returns a turn without the thoughts before it. Commands in thoughts do not count.

    >>> [after_thoughts(text) for text in ("run", "<think>a</think> run", "a</think> run", "<think>cut")]
    ['run', ' run', ' run', '']
    """
    thoughts, ended, said = content.rpartition("</think>")
    return said if ended or not said.lstrip().startswith("<think>") else ""


def ended_in_thoughts(content: str, finish_reason: object) -> bool:
    """Returns whether a turn used up its tokens before it said anything but thoughts.

    >>> [ended_in_thoughts(text, "length") for text in ("<think>cut", "", "said")]
    [True, True, False]
    """
    return finish_reason == "length" and not after_thoughts(content).strip()


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
