"""Recipes of reinforcement learning for tests: what each needs, and what a test changes of a section."""

from swelab.configs import recipes
from swelab.configs.kinds import RL

NEEDED = {"start": "model:toy", "subset": "some", "scaffold": "demo"}


def rl_recipe(**sections):
    """sections: rollouts, method, train, judge, each with the keys that differ from the defaults."""
    train = {"steps": 1, "device": "cpu", **sections.pop("train", {})}
    return recipes.complete(RL, {**NEEDED, **sections, "train": train}, "test")
