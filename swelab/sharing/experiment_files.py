"""Finds the files behind a verified score, and says which of its subsets are hidden."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from swelab.configs import kinds
from swelab.configs.experiment import parts_of
from swelab.configs.kinds.experiment import Experiment
from swelab.jobs.provenance import path_here
from swelab.lineage import KINDS, Wildcards, behind, find
from swelab.records import InputError, read_record
from swelab.records.score_records import VerifiedScore
from swelab.scores.recompute import verify
from swelab.scores.trail import Trail, follow

ANSWERS = ("tasks.tasks", "lock.kept", "lock.witness", "trajectories.trajectories", "predictions.predictions")
"""Kinds of files (as kind.role) that contain the answers of a hidden set, or patches that may equal an
answer."""
ENDS = (("verified_score", "score"), ("page", "page"))
"""The final artifacts of an experiment, as (kind, role)."""


@dataclass(frozen=True)
class FinishedExperiment:
    """An experiment with a verified score. Paths are relative to the clone, which is the working folder."""

    score: VerifiedScore
    name: str
    trail: Trail

    @property
    def recipe(self) -> Experiment:
        """The recipe of the experiment."""
        return Wildcards({"experiment": self.name}).recipe(kinds.EXPERIMENT)

    @cached_property
    def kinds(self) -> list[tuple[str, str, dict[str, str]]]:
        """(path, "kind.role", wildcard values) of each existing file behind the score, sorted by path."""
        return list(_kinds_of(self.trail.files))

    @cached_property
    def waited_for(self) -> set[str]:
        """Files under results/ that jobs behind the score wait for but do not read, such as checks."""
        ends = [KINDS[kind].files[role].format(experiment=self.name) for kind, role in ENDS]
        found = {file for path in ends for file in behind(path) if file.startswith("results/")}
        return {file for file in found - self.trail.files.keys() if Path(file).exists()}

    def paths(self, role: str, **names: str) -> list[str]:
        """Returns the files of a "kind.role" that have these wildcard values."""
        return [path for path, each, of in self.kinds if each == role and names.items() <= of.items()]

    @property
    def archive(self) -> str:
        """The file name of the experiment's archive."""
        return f"swelab-{self.name}.tar.gz"

    @property
    def shown(self) -> str:
        """The policy that is published: the second policy of the experiment's comparison."""
        return self.recipe.compare[1]

    @property
    def subsets(self) -> list[str]:
        """All subsets whose tasks are behind the score. Scored subsets come first."""
        there = [names["subset"] for _, role, names in self.kinds if role == "lock.kept"]
        return list(dict.fromkeys([each for each in self.recipe.benchmarks if each in there] + there))

    def runs(self, scored: bool) -> Iterator[tuple[str, str]]:
        """Yields (policy, subset) of the rollouts on scored or on unscored subsets. Hidden subsets are
        excluded."""
        found = [
            (names["policy"], names["subset"])
            for _, role, names in self.kinds
            if role == "trajectories.trajectories"
        ]
        for policy, subset in dict.fromkeys(found):
            if (subset in self.recipe.benchmarks) == scored and not self.is_hidden(subset):
                yield policy, subset

    def is_hidden(self, subset: str) -> bool:
        """Returns whether a subset is scored and has hidden tests or answers. Such answers must not be
        published."""
        if subset not in self.recipe.benchmarks:
            return False
        parts = [Wildcards({"subset": each}).recipe(kinds.SUBSET) for each in parts_of(subset)]
        return any(
            getattr(part, "tests", "") == "hidden" or getattr(part, "answers", "") == "private"
            for part in parts
        )

    @property
    def hidden(self) -> list[str]:
        """All hidden subsets."""
        return [each for each in self.subsets if self.is_hidden(each)]

    def withheld(self) -> set[str]:
        """Returns the files that contain answers of hidden subsets, and the user's files and folders behind
        such subsets."""
        hidden = self.hidden
        given = [getattr(Wildcards({"subset": each}).recipe(kinds.SUBSET), "path", None) for each in hidden]
        brought = {path_here(each) for each in given if each} & self.trail.files.keys()
        rows = {path.as_posix() for each in brought for path in (Path(each), *Path(each).rglob("*"))}
        known = [*self.kinds, *_kinds_of(self.waited_for)]
        made = {path for path, role, names in known if role in ANSWERS and names["subset"] in hidden}
        return made | rows


def _kinds_of(paths: Iterable[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    for path in sorted(paths):
        kind, names = find(path) or ("", {})
        if kind and Path(path).exists():
            role = next((role for role, each in KINDS[kind].files.items() if _is(each, names, path)), "")
            yield path, f"{kind}.{role}", names


def _is(pattern: str, names: dict[str, str], path: str) -> bool:
    return pattern.format_map({"sample": "", **names}) == path


def read_finished(path: Path) -> FinishedExperiment:
    """Reads a verified score and finds the files behind it. Sets the working folder to the score's clone.

    Raises InputError if the file is not a verified score, or if the score no longer passes verification.
    Raises InputError if a file behind the score is outside the clone.
    """
    score = read_record(path, VerifiedScore)
    found, _ = verify(path)
    if found:
        many = f" and {len(found) - 1} more" if len(found) > 1 else ""
        what = f"does not hold: {found[0].path}: {found[0].what}{many}"
        raise InputError(what, path, "a score of which scripts.verify finds nothing")
    inputs = score.manifest["inputs"].values()
    trail = follow(name for paths in inputs for name in paths)
    if outside := [each for each in trail.files if os.path.isabs(each)]:
        what = f"is made from {outside[0]}, which is not in this clone"
        raise InputError(what, path, "files in the clone, which recipes name by a relative path")
    return FinishedExperiment(score, score.manifest["experiment"], trail)
