"""What a turn of a model is: the tools offered, how actions are found, how their outputs are shown.

An agent says which kind of turn it acts by (`swelab.agents.agent`); who answers does not matter.
"""

from typing import Protocol

from jinja2 import StrictUndefined, Template
from minisweagent.models.utils.actions_text import parse_regex_actions

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.tool_calls import OFFERED, facts_of, observations, parse_calls, written_calls
from swelab.models.chat.turn_text import after_thoughts, cut
from swelab.records import Record


class Form(Protocol):
    """One kind of turn."""

    calls: bool
    """Whether actions are tool calls: a service then wants a message of the role tool for each."""
    in_text: bool
    """Whether a turn's text may hold its call, where the service found none; the last call is then taken."""
    offered: Record
    """What a request holds besides messages and sampling: the tools."""

    def read(self, content: str, turn: int) -> tuple[str, list[Record]]:
        """The text of a turn without the calls that are written in it, and these; turn: a number for ids."""
        ...

    def parse(self, content: str, calls: list[Record], finish_reason: str) -> list[Record]:
        """The actions of a turn, of its text or of its tool calls. Raises FormatError (there are none)."""
        ...

    def show(self, message: Record, outputs: list[Record], variables: Record, timed: bool) -> list[Record]:
        """The messages that tell a model what its actions did; with their seconds only where `timed`."""
        ...


class FencedForm:
    """One command in a fenced block, as the scaffold's `action_regex` finds it."""

    calls = in_text = False
    offered: Record = {}

    def __init__(self, scaffold: MiniLoop) -> None:
        self._scaffold = scaffold

    def read(self, content: str, turn: int) -> tuple[str, list[Record]]:
        """The text itself."""
        return content, []

    def parse(self, content: str, calls: list[Record], finish_reason: str) -> list[Record]:
        """See `Form.parse`; FormatError too when there are several blocks."""
        return parse_regex_actions(
            after_thoughts(content),
            action_regex=self._scaffold.action_regex,
            format_error_template=self._scaffold.format_error_template,
            template_kwargs={"finish_reason": finish_reason},
        )

    def show(self, message: Record, outputs: list[Record], variables: Record, timed: bool) -> list[Record]:
        """One message per output, its middle cut out beyond the scaffold's bound."""
        template = Template(self._scaffold.observation_template, undefined=StrictUndefined)
        most = self._scaffold.max_observation_chars
        shown = [{**output, "output": cut(output["output"], most)} for output in outputs]
        return [
            {
                "role": "user",
                "content": template.render(**variables, output=each),
                "extra": facts_of(output, timed),
            }
            for each, output in zip(shown, outputs, strict=True)
        ]


class CalledForm:
    """Calls of the one tool `bash`."""

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
        """A message of the role tool for every call of a turn."""
        return observations(message, outputs, self._scaffold.observation_template, variables, timed)


def form_of(scaffold: MiniLoop) -> Form:
    """The turns of a scaffold of kind `mini`."""
    return CalledForm(scaffold) if scaffold.calls else FencedForm(scaffold)
