"""Batches of invented rollouts for small models, and the weights after training."""

import torch

from swelab.models.token_turn import TokenTurn
from swelab.rl.batch_shares import TrainingSample
from swelab.rl.samples import samples
from swelab.rl.token_weights import token_weights


def conversation(seed, turns=2):
    """Returns a rollout's one sequence of random ids."""
    random = torch.Generator().manual_seed(seed)
    made, prompt = [], torch.randint(0, 256, (5 + seed,), generator=random).tolist()
    for _ in range(turns):
        sampled = torch.randint(0, 256, (3 + seed % 4,), generator=random).tolist()
        made.append(TokenTurn(prompt, sampled, [-5.0] * len(sampled), "stop"))
        prompt = [*prompt, *sampled, *torch.randint(0, 256, (2,), generator=random).tolist()]
    (sample,) = samples(made)
    return sample


def batch(advantages, learner=None, mode="token-mean"):
    """Returns a sample for each advantage. With `learner`, its log-probabilities stand for the engine's."""
    made = [conversation(seed) for seed in range(len(advantages))]
    if learner:
        for sample, logprobs in zip(made, learner.logprobs(made), strict=True):
            sample.logprobs = logprobs
    each = token_weights([sample.trained for sample in made], range(len(made)), mode, 10)
    return [
        TrainingSample(
            sample,
            [advantage * trained for trained in sample.mask],
            [weight * trained for trained in sample.mask],
            f"rollout-{number}",
        )
        for number, (sample, advantage, weight) in enumerate(zip(made, advantages, each, strict=True))
    ]


def weights(learner):
    return {name: value.clone() for name, value in learner.model.state_dict().items()}


def assert_same(one, other, tolerance=0.0):
    for name, value in one.items():
        assert torch.allclose(value, other[name], rtol=0, atol=tolerance), name
