"""Calls hosted models through LiteLLM: metered within a budget, with retries and rotating API keys."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from swelab.configs.kinds.sampling import Sampling
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models import BudgetSpent
from swelab.models.billing.api_keys import Key, KeyRing, Pass
from swelab.models.billing.call_meter import Bill, Meter
from swelab.models.billing.paid_turns import HostedAnswer, PaidTurns, request_message
from swelab.models.billing.prices import CallTokens, read_usage
from swelab.models.chat.error_bodies import broke_off
from swelab.models.chat.litellm_calls import complete, unsupported_settings
from swelab.models.chat.litellm_errors import CallFault, read_fault
from swelab.models.chat.text_model import TextModel
from swelab.models.chat.thoughts import fields_to_send_back
from swelab.models.chat.tool_calls import plain_calls
from swelab.models.chat.turn_text import with_texts
from swelab.models.service_words import Ends, Kind, final_fault, was_answered
from swelab.patience import HOSTED, UNSURE, Patience, repeat
from swelab.records import InputError, Record
from swelab.sampling_settings import further_fields, named_fields

PAUSES = {Kind.PASSING: HOSTED, Kind.UNSURE: UNSURE}
BUSY_SECONDS = 1800
"""Number of seconds for which a service may be busy before it counts as lost."""
MESSAGE_TOKENS, PROMPT_TOKENS, TOOLS_TOKENS = 16, 64, 1024
"""Upper bounds of overhead tokens: per message, per prompt, and per list of tools. A text has at most one
token per byte."""
TOKEN_BYTES, SPARE_BYTES = 256, 1 << 16
"""Upper bound of an answer's size in bytes: TOKEN_BYTES per token, plus SPARE_BYTES."""

Keep = Callable[[HostedAnswer], None]


@dataclass
class Talk:
    """The state of one conversation with a service.

    offered: request fields besides messages (tools). counted: number of leading messages whose tokens the
    service has counted. tokens: number of tokens of these messages. waited: seconds spent on failed calls and
    on waiting to send.
    """

    offered: Record = field(default_factory=dict)
    key: Key | None = None
    counted: int = 0
    tokens: int = PROMPT_TOKENS
    waited: float = 0.0

    def most(self, history: list[Record]) -> int:
        """Returns an upper bound of the number of tokens in `history`. It is the service's count, plus one
        token per byte of new messages."""
        tools = size_of(self.offered) + TOOLS_TOKENS if self.offered and not self.counted else 0
        fresh = history[self.counted :]
        return self.tokens + tools + sum(MESSAGE_TOKENS + sum(map(size_of, each.values())) for each in fresh)

    def about(self, history: list[Record]) -> int:
        """Returns an estimate of the number of tokens in `history`: the service's count, plus a quarter of
        the new bytes."""
        return self.tokens + (self.most(history) - self.tokens) // 4

    def note(self, history: list[Record], answer: HostedAnswer) -> None:
        """Records how many tokens the service counted."""
        if usage := answer.usage:
            self.counted, self.tokens = len(history), usage.prompt_tokens


