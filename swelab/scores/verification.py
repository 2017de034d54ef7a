"""Checks that the files behind a score match their manifests: hashes, recipes, and order of making.

A finding has a kind. edited: the file is not what its stage wrote. missing: the file does not exist. older:
the file was made from a version of an input that differs from the present version. recipe: the recipe of the
file has changed since. number: a value differs when it is recomputed from its rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swelab.configs import recipes
from swelab.configs.experiment import learning_slice, scaffold_slice
from swelab.configs.kinds import RL, SCAFFOLD
from swelab.jobs.provenance import sha256_of
from swelab.lineage import find
from swelab.records import InputError, Record, read_json, shorten
from swelab.records.score_records import Manifest
from swelab.scores.trail import Trail, manifest_of, read_manifest

KINDS = {folder: kind for kind, folder in recipes.FOLDERS.items()}
NOTHING = "not there"
WITHHELD = "results/withheld.json"
"""{path: hash} of files that an archive omits because they contain answers of a hidden set."""


@dataclass(frozen=True)
class Finding:
    """One fault: its kind, the file, and a description."""

    kind: str
    path: str
    what: str


@dataclass
class Verification:
    """State of one verification: current hashes of files, and the number of recomputed verdicts."""

    digests: dict[str, str] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)
    """Maps the path of a withheld file to its hash. Withheld files are not present."""
    judged: int = 0
    unjudged: int = 0
    """judged: number of verdicts recomputed from stored test runs.

    unjudged: number of verdicts without a stored run.
    """

    @classmethod
    def here(cls) -> "Verification":
        """Returns a verification of the working folder, with the list of withheld files.
        Raises InputError."""
        told = read_json(WITHHELD) if Path(WITHHELD).is_file() else {}
        if not isinstance(told, dict) or not all(isinstance(each, str) for each in told.values()):
            raise InputError("is no object of hashes", WITHHELD, "the file as its archive has it")
        return cls(withheld={path: sha for path, sha in told.items() if not Path(path).exists()})

    def hash_of(self, path: str) -> str:
        """Returns the SHA-256 (hex) of a file or folder, or "" if it does not exist.
        For a withheld file, returns the hash in the list."""
        if path in self.withheld:
            return self.withheld[path]
        if path not in self.digests:
            self.digests[path] = sha256_of(path) if Path(path).exists() else ""
        return self.digests[path]


def check_files(
    trail: Trail, verification: Verification, done: Callable[[], object] = lambda: None
) -> Iterator[Finding]:
    """Yields the files that were edited, are missing, or are older than their inputs. Calls `done` after each
    stage."""
    for name, fault in trail.faults.items():
        yield Finding("missing", name, fault.removeprefix(f"{name}: "))
    for manifest, stage in trail.stages.items():
        for path, written in stage.outputs.items():
            if not (now := verification.hash_of(path)):
                yield Finding("missing", path, f"{stage.rule} wrote it ({manifest}){remedy(path)}")
            elif now != written:
                yield Finding("edited", path, f"not what {stage.rule} wrote ({manifest})")
        for path, read in trail.inputs(manifest):
            if finding := _of_input(trail, manifest, path, read, verification):
                yield finding
        done()


def remedy(path: str) -> str:
    """Returns a text with the command that makes a missing file again, or "" if no rule makes the file."""
    if find(path):
        return f"; `snakemake {path}` makes it again"
    folder = Path(path).parent.as_posix()
    return f"; `snakemake --force {folder}` makes it again" if find(folder) else ""


def _of_input(
    trail: Trail, manifest: str, path: str, read: str, verification: Verification
) -> Finding | None:
    """Returns the fault of a file that a stage read, or None. Faults that are found through the file's own
    manifest are not repeated."""
    first = next(iter(trail.stages[manifest].outputs), manifest)
    maker = trail.makers.get(path)
    if maker is None:
        if not (now := verification.hash_of(path)):
            return Finding("missing", path, f"{first} was made from it")
        return None if now == read else Finding("edited", path, f"changed since {first} was made from it")
    if trail.stages[maker].outputs[path] == read:
        return None
    if verification.hash_of(path) == read:
        return Finding("edited", path, f"{first} was made from the edited file")
    return Finding("older", first, f"made from another version of {path} than is there now")


def check_recipes(stages: dict[str, Manifest]) -> Iterator[Finding]:
    """Yields the outputs whose recipe has changed since they were made."""
    for name, stage in stages.items():
        first = next(iter(stage.outputs), name)
        for path, recipe in stage.recipes.items():
            try:
                now = recipe_now(path)
            except InputError as error:
                yield Finding("recipe", first, str(error))
                continue
            for key, used in recipe.used.items():
                if told := difference(used, now.get(key, NOTHING), key):
                    yield Finding("recipe", first, f"{path} is another now: {told}")
                    break


def other_recipe(path: str) -> str:
    """Describes how a file's recipe changed since the file was made.
    Returns "" if the recipe did not change, or if there is no manifest."""
    try:
        name = manifest_of(path)
        found = check_recipes({name: read_manifest(name)}) if name else iter(())
    except InputError:
        return ""
    return next((finding.what for finding in found), "")


def recipe_now(path: str) -> Record:
    """Returns the present content of a recipe's file. Raises InputError."""
    kind = KINDS.get(Path(path).parent.name)
    if kind is None:
        raise InputError("not in a folder of recipes", path, f"one of {', '.join(KINDS)}")
    if kind == "rl":
        rl = recipes.load(RL, path)
        return {**rl.plain(), **learning_slice(rl)}
    return scaffold_slice(recipes.load(SCAFFOLD, path)) if kind == "scaffold" else recipes.load(kind, path)


