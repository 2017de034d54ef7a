"""Inputs and file patterns that several kinds of artifacts share."""

from collections.abc import Iterable, Mapping
from typing import Any

from swelab.configs import experiment, kinds
from swelab.configs.recipes import recipe_file
from swelab.lineage.graph import Need, Wildcards, base_manifest

SUBSET, POLICY, SFT, RL = map(recipe_file, ("subset", "policy", "sft", "rl"))


def files_at(start: str, manifest: str = ".manifest.json", **ends: str) -> dict[str, str]:
    """File patterns by role. All patterns begin with `start`; the last pattern is the job's manifest."""
    return {role: start + end for role, end in {**ends, "manifest": manifest}.items()}


def setting(at: Wildcards, kind: kinds.RecipeKind[Any], name: str) -> Any:
    """The value of a recipe's key; None if this form of the recipe has no such key."""
    return getattr(at.recipe(kind), name, None)


def files_of(kind: kinds.RecipeKind[Any]) -> Need:
    """The user's files at the `path` in a recipe of this kind."""
    return lambda at: experiment.local_files(setting(at, kind, "path"))


def repos(at: Wildcards) -> list[str]:
    """Archives of the repositories that a subset names."""
    return at.each("repo", setting(at, kinds.SUBSET, "repos") or [])


def images_of(at: Wildcards, subsets: Iterable[str]) -> list[str]:
    """The images of these subsets, or of the whole subsets that they are parts of."""
    return at.each("images", [whole for each in subsets for whole in experiment.in_images(each, at.configs)])


def images(at: Wildcards) -> list[str]:
    """Images of the subset."""
    return images_of(at, [at.names["subset"]])


def base(at: Wildcards) -> list[str]:
    """The manifest of the base model that an SFT recipe starts from."""
    return [base_manifest(at.recipe(kinds.SFT))]


GRADED: Mapping[str, Need] = {"tasks": "lock.kept", "witness": "lock.witness", "images": images}
"""The inputs of a subset's grading, apart from patches."""