@dataclass
class Service:
    """A hosted model that the threads of a process share. cache_last: number of last messages that are marked
    for the prompt cache, in addition to the first message."""

    model: str
    sampling: Sampling
    keys: KeyRing
    meter: Meter
    api_base: str | None = None
    cache_last: int = 0
    drops: dict[str, str] = field(default_factory=dict)
    sent: Record = field(default_factory=dict)
    spent: str = ""

    def __post_init__(self) -> None:
        self.sent, self.drops = fields_for(self.model, self.sampling, self.api_base)
        for setting, reason in self.drops.items():
            print(f"warning: {setting} is not sent to {self.model}: {reason}", file=sys.stderr, flush=True)
        if "max_tokens" in self.drops:
            raise InputError(
                f"{self.model} takes no max_tokens", expected="a model whose answers are bounded"
            )

    def answer(self, history: list[Record], talk: Talk, keep: Keep) -> HostedAnswer:
        """Returns the next turn of a conversation. Calls `keep` with the turn before its cost is recorded.

        Raises BudgetSpent, ContextLimit, ModelLost (after all attempts), SettingRefused, and InputError if
        the service refuses for another reason or no key is usable.
        """
        began, history = time.monotonic(), with_texts(history)
        patiences = {kind: Patience(pauses) for kind, pauses in PAUSES.items()}

        def once() -> HostedAnswer:
            admitted = None
            while admitted is None:
                talk.key = self.keys.choose(talk.key)
                admitted = self.keys.enter(talk.key, talk.about(history))
            return self._call(history, talk, admitted, keep)

        def pause(fault: CallFault) -> float | None:
            kind = fault.kind
            if kind in PAUSES:
                return patiences[kind].next_pause()
            busy = kind == Kind.BUSY and time.monotonic() < began + BUSY_SECONDS
            return 0.0 if busy or kind in (Kind.KEY, Kind.QUOTA) else None

        try:
            answer = repeat(once, CallFault, pause)
        except CallFault as fault:
            raise final_fault(fault.kind, _final_words(fault), self.keys.service, fault.setting) from None
        talk.waited += time.monotonic() - began - answer.seconds
        return answer

    def _call(self, history: list[Record], talk: Talk, admitted: Pass, keep: Keep) -> HostedAnswer:
        """Sends one request and bills it. If the service reports a rate limit, the key is slowed down. Raises
        CallFault."""
        answer = None
        try:
            with self._admit(talk.most(history)) as bill:
                began = time.monotonic()
                try:
                    reply, usage = self._ask(history, talk.offered, admitted.key)
                except CallFault as fault:
                    self._learn(admitted, fault)
                    if not fault.charged:
                        bill.refuse()
                    raise
                seconds = round(time.monotonic() - began, 3)
                answer = HostedAnswer.of({**reply, **bill.pay(usage), "seconds": seconds})
                keep(answer)
            talk.note(history, answer)
            return answer
        finally:
            used = answer and answer.usage
            tokens = used.prompt_tokens + used.completion_tokens if used else admitted.tokens
            self.keys.leave(admitted, tokens if answer else None)

    def _admit(self, prompt: int) -> Bill:
        try:
            return self.meter.admit(prompt, self.sampling.max_tokens)
        except BudgetSpent as error:
            self.spent = str(error)
            raise

    def _ask(self, history: list[Record], offered: Record, key: Key) -> tuple[Record, CallTokens | None]:
        """Returns the reply to one request, and its token counts if the service sent them. Raises
        CallFault."""
        messages = with_cache_marks(history, self.cache_last) if self.cache_last else history
        try:
            response = complete(self.model, messages, key.secret, self.api_base, self.sent | offered)
        except Exception as error:  # LiteLLM passes on any exception of other libraries
            raise read_fault(error, key.secret, was_answered(history), self.sent) from None
        if not getattr(response, "choices", None):
            raise CallFault(Kind.UNSURE, "an answer without choices", charged=True)
        reply, usage = reply_of(response.choices[0]), read_usage(response)
        if broke_off(reply["finish_reason"]):
            text = f"the answer broke off ({reply['finish_reason']})"
            raise CallFault(Kind.UNSURE, text, charged=True)
        size, most = size_of(reply), self.sampling.max_tokens
        if size > most * TOKEN_BYTES + SPARE_BYTES:
            text = f"an answer of {size} bytes to a limit of {most} tokens"
            raise CallFault(Kind.UNSURE, text, charged=True)
        return reply | {"usage": usage.record() if usage else None}, usage

    def _learn(self, admitted: Pass, fault: CallFault) -> None:
        """Slows the key down or stops using it, depending on the kind of fault."""
        if fault.kind == Kind.KEY:
            self.keys.set_aside(admitted.key, f"was refused ({fault.words})")
        elif fault.kind == Kind.QUOTA:
            self.keys.set_aside(admitted.key, f"is out of quota ({fault.words})")
        elif fault.kind == Kind.BUSY:
            self.keys.slow(admitted, fault.wait)


def fields_for(model: str, sampling: Sampling, base: str | None) -> tuple[Record, dict[str, str]]:
    """Returns (the settings that requests to a service send, the reasons why others are not sent by name).
    Raises InputError for `thinking` at a service that is not the user's own server."""
    values = sampling.values
    if values.get("thinking") is not None and not base:
        raise InputError(f"sampling.thinking is not told to {model}", expected="api_base: a server of yours")
    # Some services refuse a request with both top_p and temperature, even if top_p is 1.
    named = {name: each for name, each in named_fields(values).items() if (name, each) != ("top_p", 1)}
    further = further_fields(values)
    drops = unsupported_settings(model, named, further, base)
    kept = {name: each for name, each in named.items() if name not in drops}
    further = {name: each for name, each in further.items() if name not in drops}
    return kept | ({"extra_body": further} if further else {}), drops


