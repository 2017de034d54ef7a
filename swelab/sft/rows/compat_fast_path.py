"""Writes rows of the style `xml` fast: unchanged texts are copied as JSON without decoding.

Nearly all of a row is such text. Decoding and encoding took a third of the time. The module `compat` converts
trajectories whose structure is not SWE-agent's usual one.
"""

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec

from swelab.records import Record

UNSET = msgspec.UNSET


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: str


class _Call(msgspec.Struct, gc=False):
    function: _Function


class _Message(msgspec.Struct, gc=False):
    role: str
    content: msgspec.Raw
    thought: str | msgspec.UnsetType = UNSET
    tool_calls: list[_Call] | None | msgspec.UnsetType = UNSET


class _Step(msgspec.Struct, gc=False):
    query: list[_Message]
    response: str
    messages: msgspec.Raw | msgspec.UnsetType = UNSET


class _Trajectory(msgspec.Struct, gc=False):
    trajectory: list[_Step]
    replay_config: str


class _Part(msgspec.Struct, gc=False):
    text: msgspec.Raw


_TRAJECTORY = msgspec.json.Decoder(_Trajectory)
_PARTS = msgspec.json.Decoder(list[_Part])


class Unusual(Exception):
    """Raised for a trajectory with an unusual structure."""


def usual_messages(
    last_step: bytes, system: str, notes: tuple[str, ...], spoken: Callable[[Record], str]
) -> tuple[bytes, str]:
    """Returns (a row's messages as JSON separated by commas, replay_config). Raises Unusual.

    last_step: JSON of a trajectory with only its last step. notes: values of `response` in a step without
    messages. spoken: function that returns the text of an assistant's message.
    """
    try:
        last = _TRAJECTORY.decode(last_step)
        step = last.trajectory[-1]
        if step.messages is not UNSET or step.response in notes:
            raise Unusual
        told = [_message(message, system, spoken) for message in step.query]
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusual from None
    return b", ".join(told), last.replay_config


def _message(message: _Message, system: str, spoken: Callable[[Record], str]) -> bytes:
    role = message.role
    if role == "system":
        return b'{"role": "system", "content": %b}' % _quote(system)
    if role == "assistant":
        return b'{"role": "assistant", "content": %b}' % _quote(spoken(_object(message)))
    if role not in ("user", "tool"):
        raise Unusual
    return b'{"role": "user", "content": %b}' % _text(message.content)


def _quote(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()


def _object(message: _Message) -> Record:
    fields: Record = {"content": msgspec.json.decode(message.content)}
    if message.thought is not UNSET:
        fields["thought"] = message.thought
    if message.tool_calls is not UNSET:
        calls: Any = message.tool_calls
        fields["tool_calls"] = calls and [
            {"function": {"name": call.function.name, "arguments": call.function.arguments}} for call in calls
        ]
    return fields


def _text(content: msgspec.Raw) -> bytes:
    """Returns a message's text as JSON, written as Python's json would write it.
    The content of the message is a text or a list with one part."""
    data = bytes(content)
    if data.startswith(b"["):
        (part,) = _PARTS.decode(data)
        data = bytes(part.text)
    if not data.startswith(b'"'):
        raise Unusual
    if data.isascii() and b"\\u" not in data and b"\\/" not in data:
        return data
    return _quote(json.loads(data))
