"""Cross-entropy over the tokens with loss. Logits are computed for these tokens only.

An agent reads most tokens of its conversation, and writes few. torchtune computes the logits of all tokens,
and then leaves tokens without loss out of the sum.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


class TrainedTokensLoss(torch.nn.Module):
    """The mean cross-entropy over all labels other than `ignore_index`, from a model's last hidden states.

    Works only if one process holds the whole model, because it applies the output layer outside of the model.
    """

    def __init__(self, ignore_index: int = -100):
        super().__init__()
        self.ignore_index = ignore_index
        self.output: Callable[[torch.Tensor], torch.Tensor] | None = None

    def take_over(self, model: Any) -> None:
        """Makes a torchtune decoder return normed hidden states; this loss then applies the output layer."""
        # The method, not the module: the weights must not become parameters of this loss too.
        self.output = model.output.__call__
        model.unembed = model.norm.__call__

    def forward(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """hidden: [tokens, width]; labels: [tokens]. Returns a scalar."""
        assert self.output is not None, "take_over was not called"
        kept = labels != self.ignore_index
        logits = self.output(hidden[kept]).float()
        return functional.cross_entropy(logits, labels[kept])
