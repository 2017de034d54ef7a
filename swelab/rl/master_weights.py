"""Weights in float32 of a model that computes in bfloat16.

A weight in bfloat16 has 8 significant bits. A step of AdamW at a learning rate of 1e-6 is smaller than half
of its last bit, so a step on weights in bfloat16 leaves nearly all of them as they were. Therefore the
optimizer steps on weights in float32, which also collect the gradients. The model computes with copies.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter


class MasterWeights:
    """The weights of a model in float32, and their copies in bfloat16, with which the model computes."""

    def __init__(self, model: Any):
        """Turns the model's weights, which are float32, into copies. A backward pass moves the gradients of
        the copies to `weights`."""
        self.weights = dict[str, Parameter]()
        self._copies = dict[str, Parameter](model.named_parameters())
        for name, copy in self._copies.items():
            self.weights[name] = Parameter(copy.data)
            copy.data = copy.data.to(torch.bfloat16)
            copy.register_post_accumulate_grad_hook(partial(_move_gradient, self.weights[name]))

    @torch.no_grad()
    def copy(self) -> None:
        """Copies the weights to the model."""
        for name, weight in self.weights.items():
            self._copies[name].copy_(weight)


def _move_gradient(weight: Parameter, copy: Tensor) -> None:
    if copy.grad is not None:
        gradient = copy.grad.float()
        weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
        copy.grad = None
