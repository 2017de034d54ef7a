"""Finds all files from which a score was made (the trail).

It follows each manifest to the inputs that the manifest names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from swelab.jobs.provenance import Stage, manifest_path, path_here, sha256_of
from swelab.lineage import KINDS, find
from swelab.records import InputError, Record, read_record
from swelab.records.score_records import Manifest


@dataclass
class Trail:
    """The stages that made some files, ordered from these files back to the first inputs. Paths are relative
    to the working folder."""

    stages: dict[str, Manifest] = field(default_factory=dict)
    """Maps the path of a manifest to the manifest."""
    makers: dict[str, str] = field(default_factory=dict)
    """Maps a file to the path of the manifest of the stage that wrote the file."""
    files: dict[str, None] = field(default_factory=dict)
    """Every file and folder that a stage on the trail read or wrote, in the order found."""
    faults: dict[str, str] = field(default_factory=dict)
    """Maps the path of a manifest to its fault. Missing manifests are included."""

    def inputs(self, manifest: str) -> Iterator[tuple[str, str]]:
        """Yields (path, hash) of each file that a stage read."""
        for paths in self.stages[manifest].inputs.values():
            yield from paths.items()


def follow(starts: Iterable[str]) -> Trail:
    """Returns the trail of files.

    Each file leads to its manifest, and each manifest to the manifests of its inputs.
    """
    trail, queue = Trail(), list(starts)
    for path in queue:
        if path in trail.files and path not in trail.makers:
            continue
        trail.files[path] = None
        manifest = manifest_of(path)
        if manifest in trail.stages or manifest in trail.faults or not Path(manifest).is_file():
            continue
        try:
            trail.stages[manifest] = read_manifest(manifest)
        except InputError as error:
            trail.faults[manifest] = str(error)
            continue
        outputs = trail.stages[manifest].outputs
        trail.makers |= dict.fromkeys(outputs, manifest)
        trail.files |= dict.fromkeys(outputs)
        queue += [name for name, _ in trail.inputs(manifest)]
    for path in trail.files:
        if path not in trail.makers and (name := manifest_of(path)):
            trail.faults.setdefault(name, f"{name}: no manifest says how {path} was made")
    return trail


def manifest_of(path: str) -> str:
    """Returns the path of the manifest of a file under results/, or "" for a file without a manifest.
    Recipes and files of the user have no manifest."""
    kind, names = find(path) or ("", {})
    if kind and KINDS[kind].manifest:
        return KINDS[kind].manifest.format_map(names)
    return manifest_path(path).as_posix() if path.startswith("results/") else ""


def read_manifest(path: str | Path) -> Manifest:
    """Reads a stage's manifest. Raises InputError if the file is not a manifest of this version."""
    return read_record(path, Manifest)


def trail_record(stage: Stage, scores: Iterable[Path], also: Iterable[Path], experiment: str) -> Record:
    """Returns the record of a verified score: its manifest, and all manifests behind it.

    `recipes` are the versions that the stages recorded, not the current files. `files` have their current
    hashes. Raises InputError if two stages used different versions of a recipe.
    """
    trail = follow(map(path_here, [*scores, *also]))
    there = sorted(path for path in trail.files if Path(path).exists())
    own = Manifest.of(stage.record())
    used = {**trail.stages, "the score itself": own}
    return {
        **own,
        "experiment": experiment,
        "recipes": merged_recipes(used),
        "used": own.recipes,
        "files": [{"path": path, "sha256": sha256_of(path), "bytes": size_of(Path(path))} for path in there],
        "missing": sorted({*(trail.files.keys() - set(there)), *trail.faults}),
        "stages": {name: without(found, own, "packages") for name, found in trail.stages.items()},
    }


def without(record: Record, other: Record, key: str) -> Record:
    """Returns `record` without the key `key` if `other` has the same value for it."""
    return {name: value for name, value in record.items() if name != key or value != other[key]}


def size_of(path: Path) -> int:
    """Returns the size in bytes of a file, or of all files below a folder."""
    below = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in below if each.is_file())


def merged_recipes(stages: dict[str, Manifest]) -> dict[str, Record]:
    """Returns the recipes that stages used, by path below configs/.

    Each recipe is merged from the parts that stages used. Raises InputError if two stages used different
    values of a setting.
    """
    merged: dict[str, Record] = {}
    first: dict[tuple[str, str], str] = {}
    for name, stage in stages.items():
        for path, recipe in stage.recipes.items():
            whole = merged.setdefault(path.removeprefix("configs/"), {})
            for key, value in recipe.used.items():
                other = first.setdefault((path, key), name)
                if whole.setdefault(key, value) != value:
                    what = f"{key} had one value for {other} and another for {name}"
                    raise InputError(what, path, "one recipe for a whole run: run the same command again")
    return dict(sorted(merged.items()))
