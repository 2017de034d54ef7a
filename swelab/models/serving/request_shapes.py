"""What a request to a model server may hold: checked whole before an engine sees it.

A shape is a strict msgspec structure: a field that it does not name is refused. What an engine is sent is
written anew from the structure, so both sides read the same. Here are the values that any engine's requests
have in common; `openai_shapes` has OpenAI's requests, an engine's own are beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from swelab.http.refusal import Refused
from swelab.http.shapes import decode
from swelab.records import shorten

MOST_PROMPTS = 64

Temperature = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(gt=0, le=1)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Repetition = Annotated[float, Meta(gt=0, le=2)]
TopK = Annotated[int, Meta(ge=-1, le=1 << 30)]
Answers = Annotated[int, Meta(ge=1, le=64)]
Tokens = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Alternatives = Annotated[int, Meta(ge=0, le=20)]
Seed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Name = Annotated[str, Meta(max_length=256)]
StopText = Annotated[str, Meta(min_length=1, max_length=1024)]
Stop = StopText | Annotated[list[StopText], Meta(max_length=16)] | None
StopIds = Annotated[list[TokenId], Meta(max_length=64)] | None


@dataclass(frozen=True)
class Limits:
    """What the served model sets: its context in tokens, and its vocabulary (ids below it are tokens)."""

    context_length: int
    vocabulary: int

    def check_ids(self, ids: Sequence[Any], where: str) -> None:
        """Raises Refused for what is no prompt of this model's token ids."""
        if len(ids) > self.context_length:
            raise Refused(
                f"{where} has {len(ids)} tokens; the maximum context length is {self.context_length} tokens"
            )
        if not ids or not all(type(each) is int for each in ids):
            raise Refused(f"{where}: expected token ids, at least one")
        if min(ids) < 0 or max(ids) >= self.vocabulary:
            odd = next(each for each in ids if not 0 <= each < self.vocabulary)
            raise Refused(
                f"{where}: {shorten(str(odd))} is not a token id; expected 0 to {self.vocabulary - 1}"
            )

    def check_counts(self, **counts: int | None) -> None:
        """Raises Refused for more tokens of an answer than fit beside a prompt. counts: by field."""
        for name, count in counts.items():
            if count is not None and count >= self.context_length:
                raise Refused(f"{name} is {count}; expected less than {self.context_length}")

    def check_prompts(self, prompts: Sequence[Any], where: str) -> None:
        """Raises Refused for anything but token ids, or up to MOST_PROMPTS lists of them."""
        if not prompts or not isinstance(prompts[0], list):
            self.check_ids(prompts, where)
            return
        if len(prompts) > MOST_PROMPTS:
            raise Refused(f"{where} has {len(prompts)} prompts; expected at most {MOST_PROMPTS}")
        for number, each in enumerate(prompts):
            if not isinstance(each, list):
                raise Refused(f"{where}[{number}]: expected a list of token ids")
            self.check_ids(each, f"{where}[{number}]")


class Sampler(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """How an answer is sampled."""

    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Fraction | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Repetition | None = None
    n: Answers | None = None
    stop: Stop = None
    stop_token_ids: StopIds = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    no_stop_trim: bool | None = None


class Shape(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A request of one path. A field that is null counts as absent."""

    UNHEARD: ClassVar[tuple[str, ...]] = ()
    """Fields that may be there and change no answer: an engine is not sent them."""

    def check(self, limits: Limits) -> None:
        """What types cannot say. Raises Refused."""
        raise NotImplementedError

    def beginning(self) -> Sequence[bytes]:
        """The prompt in pieces, for requests that begin alike to go where that beginning is cached."""
        raise NotImplementedError


def read_request(body: bytes, shape: type[Shape], limits: Limits) -> Shape:
    """The request in a body. Raises Refused, with what is wrong, where, and what is expected."""
    request = decode(body, shape)
    request.check(limits)
    for name in request.UNHEARD:
        setattr(request, name, None)
    return request


def engine_body(request: Shape) -> bytes:
    """What an engine is sent."""
    return msgspec.json.encode(request)
