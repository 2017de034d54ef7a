"""What every text-based model shares: parsing one command a turn, and showing what it printed."""

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ.setdefault("MSWEA_GLOBAL_CONFIG_DIR", os.path.dirname(os.path.abspath(__file__)))

from jinja2 import StrictUndefined, Template  # noqa: E402
from minisweagent.exceptions import FormatError  # noqa: E402
from minisweagent.models.utils.actions_text import parse_regex_actions  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from swelab.models.chat.tool_calls import OFFERED, facts_of, observations, parse_calls  # noqa: E402
from swelab.records import Record  # noqa: E402


class Settings(BaseModel):
    """mini-swe-agent asks for a `config`; ours is the scaffold recipe, so it is empty."""


class TextModel:
    """The part of mini-swe-agent's Model protocol that does not depend on who answers.

    Messages carry no time stamps; where `timed`, they carry how long a command took.
    """

    timed = True

    def __init__(self, scaffold: Record, name: str):
        self.scaffold, self.name = scaffold, name
        self.config = Settings()

    @property
    def offered(self) -> Record:
        """What a request holds beside messages and sampling: the tool, where turns call it."""
        return OFFERED if self.scaffold.get("calls") else {}

    def reply(self, content: str, tool_calls: Sequence[Record] = (), **extra: Any) -> dict:
        """An assistant message with its one parsed command, or the commands that it calls.

        Raises FormatError when there is not exactly one, or none called; both the malformed turn and the
        answer to it stay in the conversation, so that roles alternate. Of refused calls only the text stays:
        a service wants each call answered.
        """
        message: dict[str, Any] = {"role": "assistant", "content": content, "extra": {"cost": 0.0, **extra}}
        if self.scaffold.get("calls"):
            return self._calling(message, list(tool_calls))
        try:
            actions = parse_regex_actions(
                content,
                action_regex=self.scaffold["action_regex"],
                format_error_template=self.scaffold["format_error_template"],
                template_kwargs={"finish_reason": extra.get("finish_reason", "")},
            )
        except FormatError as error:
            raise FormatError(message, *error.messages) from None
        message["extra"]["actions"] = actions
        return message

    def _calling(self, message: dict, calls: list[Record]) -> dict:
        reason = message["extra"].get("finish_reason", "")
        try:
            actions = parse_calls(calls, self.scaffold["format_error_template"], reason)
        except FormatError as error:
            message["extra"]["refused_calls"] = calls
            raise FormatError(*([message] if message["content"] else []), *error.messages) from None
        message["extra"]["actions"] = actions
        return message | {"tool_calls": calls}

    def format_message(self, **message: Any) -> dict:
        return message

    def format_observation_messages(
        self, message: dict, outputs: list[dict], template_vars: dict | None = None
    ) -> list[dict]:
        """One message per output, its middle cut out beyond the scaffold's bound."""
        if self.scaffold.get("calls"):
            template = self.scaffold["observation_template"]
            return observations(message, outputs, template, template_vars or {}, self.timed)
        template = Template(self.scaffold["observation_template"], undefined=StrictUndefined)
        return [
            {
                "role": "user",
                "content": template.render(
                    **(template_vars or {}),
                    output={
                        **output,
                        "output": cut(output["output"], self.scaffold["max_observation_chars"]),
                    },
                ),
                "extra": facts_of(output, self.timed),
            }
            for output in outputs
        ]

    def get_template_vars(self, **kwargs: Any) -> dict:
        return kwargs

    on_wait: Callable[[float], None] = staticmethod(lambda seconds: None)
    """Told of seconds that the model was waited for and nobody worked: they are not the policy's."""

    def close(self) -> None:
        """Lets go of what the model holds; called when its rollout is over."""

    def serialize(self) -> dict:
        return {"info": {"config": {"model": self.name, "model_type": type(self).__name__}}}


def cut(text: str, limit: int) -> str:
    """`text` with its middle replaced by a count when it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
