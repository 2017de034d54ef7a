"""Checks requests to a model server against a schema before an engine sees the requests.

A schema ("shape") is a strict msgspec structure that rejects unknown fields. The request to the engine is
serialised again from the structure, so gate and engine cannot read it differently. This module has the parts
that all engines share. OpenAI's requests are in `openai_shapes`. The requests of a single engine are next to
that engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from swelab.http.refusal import Refused
from swelab.http.shapes import decode
from swelab.records import shorten
from swelab.sampling_settings import LONGEST_STOP, MOST_STOPS, SETTINGS

MOST_PROMPTS = 64


def _bounds(name: str) -> Any:
    """Returns the range of a setting in the table of sampling settings."""
    return Meta(**dict[str, Any](SETTINGS[name].bounds))


Temperature = Annotated[float, _bounds("temperature")]
TopP = Annotated[float, _bounds("top_p")]
TopK = Annotated[int, _bounds("top_k")]
MinP = Annotated[float, _bounds("min_p")]
Penalty = Annotated[float, _bounds("presence_penalty")]
Repetition = Annotated[float, _bounds("repetition_penalty")]
Answers = Annotated[int, Meta(ge=1, le=64)]
Tokens = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Alternatives = Annotated[int, Meta(ge=0, le=20)]
Seed = Annotated[int, _bounds("seed")]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Name = Annotated[str, Meta(max_length=256)]
StopText = Annotated[str, Meta(min_length=1, max_length=LONGEST_STOP)]
Stop = StopText | Annotated[list[StopText], Meta(max_length=MOST_STOPS)] | None
StopIds = Annotated[list[TokenId], Meta(max_length=64)] | None


@dataclass(frozen=True)
class Limits:
    """Limits of the served model: context length in tokens, and vocabulary size, which exceeds every token
    id."""

    context_length: int
    vocabulary: int

    def check_ids(self, ids: Sequence[Any], where: str) -> None:
        """Raises Refused unless `ids` are valid token ids that fit into the context. where: their name in
        messages."""
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
        """Raises Refused if a requested number of tokens leaves no space for a prompt. counts: maps fields to
        numbers."""
        for name, count in counts.items():
            if count is not None and count >= self.context_length:
                raise Refused(f"{name} is {count}; expected less than {self.context_length}")

    def check_prompts(self, prompts: Sequence[Any], where: str) -> None:
        """Raises Refused unless `prompts` is a list of token ids, or a list of at most MOST_PROMPTS such
        lists."""
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
    """Sampling parameters that all requests share."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
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
    """The schema of requests to one path. A null field counts as absent."""

    UNHEARD: ClassVar[tuple[str, ...]] = ()
    """Accepted fields without effect. They are not sent to an engine."""

    def check(self, limits: Limits) -> None:
        """Checks what types cannot express. Raises Refused."""
        raise NotImplementedError

    def beginning(self) -> Sequence[bytes]:
        """Returns the prompt in pieces.

        The gate uses them to find an engine that has the same prefix cached.
        """
        raise NotImplementedError


def read_request(body: bytes, shape: type[Shape], limits: Limits) -> Shape:
    """Parses and checks a request body. Raises Refused with the fault, its place and the expected value."""
    request = decode(body, shape)
    request.check(limits)
    for name in request.UNHEARD:
        setattr(request, name, None)
    return request


def engine_body(request: Shape) -> bytes:
    """Returns the JSON that is sent to an engine."""
    return msgspec.json.encode(request)
