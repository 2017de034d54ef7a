"""The format of a model's turn: the tools, the parser of its actions, and the messages with their outputs.

The agent chooses the format (`swelab.agents.agent`) for any model.
"""

import re
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from jinja2 import StrictUndefined, Template
from minisweagent.exceptions import FormatError
from minisweagent.models.utils.actions_text import parse_regex_actions

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.tool_calls import OFFERED, facts_of, observations, parse_calls, written_calls
from swelab.models.chat.turn_text import after_thoughts, ended_in_thoughts, truncate
from swelab.records import Record, shorten


class Form(Protocol):
    """One format of turns."""

    calls: bool
    """Whether actions are tool calls. Services then require a message of role `tool` for each call."""
    in_text: bool
    """Whether calls are parsed from the text if the service found none. Then only the last call counts."""
    offered: Record
    """The tools, as fields of a request besides messages and sampling."""

    def read(self, content: str, turn: int) -> tuple[str, list[Record]]:
        """Returns (a turn's text without its calls, the calls). turn: number that the ids of the calls
        contain."""
        ...

    def parse(self, content: str, calls: list[Record], finish_reason: str) -> list[Record]:
        """Returns the actions of a turn, parsed from its text or its tool calls. Raises FormatError if the
        turn has no action."""
        ...

    def show(self, message: Record, outputs: list[Record], variables: Record, timed: bool) -> list[Record]:
        """Returns the messages with the outputs of the actions. timed: whether to include durations in
        seconds."""
        ...


class RefusedTurns:
    """Counts consecutive turns without a command, over all rollouts of a process. Thread-safe. After `MOST`
    such turns in a row, calls `warn` once with a one-line message."""

    MOST = 5

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn, self._lock, self._count = warn, threading.Lock(), 0

    def reset(self) -> None:
        """Sets the count to 0, because a turn had a command. A count that was reported stays."""
        with self._lock:
            self._count = self._count if self._count >= self.MOST else 0

    def add_refusal(self, content: str, action_regex: str, further: str) -> None:
        """Records that a turn had no command. further: a hint that is appended to the warning."""
        with self._lock:
            self._count += 1
            due = self._count == self.MOST
        if due:
            wanted = FENCE.search(action_regex)
            block = f"one block that begins with ```{wanted[1]}" if wanted else f"one match of {action_regex}"
            found = ", ".join(f"```{word}" for word in FENCE.findall(content)[::2]) or "no block"
            self._warn(
                f"warning: {self.MOST} answers in a row held no command that the scaffold takes: it expects "
                f"{block}, and the last answer has {shorten(found, 80)}; "
                f"a model that does not follow this form needs another scaffold{further}"
            )


FENCE = re.compile(r"^[ \t]*```([\w-]*)", re.MULTILINE)
BASH = re.compile(r"^```bash[ \t]*\n(.*?)\n```[ \t]*$", re.MULTILINE | re.DOTALL)
REFUSED = RefusedTurns(lambda text: print(text, file=sys.stderr, flush=True))


def only_block(text: str) -> str | None:
    """Returns the command of a text whose only fenced block is bash, or None for any other text.

    >>> only_block("I look.\\n```bash\\nls\\n```"), only_block("```bash\\nls\\n```\\n```python\\n1\\n```")
    ('ls', None)
    """
    found = BASH.search(text)
    return found[1].strip() if found and len(FENCE.findall(text)) == 2 else None


class RegexForm:
    """One command in the text, which the scaffold's `action_regex` matches."""

    calls = in_text = False
    offered: Record = {}

    def __init__(self, scaffold: MiniLoop, refused: RefusedTurns = REFUSED) -> None:
        self._scaffold, self._refused = scaffold, refused

    def read(self, content: str, turn: int) -> tuple[str, list[Record]]:
        """Returns the text unchanged: it contains no calls."""
        return content, []

    def parse(self, content: str, calls: list[Record], finish_reason: str) -> list[Record]:
        """See `Form.parse`. Also raises FormatError if there are several blocks."""
        answer = after_thoughts(content)
        try:
            actions: list[Record] = parse_regex_actions(
                answer,
                action_regex=self._scaffold.action_regex,
                format_error_template=self._scaffold.format_error_template,
                template_kwargs={"finish_reason": finish_reason},
            )
        except FormatError as error:
            other = self._scaffold.other_fence and not error.messages[0]["extra"]["n_actions"]
            if other and (command := only_block(answer)) is not None:
                self._refused.reset()
                return [{"command": command}]
            further = ", or `other_fence: bash` in it" if only_block(answer) else ""
            if not ended_in_thoughts(content, finish_reason):
                self._refused.add_refusal(answer, self._scaffold.action_regex, further)
            raise
        self._refused.reset()
        return actions

    def show(self, message: Record, outputs: list[Record], variables: Record, timed: bool) -> list[Record]:
        """Returns one message per output. An output longer than the scaffold's limit is shortened in its
        middle."""
        template = Template(self._scaffold.observation_template, undefined=StrictUndefined)
        most = self._scaffold.max_observation_chars
        shown = [{**output, "output": truncate(output["output"], most)} for output in outputs]
        return [
            {
                "role": "user",
                "content": template.render(**variables, output=each),
                "extra": facts_of(output, timed),
            }
            for each, output in zip(shown, outputs, strict=True)
        ]


class CalledForm:
    """Calls of the only tool `bash`."""

    calls, in_text = True, False
    offered = OFFERED

    def __init__(self, scaffold: MiniLoop) -> None:
        self._scaffold = scaffold

    def read(self, content: str, turn: int) -> tuple[str, list[Record]]:
        """See `written_calls`."""
        return written_calls(content, turn)

    def parse(self, content: str, calls: list[Record], finish_reason: str) -> list[Record]:
        """See `Form.parse`."""
        return parse_calls(calls, self._scaffold.format_error_template, finish_reason)

    def show(self, message: Record, outputs: list[Record], variables: Record, timed: bool) -> list[Record]:
        """Returns a message of role `tool` for every call of a turn."""
        return observations(message, outputs, self._scaffold.observation_template, variables, timed)


def form_of(scaffold: MiniLoop) -> Form:
    """Returns the format of turns for a scaffold of kind `mini`."""
    return CalledForm(scaffold) if scaffold.calls else RegexForm(scaffold)
