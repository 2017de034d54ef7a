"""One call of an inference engine in token ids, on which reinforcement learning trains."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TokenTurn:
    """One turn of an engine: the prompt and the sampled tokens.

    prompt: all token ids of the request. sampled: ids of the answer, including the end-of-turn id if the
    engine sampled it. logprobs: natural log-probability of each sampled id, after temperature and before
    top-p. finish: `stop` or `length`. versions: pairs (first sampled position, version of the weights) in
    order, empty if nothing was sampled.
    """

    prompt: Sequence[int]
    sampled: Sequence[int]
    logprobs: Sequence[float]
    finish: str
    versions: Sequence[tuple[int, str]] = ()

    def __post_init__(self) -> None:
        """Raises ValueError unless there is one log-probability for each sampled id."""
        if len(self.sampled) != len(self.logprobs):
            raise ValueError(f"{len(self.sampled)} sampled ids with {len(self.logprobs)} log-probabilities")
