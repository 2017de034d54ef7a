"""The schema of sglang's own path /generate, which generates turns as token ids."""

from collections.abc import Sequence
from typing import Any

from swelab.http.refusal import Refused
from swelab.models.serving.openai_shapes import OPENAI_SHAPES, pieces
from swelab.models.serving.request_shapes import Alternatives, Limits, Sampler, Shape, Tokens


class Sampling(Sampler, kw_only=True):
    """Sampling parameters of /generate."""

    max_new_tokens: Tokens | None = None
    min_new_tokens: Tokens | None = None
    spaces_between_special_tokens: bool | None = None


class Generate(Shape, kw_only=True):
    """POST /generate."""

    text: str | None = None
    input_ids: list[Any] | None = None
    sampling_params: Sampling | None = None
    return_logprob: bool | None = None
    top_logprobs_num: Alternatives | None = None
    return_text_in_logprobs: bool | None = None
    stream: bool | None = None

    def check(self, limits: Limits) -> None:
        """See `Shape.check`."""
        if (self.text is None) == (self.input_ids is None):
            raise Refused("expected one of text and input_ids")
        if self.text == "":
            raise Refused("text is empty; expected a prompt")
        if self.input_ids is not None:
            limits.check_prompts(self.input_ids, "input_ids")
        if sampling := self.sampling_params:
            counts = {"max_new_tokens": sampling.max_new_tokens, "min_new_tokens": sampling.min_new_tokens}
            limits.check_counts(**{f"sampling_params.{name}": count for name, count in counts.items()})
            if sampling.stop_token_ids:
                limits.check_ids(sampling.stop_token_ids, "sampling_params.stop_token_ids")

    def beginning(self) -> Sequence[bytes]:
        """See `Shape.beginning`."""
        return pieces(self.text if self.text is not None else self.input_ids, 256)


SHAPES: dict[str, type[Shape]] = {**OPENAI_SHAPES, "/generate": Generate}
