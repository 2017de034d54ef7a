"""Makes training sequences from a rollout's turns, exactly as the engine read and sampled them.

Nothing is rebuilt from text. Each token is trained at its sampled position, after the same tokens, and with
its sampled log-probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from swelab.models.token_turn import TokenTurn


@dataclass
class Sample:
    """One training sequence, as lists of equal length.

    mask: 1 if the policy sampled the id. logprobs: log-probabilities from the engine, 0.0 where mask is 0.
    steps: number of the turn that sampled the id, -1 where mask is 0.
    """

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def observe(self, ids: Sequence[int]) -> None:
        """Appends ids that the policy read."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.steps += [-1] * len(ids)

    def act(self, turn: TokenTurn, step: int) -> None:
        """Appends ids that the policy sampled in its turn `step`."""
        self.ids += turn.sampled
        self.mask += [1] * len(turn.sampled)
        self.logprobs += turn.logprobs
        self.steps += [step] * len(turn.sampled)

    @property
    def trained(self) -> int:
        """The number of sampled ids."""
        return sum(self.mask)


def continues(sample: Sample, turn: TokenTurn) -> bool:
    """Returns whether the turn's prompt begins with all ids of the sample (the prefix property)."""
    held = len(sample.ids)
    return len(turn.prompt) >= held and list(turn.prompt[:held]) == sample.ids


def samples(turns: Sequence[TokenTurn], per_step: bool = False) -> list[Sample]:
    """Returns the training sequences of a rollout.

    Turns are joined to one sequence as long as each prompt begins with all ids of the sequence. A new
    sequence begins where a context manager or a template changed the history. With `per_step`, each turn is a
    sequence of its own. With and without `per_step`, each sampled id is trained exactly once. A turn without
    sampled ids is skipped.
    """
    result: list[Sample] = []
    for step, turn in enumerate(turns):
        if not turn.sampled:
            continue
        if per_step or not result or not continues(result[-1], turn):
            result.append(Sample())
        sample = result[-1]
        sample.observe(turn.prompt[len(sample.ids) :])
        sample.act(turn, step)
    return result
