"""Applies a chat template to a conversation's first messages and to the text after each turn, in token ids.

The ids that a policy sampled are never tokenised again. Only new text is tokenised: the first messages, and
after each turn the observations with the template's text around them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swelab.records import InputError, Record

_ANSWER = "\u2060the answer\u2060"
"""Placeholder for a sampled turn when a template is rendered. Templates and tokenizers leave it unchanged."""


class TokenTemplate:
    """The chat template and tokenizer of a checkpoint.

    tools: tools that the first messages offer. thinking: value of the template's variable `enable_thinking`
    (whether turns begin with thoughts). effort: value of its variable `reasoning_effort`. None leaves a
    variable unset.
    """

    def __init__(
        self,
        tokenizer: Any,
        tools: Sequence[Record] = (),
        thinking: bool | None = None,
        effort: str | None = None,
    ):
        self._tokenizer = tokenizer
        self._options: Record = {"tools": list(tools)} if tools else {}
        if effort is not None:  # as servers do for chat messages
            self._options |= {"reasoning_effort": effort}
            self._options |= dict.fromkeys(("thinking", "enable_thinking"), effort != "none")
        self._options |= {} if thinking is None else {"enable_thinking": thinking}
        if not tokenizer.eos_token:
            raise InputError("the tokenizer names no eos_token", tokenizer.name_or_path, "the end of a turn")
        self.turn_end: str = tokenizer.eos_token
        self.turn_end_id: int = tokenizer.eos_token_id
        self._after([{"role": "user", "content": "x"}])
        self._check_tools(tools)

    def _check_tools(self, tools: Sequence[Record]) -> None:
        """Raises InputError if the template omits the tools, so that a policy would not see them."""
        shown = self._render([{"role": "user", "content": "x"}]) if tools else ""
        for tool in tools:
            if tool["function"]["name"] not in shown:
                where = self._tokenizer.name_or_path
                raise InputError("the chat template leaves the tools out", where, "one that spells them out")

    @classmethod
    def of(cls, checkpoint: Path, tools: Sequence[Record] = ()) -> "TokenTemplate":
        """Loads the template of a checkpoint in Hugging Face layout. Raises InputError if it is missing or
        unusable."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        except (OSError, ValueError) as error:
            raise InputError(f"no tokenizer: {error}", checkpoint) from None
        if not tokenizer.chat_template:
            raise InputError("the tokenizer has no chat template", checkpoint)
        return cls(tokenizer, tools)

    def offering(
        self, tools: Sequence[Record], thinking: bool | None, effort: str | None = None
    ) -> "TokenTemplate":
        """Returns the same template with other tools and other values of `thinking` and `effort`."""
        return type(self)(self._tokenizer, tools, thinking, effort)

    def opening(self, messages: Sequence[Record]) -> list[int]:
        """Returns the ids of the first messages, up to the point where the policy's turn begins."""
        return self.ids(self._render(messages))

    def following(self, messages: Sequence[Record], ended: bool) -> list[int]:
        """Returns the ids between two sampled turns: the end of the first turn if it was not sampled, then
        `messages`."""
        return self.ids(self._after(messages)) if ended else self.ids(self.turn_end + self._after(messages))

    def text(self, sampled: Sequence[int]) -> str:
        """Decodes sampled ids, without the end of the turn and other special tokens."""
        said: str = self._tokenizer.decode(sampled, skip_special_tokens=True)
        return said

    def changes_history(self) -> str:
        """Returns a description of how the template changes earlier turns, or "" if it shows them as they
        were sampled.

        For example, some templates strip `<think>` from earlier turns. With such a template, a policy that is
        served by text sees another history than a policy that is served by sampled ids.
        """
        turn = "<think>\nfirst\n</think>\n\nthen"
        asked = [{"role": "user", "content": "a"}, {"role": "assistant", "content": turn}]
        later = [*asked, {"role": "user", "content": "b"}]
        grown = self._render(asked[:1]) + turn + self.turn_end + self._after(later[2:])
        shown = self._render(later)
        if shown == grown:
            return ""
        return f"{shown[:200]!r} where the sampled ids are {grown[:200]!r}"

    def _render(self, messages: Sequence[Record], open_turn: bool = True) -> str:
        plain = [_plain(message) for message in messages]
        shown: str = self._tokenizer.apply_chat_template(
            plain, tokenize=False, add_generation_prompt=open_turn, **self._options
        )
        return shown

    def _after(self, messages: Sequence[Record]) -> str:
        """Returns the text between the end of a turn and the next turn."""
        before = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _ANSWER}]
        _, found, rest = self._render([*before, *messages]).rpartition(_ANSWER)
        if not found or not rest.startswith(self.turn_end):
            where = self._tokenizer.name_or_path
            raise InputError("the chat template does not end a turn with eos_token", where, self.turn_end)
        return rest.removeprefix(self.turn_end)

    def ids(self, text: str) -> list[int]:
        """Returns the ids of a text, without special tokens that the tokenizer would add."""
        found: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return found


def _plain(message: Record) -> Record:
    return {
        name: message[name] for name in ("role", "content", "tool_calls", "tool_call_id") if name in message
    }
