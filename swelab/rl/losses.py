"""Policy-gradient losses for each token, as reference implementations.

Tensors have the shape [..., tokens]. `logprobs`, `old` and `engine` are natural logarithms of token
probabilities. `logprobs` is computed by the policy in training, with gradient. `old` is computed by the
trainer with the weights before this batch. `engine` is reported by the inference engine that sampled the
tokens. `mask` is True for trained tokens. The loss of all other tokens is 0. `token_weights` computes each
token's weight in the loss of a batch.
"""

import torch
from torch import Tensor

from swelab.configs.kinds.rl import Method, Mismatch


def clipped_loss(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, method: Method
) -> tuple[Tensor, Tensor]:
    """Returns PPO's clipped loss of each token, and a bool mask of the tokens whose gradient is 0 because of
    clipping.

    `clip_low` and `clip_high` may differ, as in DAPO (arXiv 2503.14476). `dual_clip` is c of arXiv
    1912.09729: the loss of a token with negative advantage is at most c x |advantage|.
    """
    return _clip(_ratio(logprobs, old, mask), advantages, mask, method)


def gspo(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, method: Method
) -> tuple[Tensor, Tensor]:
    """Returns GSPO's loss: like `clipped_loss`, but with one ratio per sequence.

    This is the geometric mean of the ratios of the sequence's tokens.

    The ratio of each token has the value of the sequence's ratio, but the gradient of the token's own
    log-probability. So the mean of these ratios over the tokens has the gradient of the sequence's ratio.
    Source: arXiv 2507.18071, section 4.3.
    """
    difference = torch.where(mask, logprobs - old, 0.0)
    count = mask.sum(-1, keepdim=True).clamp(min=1)
    sequence = (difference.sum(-1, keepdim=True) / count).detach()
    own = torch.where(mask, logprobs - logprobs.detach(), 0.0)
    return _clip(torch.exp(sequence + own), advantages, mask, method)


def cispo(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, method: Method
) -> tuple[Tensor, Tensor]:
    """Returns CISPO's loss. Each token's gradient is multiplied by the clipped ratio, so that clipping never
    makes it 0. The second result is a bool mask of the tokens with a clipped ratio. Source: arXiv
    2506.13585."""
    ratio = _ratio(logprobs, old, mask).detach()
    weight = ratio.clamp(1 - method.clip_low, 1 + method.clip_high)
    loss = torch.where(mask, -weight * advantages * logprobs, 0.0)
    return loss, mask & (weight != ratio)


LOSSES = {"clipped": clipped_loss, "gspo": gspo, "cispo": cispo}
"""Maps a loss's name in recipes to its function."""


def kl_to_reference(logprobs: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """Returns an estimate of KL(policy || reference) at each token. The estimate is unbiased, never negative,
    and has a low variance.

    The estimate is r - 1 - log r with r = reference / policy. Source: k3 of joschu.net/blog/kl-approx.html.
    """
    difference = torch.where(mask, reference - logprobs, 0.0)
    return torch.exp(difference) - 1 - difference


def mismatch_weights(old: Tensor, engine: Tensor, mask: Tensor, rule: Mismatch) -> Tensor:
    """Returns a factor for each token's loss, without gradient. The factor of a masked token is 0.

    The ratio is old / engine, of each token or of its whole sequence (`rule.level`). With `rule.truncate`,
    the factor is the ratio, but at most `rule.truncate` (truncated importance sampling). Otherwise the factor
    is 1. The factor is 0 if the ratio is less than `rule.mask_below` or more than `rule.mask_above` (IcePop).
    """
    difference = torch.where(mask, old - engine, 0.0).detach()
    if rule.level == "sequence":
        count = mask.sum(-1, keepdim=True).clamp(min=1)
        difference = (difference.sum(-1, keepdim=True) / count).expand_as(difference)
    ratio = torch.exp(difference)
    weights = torch.ones_like(ratio) if rule.truncate is None else ratio.clamp(max=rule.truncate)
    kept = mask.clone()
    if rule.mask_below is not None:
        kept &= ratio >= rule.mask_below
    if rule.mask_above is not None:
        kept &= ratio <= rule.mask_above
    return torch.where(kept, weights, 0.0)


def _ratio(logprobs: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    return torch.exp(torch.where(mask, logprobs - old, 0.0))


def _clip(ratio: Tensor, advantages: Tensor, mask: Tensor, method: Method) -> tuple[Tensor, Tensor]:
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - method.clip_low, 1 + method.clip_high) * advantages
    loss = torch.maximum(free, bounded)
    cut = bounded > free
    if method.dual_clip is not None:
        most = -method.dual_clip * advantages
        over = (advantages < 0) & (loss > most)
        loss, cut = torch.where(over, most, loss), cut | over
    return torch.where(mask, loss, 0.0), mask & cut
