"""Recipes of reinforcement learning for tests: required keys, and the keys that a test changes."""

from swelab.configs import recipes
from swelab.configs.kinds import RL

NEEDED = {"start": "model:toy", "subset": "some", "scaffold": "demo"}


def rl_recipe(**sections):
    """Returns a recipe.

    sections: rollouts, method, train, judge, each with keys that differ from the defaults.
    """
    train = {"steps": 1, "device": "cpu", **sections.pop("train", {})}
    return recipes.complete(RL, {**NEEDED, **sections, "train": train}, "test")
