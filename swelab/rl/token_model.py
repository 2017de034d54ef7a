"""A policy model in token ids: sampled ids are stored as ids, and sent back to the engine as ids.

All agents can use a `TokenModel` like any other model. Only observations are tokenised. The text of a sampled
turn is never tokenised again, because the result can differ from the sampled ids. The policy would then be
trained on ids that it never sampled.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models import ContextLimit
from swelab.models.chat.text_model import TextModel
from swelab.models.token_turn import TokenTurn
from swelab.records import Record
from swelab.rl.idle_shares import Busy
from swelab.rl.token_template import TokenTemplate


class TokenEngine(Protocol):
    """An engine that samples tokens."""

    def generate(self, prompt: Sequence[int], sampling: Record) -> TokenTurn:
        """Samples one turn. Raises ContextLimit, ModelLost, ServingError, InputError."""
        ...


@dataclass(frozen=True)
class TimedEngine:
    """Wraps an engine and measures the time in which it generates."""

    engine: TokenEngine
    meter: Busy

    def generate(self, prompt: Sequence[int], sampling: Record) -> TokenTurn:
        """See `TokenEngine.generate`."""
        with self.meter.one():
            return self.engine.generate(prompt, sampling)


@dataclass
class Step:
    """A sampled turn, the messages that the policy got after it, and the ids of these messages."""

    turn: TokenTurn
    messages: list[Record] = field(default_factory=list)
    observed: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.turn.sampled) + len(self.observed)


class TokenModel(TextModel):
    """A model whose prompts and answers are token ids.

    `turns` contains all turns so far, exactly as the engine read and sampled them. `watch` is called with the
    conversation before each turn. sampling: settings that `swelab.sampling_settings` has for /generate.
    replayed: turns that an interrupted rollout sampled before, which are returned instead of new turns. A
    replayed turn is skipped if its prompt has changed, for example because a command's output differs when
    the command is repeated.
    """

    def __init__(
        self,
        engine: TokenEngine,
        template: TokenTemplate,
        scaffold: MiniLoop,
        sampling: Record,
        name: str,
        on_turn: Callable[[TokenTurn], None] = lambda turn: None,
        replayed: Sequence[TokenTurn] = (),
    ):
        super().__init__(scaffold, name, sampling)
        self.engine, self.template = engine, template
        self.turns: list[TokenTurn] = []
        self._first: list[Record] = []
        self._opening: list[int] = []
        self._steps: list[Step] = []
        self._read_messages = 0
        self._on_turn, self._replayed = on_turn, list(replayed)
        self.watch: Callable[[Sequence[Record]], None] = lambda messages: None

    def query(self, messages: list[Record], **_: object) -> Record:
        """Returns the next assistant message; see `ChatModel.query`. Raises FormatError if the answer does
        not contain one command, and ContextLimit, ModelLost, ServingError, InputError."""
        self.watch(messages)
        self._read(messages)
        prompt = self._prompt()
        began = time.monotonic()
        turn = self._sample(prompt)
        seconds = round(time.monotonic() - began, 3)
        self.turns.append(turn)
        self._steps.append(Step(turn))
        content, calls = self.template.text(turn.sampled), list[Record]()
        if self.form.calls and not self.form.in_text:
            content, calls = self.form.read(content, len(self.turns))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(turn.sampled)}
        return self.reply(content, calls, usage=usage, finish_reason=turn.finish, seconds=seconds)

    def _read(self, messages: list[Record]) -> None:
        """Reads the messages since the policy's last turn, except the policy's own messages."""
        told = [message for message in messages if message["role"] not in ("assistant", "exit")]
        new, self._read_messages = told[self._read_messages :], len(told)
        if not self._steps:
            self._first, self._opening = new, self.template.opening(new)
            return
        last = self._steps[-1]
        last.messages, last.observed = new, self._following(last.turn, new)

    def _following(self, turn: TokenTurn, messages: Sequence[Record]) -> list[int]:
        return self.template.following(messages, turn.sampled[-1] == self.template.turn_end_id)

    def _prompt(self) -> list[int]:
        """Returns the ids of the next request. Raises ContextLimit."""
        prompt = list(self._opening)
        for step in self._steps:
            prompt += [*step.turn.sampled, *step.observed]
        return prompt

    def _sample(self, prompt: list[int]) -> TokenTurn:
        while self._replayed:
            turn = self._replayed.pop(0)
            if list(turn.prompt) == prompt:
                return turn
        turn = self.engine.generate(prompt, self.sampling)
        if not turn.sampled:
            raise ContextLimit(f"no room for an answer after {len(prompt)} tokens")
        self._on_turn(turn)
        return turn
