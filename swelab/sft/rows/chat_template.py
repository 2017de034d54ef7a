"""Formats conversations with tool calls as plain text, with the model's own chat template.

The result is plain ChatML. Its length is counted as for any other row. The model server formats the same
messages in the same way.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from swelab.records import InputError, Record, read_json
from swelab.records.training_records import RowMessage, SftRow, Tool
from swelab.sft.rows.lengths import RenderedMessage, is_trained

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n?", re.DOTALL)
_GENERATION = re.compile(r"\{%-?\s*generation\b")
_THOUGHTS = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL)
MARKS_VERSION = 2
"""Version of the rule by which a template's marks decide which tokens have a loss. Version 1 trained whole
turns. A checkpoint of another version is trained again."""


class ChatTemplate:
    """The chat template of a checkpoint folder, rendered by transformers."""

    def __init__(self, folder: str | Path):
        """Raises InputError if the folder has no template or the template cannot be parsed."""
        self.path = Path(folder) / "tokenizer_config.json"
        separate = Path(folder) / "chat_template.jinja"
        settings: Record = read_json(self.path) if self.path.is_file() or not separate.is_file() else {}
        self._texts = _by_name(separate.read_text() if separate.is_file() else settings.get("chat_template"))
        if not self._texts:
            raise InputError("no chat_template", self.path, "one that spells out tool calls")
        self._tokens = _special_tokens(settings)
        self.is_marked = any(map(_GENERATION.search, self._texts.values()))
        """Whether the template marks what the model generates."""
        for text in self._texts.values():
            self._render(text, [], [])

    def plain(self, messages: Sequence[RowMessage], tools: Sequence[Tool]) -> list[RowMessage]:
        """Returns messages with the roles system, user and assistant, with tool calls as text.

        Weights are kept. If the template marks what the model generates (`{% generation %}`), an assistant
        turn becomes a RenderedMessage, and a turn without a mark gets the weight 0. Raises InputError if the
        template fails, is not ChatML, omits the tools, or joins or drops assistant turns.
        """
        chosen = self._texts.get("tool_use" if tools else "default") or next(iter(self._texts.values()))
        ((text,), spans) = self._render(chosen, [[template_message(m) for m in messages]], bare(tools))
        places = list(_TURN.finditer(text))
        row_messages = [RowMessage.of({"role": place[1], "content": place[2]}) for place in places]
        if _TURN.sub("", text):
            raise InputError("chat_template is not ChatML", self.path, "<|im_start|>role ... <|im_end|>")
        if any(tool.function.name not in text for tool in tools):
            raise InputError("chat_template leaves the tools out", self.path, "one that spells them out")
        spoken = [message for message in messages if message.role == "assistant"]
        turns = [message for message in row_messages if message.role == "assistant"]
        if len(spoken) != len(turns):
            raise InputError("chat_template joins or drops turns of the policy", self.path)
        for message, turn in zip(spoken, turns):
            if "weight" in message:
                turn.update(weight=message.weight)
        if _GENERATION.search(chosen):
            return [
                _with_marks(turn, place, spans[0]) for turn, place in zip(row_messages, places, strict=True)
            ]
        return row_messages

    def _render(self, text: str, conversations: list[list[Record]], tools: list[Record]) -> tuple[Any, Any]:
        """Returns (texts of the conversations, spans of each text that the model generates)."""
        from transformers.utils.chat_template_utils import render_jinja_template

        render: Any = render_jinja_template  # its annotations are wrong
        asked: Record = {"tools": tools or None, "chat_template": text, **self._tokens}
        asked |= {"return_assistant_tokens_mask": True} if _GENERATION.search(text) else {}
        try:
            texts, spans = render(conversations, **asked)
            return texts, spans
        except (TemplateError, TypeError, ValueError) as error:
            raise InputError(f"chat_template: {error}", self.path, "a Jinja template") from None


def _with_marks(turn: RowMessage, place: re.Match[str], spans: Iterable[tuple[int, int]]) -> RowMessage:
    """Returns a turn with the marks in it. place: the turn in the text. spans: marks in the text."""
    if turn.role != "assistant":
        return turn
    first, last = place.span()
    inside = [(max(start, first) - first, min(end, last) - first) for start, end in sorted(spans)]
    marks = [[start, end] for start, end in inside if start < end]
    return RenderedMessage.of(turn | {"marks": marks} | ({} if marks else {"weight": 0}))


def is_marked(base: str | Path) -> bool:
    """Returns whether a folder has a chat template that marks what the model generates."""
    try:
        return ChatTemplate(base).is_marked
    except InputError:
        return False


def _by_name(setting: Any) -> dict[str, str]:
    """Returns the templates in the setting `chat_template` by name: a text, or a list of named texts."""
    if isinstance(setting, str):
        return {"default": setting}
    rows = setting if isinstance(setting, list) else []
    named = [row for row in rows if isinstance(row, dict) and isinstance(row.get("template"), str)]
    return {str(row.get("name")): row["template"] for row in named}


def _special_tokens(settings: Record) -> dict[str, str]:
    """Returns the special tokens that a template may name, such as `eos_token`."""
    texts = {
        name: token.get("content") if isinstance(token, dict) else token
        for name, token in settings.items()
        if name.endswith("_token")
    }
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def stripped_thoughts(messages: Sequence[RowMessage], plain: Sequence[RowMessage]) -> int:
    """Returns the number of trained turns whose thoughts are in `messages`, but not in the template's text
    `plain`. Some templates strip the thoughts of turns before the last message of a user."""
    said, written = ([each for each in part if each.role == "assistant"] for part in (messages, plain))
    return sum(
        is_trained(after) and any(thought.strip() not in after.content for thought in thoughts)
        for before, after in zip(said, written)
        if (thoughts := [*_THOUGHTS.findall(before.content), before.reasoning_content])
    )


def needs_template(messages: Sequence[RowMessage], tools: Sequence[Tool], is_marked: bool) -> bool:
    """Returns whether the chat template writes a row's text: if the row has tools, or thoughts beside its
    text, or if the template marks what the model generates."""
    return bool(tools or is_marked or any(message.reasoning_content for message in messages))


class PlainRows:
    """Converts the messages of rows to plain text. Uses the chat template where `needs_template` says so.
    Prints one warning if the template strips thoughts of trained turns."""

    def __init__(self, base: str | Path):
        self.base, self._is_marked = base, is_marked(base)
        self._template: ChatTemplate | None = None
        self._warned = False

    def of(self, row: SftRow) -> list[RowMessage]:
        """Returns the row's messages in the roles system, user and assistant. Raises InputError."""
        if not needs_template(row.messages, row.tools, self._is_marked):
            return row.messages
        self._template = self._template or ChatTemplate(self.base)
        found = self._template.plain(row.messages, row.tools)
        if not self._warned and (count := stripped_thoughts(row.messages, found)):
            self._warned = True
            text = f"the chat template strips the thoughts of earlier turns ({count} in {row.instance_id})"
            print(f"warning: {self.base}: {text}; they are not trained on", file=sys.stderr, flush=True)
        return found


def template_message(message: RowMessage) -> Record:
    """Returns the message in the form that chat templates read.
    Arguments of calls become objects, which templates write as JSON."""
    found: Record = bare(message)
    for call, told in zip(found.get("tool_calls", ()), message.tool_calls):
        call["function"] |= {"arguments": json.loads(told.function.arguments)}
    return found


def bare(value: Any) -> Any:
    """Converts records to plain dictionaries and lists.
    A record has a default for each absent field, so a template would take the field as defined."""
    return json.loads(json.dumps(value))
