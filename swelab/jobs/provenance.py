"""Manifests, which record the code, inputs, recipes and packages that made an output.

Every stage writes a manifest next to its first output. The manifest has the hash of each file that the stage
read, of each recipe as it was used, and of each file that the stage wrote. So a score can be traced back to
its first inputs, file by file.
"""

import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from swelab.records import InputError, Record, digest, sha256_file, write_json

PACKAGES = tuple(
    """
accelerate datasets litellm mini-swe-agent numpy scipy sglang snakemake swebench tokenizers torch torchtune
transformers trl
""".split()
)
STARTED = time.time()
ROOT = Path(__file__).resolve().parents[2]
DATA = (".json", ".jsonl", ".tar")
"""Suffixes of file names that the name of a manifest leaves out."""


def code_identity(root: Path = ROOT) -> Record:
    """Returns {"commit", "dirty"}: the commit of the running code, and whether the tree differs from it.

    If git cannot tell (no git, no repository), commit is "" and dirty is None (unknown). A clone that another
    user owns is read, too, because its code is what runs here.
    """

    def git(*arguments: str) -> str | None:
        trusted = ["git", "-c", f"safe.directory={root}", "--no-optional-locks", "-C", str(root)]
        try:
            done = subprocess.run([*trusted, *arguments], capture_output=True, text=True, errors="replace")
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "-uno")
    if not commit or changes is None:
        return {"commit": "", "dirty": None}
    return {"commit": commit, "dirty": bool(changes)}


def packages() -> dict[str, str]:
    """Returns the versions of Python and of the packages that results depend on."""
    versions = {name: package_version(name) for name in PACKAGES}
    return {"python": platform.python_version()} | {name: each for name, each in versions.items() if each}


def package_version(package: str) -> str:
    """Returns the version of a package, or "" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


PLACE = {
    "backend": "SWELAB_BACKEND",
    "executor": "SWELAB_EXECUTOR",
    "workers": "SWELAB_WORKERS",
    "partition": "SLURM_JOB_PARTITION",
}
"""Maps the name of each fact about the place of a run to its environment variable."""


def run_place() -> dict[str, str]:
    """Returns facts about the place where this process runs. Unknown facts are left out.

    None of these facts triggers a rerun.
    """
    return {name: os.environ[variable] for name, variable in PLACE.items() if os.environ.get(variable)}


Outputs = Mapping[str | Path, str] | Iterable[str | Path]
Paths = str | Path | Iterable[str | Path] | None


class Stage:
    """A running stage.

    Create it before the stage reads anything, so that later edits do not change its manifest. recipes: maps
    the path of each recipe to the part that the stage uses. inputs: the files and folders of each role.
    Raises InputError if an input is missing.
    """

    def __init__(self, rule: str, recipes: Mapping[str | Path, Record] | None = None, **inputs: Paths):
        self.rule = rule
        self.recipes = {
            path_here(path): {"sha256": digest(used), "used": used}
            for path, used in (recipes or {}).items()
            if used
        }
        self.inputs = {
            role: {path: sha256_of(path) for path in map(path_here, as_list(paths))}
            for role, paths in inputs.items()
            if as_list(paths)
        }

    def record(self, outputs: Outputs = (), **facts: object) -> Record:
        """Returns the manifest (`stage_records.Manifest`) with additional `facts`.

        Paths in `facts` become text. outputs: files and folders that were written, with their hashes if
        known. A fact `place` is merged with the known facts about the place of the run.
        """
        place = {**run_place(), **facts.pop("place", {})}  # type: ignore[dict-item]
        hashes = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs, "")
        return {
            "rule": self.rule,
            "code": code_identity(),
            "inputs": self.inputs,
            "recipes": self.recipes,
            "outputs": {path_here(path): sha or sha256_of(path) for path, sha in hashes.items()},
            "packages": packages(),
            "wall_seconds": round(time.time() - STARTED, 1),
            "place": place,
            **{name: path_here(fact) if isinstance(fact, Path) else fact for name, fact in facts.items()},
        }

    def write(self, outputs: Outputs, manifest: Path | None = None, **facts: object) -> None:
        """Writes the manifest, by default next to the first output."""
        outputs = outputs if isinstance(outputs, Mapping) else list(outputs)
        write_json(manifest or manifest_path(next(iter(outputs))), self.record(outputs, **facts))


def as_list(paths: Paths) -> list[str | Path]:
    """Returns the paths of one role as a list."""
    return [paths] if isinstance(paths, str | Path) else list(paths or [])


def manifest_path(path: str | Path) -> Path:
    """Returns the path of a file's manifest: `<name>.manifest.json` in the same folder."""
    path = Path(path)
    return path.with_name(f"{path.stem if path.suffix in DATA else path.name}.manifest.json")


def path_here(path: str | Path) -> str:
    """Returns `path` relative to the working folder if `path` is below it, otherwise absolute.

    The result has slashes. A `~` at the start of `path` is the user's home.
    """
    absolute, here = Path(os.path.abspath(os.path.expanduser(path))), Path.cwd()
    return (absolute.relative_to(here) if absolute.is_relative_to(here) else absolute).as_posix()


def sha256_of(path: str | Path) -> str:
    """Returns the SHA-256 (hex) of a file, or of the names and hashes of all files below a folder.

    Raises InputError.
    """
    path = Path(path)
    if not path.is_dir():
        try:
            return sha256_file(path)
        except FileNotFoundError:
            raise InputError("no such file", path) from None
    below = sorted(each for each in path.rglob("*") if each.is_file())
    return digest({each.relative_to(path).as_posix(): sha256_file(each) for each in below})
