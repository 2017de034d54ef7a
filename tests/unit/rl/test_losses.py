"""Losses and their gradients compared with values worked out by hand."""

import math

import pytest
import torch

from swelab.configs.kinds.rl import Method, Mismatch
from swelab.rl.losses import cispo, clipped_loss, gspo, kl_to_reference, mismatch_weights

METHOD = Method(clip_low=0.2, clip_high=0.28)


def tensors(ratios, advantages, mask=None):
    """Returns (logprobs with gradient, old, advantages, mask) of tokens with these ratios."""
    old = torch.full((len(ratios),), -1.0, dtype=torch.float64)
    logprobs = (old + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    trained = torch.tensor(mask if mask is not None else [True] * len(ratios))
    return logprobs, old, torch.tensor(advantages, dtype=torch.float64), trained


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "cut"),
    [
        (1.0, 2.0, -2.0, -2.0, False),
        (1.5, 1.0, -1.28, 0.0, True),  # good, and already more probable than the bound
        (1.5, -1.0, 1.5, 1.5, False),  # bad and more probable: its full gradient counts
        (0.5, 1.0, -0.5, -0.5, False),
        (0.5, -1.0, 0.8, 0.0, True),
        (1.27, 1.0, -1.27, -1.27, False),
    ],
)
def test_a_clipped_token(ratio, advantage, loss, gradient, cut):
    logprobs, old, advantages, mask = tensors([ratio], [advantage])
    found, bounded = clipped_loss(logprobs, old, advantages, mask, METHOD)
    found.sum().backward()
    assert found.item() == pytest.approx(loss) and logprobs.grad.item() == pytest.approx(gradient)
    assert bounded.item() is cut


def test_the_second_bound_is_for_bad_tokens_only():
    logprobs, old, advantages, mask = tensors([10.0, 10.0, 2.0], [-1.0, 1.0, -1.0])
    found, cut = clipped_loss(
        logprobs, old, advantages, mask, Method(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
    )
    found.sum().backward()
    assert found.tolist() == pytest.approx([3.0, -1.28, 2.0])
    assert logprobs.grad.tolist() == pytest.approx([0.0, 0.0, 2.0]) and cut.tolist() == [True, True, False]


@pytest.mark.parametrize("loss", [clipped_loss, gspo, cispo])
def test_what_is_masked_neither_costs_nor_teaches(loss):
    logprobs, old, advantages, mask = tensors([1.0, 1.1, 7.0], [1.0, 1.0, 1.0], [True, True, False])
    with torch.no_grad():
        logprobs[2], old[2] = -math.inf, -math.inf
    found, cut = loss(logprobs, old, advantages, mask, METHOD)
    found.sum().backward()
    assert found[2].item() == 0 and not cut[2] and torch.isfinite(found).all()
    assert logprobs.grad[2].item() == 0 and torch.isfinite(logprobs.grad).all()


def test_one_ratio_for_a_sequence():
    """Ratios of 2, 0.5 and a masked 100 have the geometric mean 1, so nothing is clipped."""
    logprobs, old, advantages, mask = tensors([2.0, 0.5, 100.0], [1.0, 1.0, 1.0], [True, True, False])
    found, cut = gspo(logprobs, old, advantages, mask, METHOD)
    (found.sum() / 2).backward()
    assert found.tolist() == pytest.approx([-1.0, -1.0, 0.0]) and not cut.any()
    assert logprobs.grad.tolist() == pytest.approx([-0.5, -0.5, 0.0])


def test_the_gradient_of_a_sequence_is_that_of_its_ratio():
    logprobs, old, advantages, mask = tensors([1.1, 1.2, 0.9], [0.7, 0.7, 0.7])
    found, _ = gspo(logprobs, old, advantages, mask, METHOD)
    found.mean().backward()
    again = logprobs.detach().clone().requires_grad_()
    (-torch.exp((again - old).mean()) * 0.7).backward()
    assert torch.allclose(logprobs.grad, again.grad)


def test_sequences_of_a_batch_have_ratios_of_their_own():
    logprobs, old, advantages, mask = tensors([2.0, 2.0, 1.0, 1.0], [1.0] * 4)
    found, cut = gspo(*(x.view(2, 2) for x in (logprobs, old, advantages, mask)), METHOD)
    assert found.tolist() == [pytest.approx([-1.28, -1.28]), pytest.approx([-1.0, -1.0])]
    assert cut.tolist() == [[True, True], [False, False]]


def test_clipped_weights_cut_no_gradient_off():
    logprobs, old, advantages, mask = tensors([1.5, 0.5, 1.0], [1.0, -1.0, 2.0])
    found, cut = cispo(logprobs, old, advantages, mask, METHOD)
    found.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-1.28, 0.8, -2.0])
    assert found.tolist() == pytest.approx((-torch.tensor([1.28, -0.8, 2.0]) * logprobs.detach()).tolist())
    assert cut.tolist() == [True, True, False]


def test_divergence_from_a_reference():
    logprobs, _, _, mask = tensors([1.0, 1.0], [0, 0], [True, False])
    found = kl_to_reference(logprobs, logprobs.detach() + math.log(2), mask)
    assert found.tolist() == pytest.approx([2 - 1 - math.log(2), 0])
    assert kl_to_reference(logprobs, logprobs.detach(), mask).tolist() == [0, 0]


def test_the_estimate_of_a_divergence_is_right_on_average():
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    reference = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    exact = (policy * (policy / reference).log()).sum()
    estimates = kl_to_reference(policy.log(), reference.log(), torch.ones(3, dtype=torch.bool))
    assert (policy * estimates).sum().item() == pytest.approx(exact.item()) and (estimates >= 0).all()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Mismatch(), [1, 1, 1, 0]),
        (Mismatch(truncate=2.0), [0.25, 1, 2, 0]),
        (Mismatch(mask_below=0.5, mask_above=2.0), [0, 1, 0, 0]),
        (Mismatch(truncate=5.0, mask_below=0.5), [0, 1, 4, 0]),
        (Mismatch(level="sequence", truncate=2.0), [1, 1, 1, 0]),
        (Mismatch(level="sequence", mask_above=0.99), [0, 0, 0, 0]),
    ],
)
def test_where_trainer_and_engine_differ(rule, expected):
    """Ratios of 1/4, 1, 4 and a masked one have the geometric mean 1."""
    old, engine, _, mask = tensors([0.25, 1.0, 4.0, 9.0], [0] * 4, [True, True, True, False])
    weights = mismatch_weights(old, engine, mask, rule)
    assert weights.tolist() == pytest.approx(expected) and not weights.requires_grad