def reply_of(choice: Any) -> Record:
    """Returns an answer's text and finish reason. If there are any, also returns its tool calls, the fields
    to send back, and thoughts that were a part of the text."""
    calls, back = plain_calls(choice.message.tool_calls), fields_to_send_back(choice.message)
    found = {"content": choice.message.content or "", "finish_reason": str(choice.finish_reason)}
    found |= ({"tool_calls": calls} if calls else {}) | ({"sent_back": back} if back else {})
    cut = getattr(choice.message, "thoughts", "")
    return found | ({"thoughts": cut} if cut else {})


def size_of(value: Any) -> int:
    """Returns the number of bytes of a text, or of any other value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text.encode("utf-8", "replace"))


def _final_words(fault: CallFault) -> str:
    """Returns the service's words, and how long it was asked if it may answer later."""
    if fault.kind == Kind.OVERFLOWED:
        return fault.text
    if fault.kind.ends != Ends.CALL:
        return fault.words
    if fault.kind == Kind.BUSY:
        return f"too busy for {BUSY_SECONDS // 60} minutes: {fault.words}"
    return f"no answer in {PAUSES[fault.kind].attempts} attempts: {fault.words}"


def with_cache_marks(history: list[Record], last: int) -> list[Record]:
    """Returns messages with cache marks for Anthropic on the first message and on the `last` newest messages.
    Anthropic caches the prompt up to each mark."""
    chosen = {0, *range(max(0, len(history) - last), len(history))}
    mark = {"cache_control": {"type": "ephemeral"}}
    return [
        {**each, "content": [{"type": "text", "text": each["content"], **mark}]}
        if n in chosen and each.get("content")
        else each
        for n, each in enumerate(history)
    ]


class HostedModel(TextModel):
    """One conversation with a hosted model. Turns that were paid for before a kill are replayed.

    Raises BudgetSpent if the budget has already refused a call, because a new conversation would only occupy
    a sandbox.
    """

    def __init__(self, service: Service, scaffold: MiniLoop, turns: Callable[[], PaidTurns]):
        super().__init__(scaffold, service.model, service.sent)
        if service.spent:
            raise BudgetSpent(service.spent)
        self.service, self.talk = service, Talk()
        self.turns, self._conversation = turns(), list[Record]()

    def query(self, messages: list[Record], **_: object) -> Record:
        """Returns the next assistant message. `extra` has its command, tokens, finish reason, cost and
        seconds.

        Raises FormatError if the answer does not contain one command. Also raises the exceptions of
        `Service.answer`.
        """
        so_far = [each for each in messages if each["role"] != "exit"]
        history = [request_message(each) for each in so_far]
        answer = self.turns.answer(so_far)
        if answer is None:
            before, self.talk.offered = self.talk.waited, self.offered
            answer = self.service.answer(history, self.talk, lambda reply: self.turns.add(so_far, reply))
            self.on_wait(self.talk.waited - before)
        else:
            self.talk.note(history, answer)
        self._conversation = [*history, request_message({"role": "assistant", **answer})]
        told = {name: value for name, value in answer.items() if name != "content"}
        return self.reply(answer.content, **told)

    def format_observation_messages(
        self, message: Record, outputs: list[Record], template_vars: Record | None = None
    ) -> list[Record]:
        """Like `TextModel.format_observation_messages`, but a replayed turn gets the observations of the
        first run."""
        fresh = super().format_observation_messages(message, outputs, template_vars)
        return self.turns.record_reply(self._conversation, fresh)

    def serialize(self) -> Record:
        """Like `TextModel.serialize`, but adds the settings that are not sent and the number of replayed
        turns."""
        info: Record = super().serialize()["info"]
        info["config"] |= {"not_sent": self.service.drops} if self.service.drops else {}
        resumed = {"paid_turns": self.turns.replayed, "kept_observations": self.turns.diverging}
        return {"info": info | ({"resumed": resumed} if self.turns.replayed else {})}

    def close(self) -> None:
        """Closes the journal of paid turns. The connection stays open, because it belongs to the service."""
        self.turns.close()