def difference(before: Any, after: Any, where: str = "") -> str:
    """Returns the first difference of two values as `field was X, is Y now`, or "" if they are equal."""
    if before == after:
        return ""
    pairs: Any = ()
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys([*before, *after])
        pairs = ((f".{key}", before.get(key, NOTHING), after.get(key, NOTHING)) for key in keys)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = ((f"[{number}]", *both) for number, both in enumerate(zip(before, after)))
    told = (difference(one, other, f"{where}{name}".strip(".")) for name, one, other in pairs)
    plain = f"{where} was {shorten(repr(before), 60)}, is {shorten(repr(after), 60)} now"
    return next(filter(None, told), plain)


def summary(trail: Trail, verification: Verification, findings: list[Finding]) -> str:
    """Returns a short table of the checks, and the verdict."""
    commits = {stage.code.commit[:12] or "unknown" for stage in trail.stages.values()}
    changed = sum(stage.code.dirty is not False for stage in trail.stages.values())
    paths = {path for stage in trail.stages.values() for path in stage.recipes}
    rows = {
        "files": f"{len(verification.digests):,} read, each once",
        "stages": f"{len(trail.stages):,}, of commit {', '.join(sorted(commits))}"
        + (f"; {changed:,} of them from code that is not that of a commit" if changed else ""),
        "recipes": f"{len(paths):,}",
        **(
            {"withheld": f"{len(verification.withheld):,} files, not looked at ({WITHHELD})"}
            if verification.withheld
            else {}
        ),
        **({"verdicts": _verdicts(verification)} if verification.judged or verification.unjudged else {}),
        "result": f"{len(findings):,} finding{'s' * (len(findings) > 1)}" if findings else "all hold",
    }
    return "\n".join(f"{name:<8} {told}" for name, told in rows.items())


def _verdicts(verification: Verification) -> str:
    judged = f"{verification.judged:,} judged again from kept runs of tests"
    if not verification.unjudged:
        return judged
    return f"{judged}; {verification.unjudged:,} taken as their rows have them: their kept runs are not here"
