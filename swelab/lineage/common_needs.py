"""Inputs and file patterns that several kinds of artifacts share."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from swelab.configs import experiment, kinds
from swelab.configs.recipes import recipe_file
from swelab.lineage.graph import Need, Wildcards, base_manifest
from swelab.records import InputError

SUBSET, POLICY, SFT, RL = map(recipe_file, ("subset", "policy", "sft", "rl"))


def files_at(start: str, manifest: str = ".manifest.json", **ends: str) -> dict[str, str]:
    """Maps each role to a file pattern that begins with `start`. The last pattern is the job's manifest."""
    return {role: start + end for role, end in {**ends, "manifest": manifest}.items()}


def setting(at: Wildcards, kind: kinds.RecipeKind[Any], name: str) -> Any:
    """Returns the value of a recipe's key, or None if the recipe's model has no such key."""
    return getattr(at.recipe(kind), name, None)


def files_of(kind: kinds.RecipeKind[Any]) -> Need:
    """Returns an input: the user's files at the `path` of a recipe of this kind."""
    return lambda at: experiment.local_files(setting(at, kind, "path"))


def repos(at: Wildcards) -> list[str]:
    """Returns the paths of the repository archives that a subset needs."""
    return at.each("repo", setting(at, kinds.SUBSET, "repos") or [])


def images_of(at: Wildcards, subsets: Iterable[str]) -> list[str]:
    """Returns the paths of the image records of these subsets. A subset that is part of a larger subset has
    the image record of the larger subset."""
    return at.each("images", [whole for each in subsets for whole in experiment.in_images(each, at.configs)])


def images(at: Wildcards) -> list[str]:
    """Returns the path of the subset's image record."""
    return images_of(at, [at.names["subset"]])


def texts_of(sft: kinds.Sft) -> list[str]:
    """Returns the user's files whose texts become part of an SFT recipe's rows: the system prompt, and the
    tool definitions. Raises InputError if a file does not exist."""
    rows = sft.rows
    texts = {} if rows.style == "text" else {"rows.system": rows.system, "rows.tools": rows.tools}
    for key, path in texts.items():
        if path and not os.path.isfile(path):
            raise InputError(f"no such file: {path}", key, "a file, as an SFT recipe names it")
    return [path for path in texts.values() if path]


def base(at: Wildcards) -> list[str]:
    """Returns the path of the manifest of the weights from which an SFT recipe starts."""
    return [base_manifest(at.recipe(kinds.SFT))]


GRADED: Mapping[str, Need] = {"tasks": "lock.kept", "witness": "lock.witness", "images": images}
"""The inputs of grading a subset, without the patches."""
