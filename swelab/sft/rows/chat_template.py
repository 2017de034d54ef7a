"""Formats conversations with tool calls as plain text, with the model's own chat template.

The result is plain ChatML. Its length is counted as for any other row. The model server formats the same
messages in the same way.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from swelab.records import Fault, InputError, Record, read_json
from swelab.records.training_records import RowMessage, SftRow, Tool

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n?", re.DOTALL)


class ChatTemplate:
    """The chat template of a checkpoint folder."""

    def __init__(self, folder: str | Path):
        """Raises InputError if the folder has no template or the template cannot be parsed."""
        self.path = Path(folder) / "tokenizer_config.json"
        separate = Path(folder) / "chat_template.jinja"
        text = separate.read_text() if separate.is_file() else read_json(self.path).get("chat_template")
        if not isinstance(text, str):
            raise InputError("no chat_template", self.path, "one that spells out tool calls")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _json
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(text)
        except TemplateError as error:
            raise InputError(f"chat_template: {error}", self.path, "a Jinja template") from None

    def plain(self, messages: Sequence[RowMessage], tools: Sequence[Tool]) -> list[RowMessage]:
        """Returns messages with the roles system, user and assistant, with tool calls as text.

        Weights are kept. Raises InputError if the template fails, is not ChatML, omits the tools, or joins or
        drops assistant turns.
        """
        try:
            text = self._template.render(messages=[template_message(m) for m in messages], tools=bare(tools))
        except (TemplateError, Fault) as error:
            raise InputError(f"chat_template: {error}", self.path) from None
        row_messages = [RowMessage(role=role, content=content) for role, content in _TURN.findall(text)]
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
        return row_messages


class PlainRows:
    """Converts the messages of rows to plain text. Loads the chat template at the first row with tools."""

    def __init__(self, base: str | Path):
        self.base = base
        self._template: ChatTemplate | None = None

    def of(self, row: SftRow) -> list[RowMessage]:
        """Returns the row's messages in the roles system, user and assistant. Raises InputError."""
        if not row.tools:
            return row.messages
        self._template = self._template or ChatTemplate(self.base)
        return self._template.plain(row.messages, row.tools)


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


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise Fault(message)
