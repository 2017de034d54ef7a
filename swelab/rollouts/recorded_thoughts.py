"""Reads the model's thoughts in a recorded message."""

from collections.abc import Mapping
from typing import Any

from swelab.models.chat.turn_text import after_thoughts


def thoughts_of(message: Mapping[str, Any]) -> str:
    """Returns the thoughts that a trajectory's message has beside its text, or ''.

    Reads messages of swelab and of mini-swe-agent. Encrypted blocks have no text.
    """
    extra = message.get("extra") or {}
    for found in (message, {"reasoning_content": extra.get("thoughts")}, extra.get("sent_back") or {}):
        for name in ("reasoning_content", "reasoning"):
            if isinstance(found.get(name), str) and found[name]:
                return str(found[name])
        for name, part in (("thinking_blocks", "thinking"), ("reasoning_details", "text")):
            blocks = found.get(name)
            parts = [each for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
            if texts := [str(each[part]) for each in parts if each.get(part)]:
                return "\n\n".join(texts)
    return ""


def split_thoughts(message: Mapping[str, Any], text: str) -> tuple[str, str]:
    """Returns (thoughts, the rest of `text`). text: the message's text, which may begin with its thoughts in
    `<think>...</think>`.

    >>> split_thoughts({}, "<think>a</think> run"), split_thoughts({"reasoning_content": "a"}, "run")
    (('a', ' run'), ('a', 'run'))
    """
    if beside := thoughts_of(message):
        return beside.strip(), text
    said = after_thoughts(text)
    inside = text[: len(text) - len(said)].strip()
    return inside.removeprefix("<think>").removesuffix("</think>").strip(), said
