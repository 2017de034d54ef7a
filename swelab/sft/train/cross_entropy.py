"""Computes logits and cross-entropy only for the tokens that have a loss.

An agent reads most tokens of its conversation, and writes few. torchtune computes the logits of all tokens,
and then excludes tokens without loss from the sum.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


class TrainedTokensLoss(torch.nn.Module):
    """Mean cross-entropy over all labels except `ignore_index`, from a model's last hidden states.
    Works only if one process holds the whole model, because the loss itself applies the output layer."""

    def __init__(self, ignore_index: int = -100):
        super().__init__()
        self.ignore_index = ignore_index
        self.output: Callable[[torch.Tensor], torch.Tensor] | None = None

    def take_over(self, model: Any) -> None:
        """Makes a torchtune decoder return hidden states. This loss then computes the logits from them."""
        # We keep a method and not the module. Otherwise its weights would become parameters of this loss.
        self.output = model.output.__call__
        model.unembed = model.norm.__call__

    def forward(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns the loss as a scalar. hidden: [tokens, width]. labels: [tokens]."""
        assert self.output is not None, "take_over was not called"
        kept = labels != self.ignore_index
        logits = self.output(hidden[kept]).float()
        return functional.cross_entropy(logits, labels[kept])
