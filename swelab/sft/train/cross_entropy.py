"""Cross-entropy over tokens with loss, whose logits alone are computed.

Most tokens of an agent's conversation are read, not said. torchtune computes the logits of all of them and
then leaves those without loss out of the sum.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


class TrainedTokensLoss(torch.nn.Module):
    """The mean cross-entropy of the labels that are not `ignore_index`, from a model's last hidden states.

    For models that one process holds whole: weights of the output layer are used outside of the model.
    """

    def __init__(self, ignore_index: int = -100):
        super().__init__()
        self.ignore_index = ignore_index
        self.output: Callable[[torch.Tensor], torch.Tensor] | None = None

    def take_over(self, model: Any) -> None:
        """Makes a torchtune decoder end with its hidden states, normed; the output layer is applied here."""
        # The method, not the module: the weights must not become parameters of this loss too.
        self.output = model.output.__call__
        model.unembed = model.norm.__call__

    def forward(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """hidden: [tokens, width]; labels: [tokens]. Returns a number."""
        assert self.output is not None, "take_over was not called"
        kept = labels != self.ignore_index
        logits = self.output(hidden[kept]).float()
        return functional.cross_entropy(logits, labels[kept])
