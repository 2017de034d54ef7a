"""The base class of all models, which converts an answer to a message with actions in the agent's format."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from minisweagent.exceptions import FormatError
from pydantic import BaseModel

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.turn_form import Form, form_of
from swelab.models.chat.turn_text import ended_in_thoughts
from swelab.records import Record


@cache
def warn_of_cut(words: str) -> None:
    """Prints a warning once."""
    print(f"warning: {words}", file=sys.stderr, flush=True)


class Settings(BaseModel):
    """The `config` that mini-swe-agent requires. It is empty, because the scaffold's recipe has the
    settings."""


class TextModel:
    """The part of mini-swe-agent's Model protocol that is the same for all models.

    Messages have no time stamps. If `timed`, they have the duration of each command. sampling: sampling
    parameters of each request, empty for a model that samples nothing. origins: where parameters came from
    that the recipe does not give.
    """

    timed = True

    def __init__(
        self,
        scaffold: MiniLoop,
        name: str,
        sampling: Record | None = None,
        origins: Mapping[str, str] = MappingProxyType({}),
    ):
        self.scaffold, self.name, self.sampling, self.origins = scaffold, name, sampling or {}, origins
        self.form: Form = form_of(scaffold)
        self.config = Settings()
        self._replies = 0

    @property
    def offered(self) -> Record:
        """The tools, as fields of a request besides messages and sampling. Empty if turns are not tool
        calls."""
        return self.form.offered

    def reply(self, content: str, tool_calls: Sequence[Record] = (), **extra: Any) -> Record:
        """Returns an assistant message with its one parsed command, or with the commands of its tool calls.

        The message has the service's `reasoning_content` as a field of its own, and the other fields to send
        back in `extra`.

        Raises FormatError if there is not exactly one command, or no call. The malformed turn and the reply
        to it stay in the conversation, so that roles alternate and its cost counts. The calls of a malformed
        turn are removed but its text stays, because services require an answer to each call.
        """
        facts: Record = {"cost": 0.0, **extra}
        back = dict(facts.pop("sent_back", None) or {})
        thoughts = {"reasoning_content": back.pop("reasoning_content", None)}
        facts |= {"sent_back": back} if back else {}
        calls, text = list(tool_calls) if self.form.calls else [], content
        self._replies += 1
        if self.form.in_text:
            text, calls = (text, calls[-1:]) if calls else self.form.read(content, self._replies)
        message = {"role": "assistant", "content": text, "extra": facts}
        message |= {name: value for name, value in thoughts.items() if value}
        try:
            actions = self.form.parse(text, calls, extra.get("finish_reason", ""))
        except FormatError as error:
            facts |= {"refused_calls": calls} if self.form.calls else {}
            message["content"] = content
            if not tool_calls and ended_in_thoughts(content, extra.get("finish_reason")):
                facts["cut"] = f"no answer in {self.sampling.get('max_tokens', 'all')} tokens, only thoughts"
                warn_of_cut(f"{self.name}: {facts['cut']}; raise max_tokens of its sampling")
            raise FormatError(message, *error.messages) from None
        facts |= {"actions": actions}
        return message | {"tool_calls": calls} if self.form.calls else message

    def format_message(self, **message: Any) -> Record:
        """Makes a message from its fields (`role`, `content`). mini-swe-agent's loop calls this."""
        return message

    def format_observation_messages(
        self, message: Record, outputs: list[Record], template_vars: Record | None = None
    ) -> list[Record]:
        """Returns the messages that report the outputs of a message's actions, in the format of
        `self.form`."""
        return self.form.show(message, outputs, template_vars or {}, self.timed)

    def get_template_vars(self, **kwargs: Any) -> Record:
        """Returns the variables of prompt templates: the given variables and no others."""
        return kwargs

    on_wait: Callable[[float], None] = staticmethod(lambda seconds: None)
    """A function that is called with the seconds of a wait for the service.

    They do not count as the policy's time.
    """

    def close(self) -> None:
        """Releases the model's resources. Called at the end of its rollout."""

    def serialize(self) -> Record:
        """Returns facts about the model for the trajectory, in mini-swe-agent's layout: name, sampling,
        origins of its values, class. Addresses and keys of services are excluded, because they do not affect
        answers."""
        sampling = {"sampling": self.sampling} if self.sampling else {}
        sampling |= {"sampling_from": dict(self.origins)} if self.origins else {}
        return {"info": {"config": {"model": self.name, **sampling, "model_type": type(self).__name__}}}
