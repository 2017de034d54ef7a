"""Manifests: what an output was made by, from and with."""

import platform
import subprocess
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from swelab.records import Record, sha256_file

PACKAGES = (
    "accelerate",
    "datasets",
    "litellm",
    "mini-swe-agent",
    "numpy",
    "scipy",
    "sglang",
    "snakemake",
    "swebench",
    "tokenizers",
    "torch",
    "torchtune",
    "transformers",
    "trl",
)
STARTED = time.time()
ROOT = Path(__file__).resolve().parent.parent


def code_identity(root: Path = ROOT) -> Record:
    """{"commit": hash or "", "dirty": bool}: which code ran; dirty when the tree differs from the commit."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "-uno"))}
    except OSError:
        return {"commit": "", "dirty": False}


def packages() -> dict[str, str]:
    """Versions of the packages that results depend on, and of Python."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def manifest(
    rule: str, inputs: Iterable[str | Path], recipe: Record | None = None, **facts: object
) -> Record:
    """A stage's manifest: rule, code, input hashes, recipe, package versions, wall seconds, and `facts`."""
    return {
        "rule": rule,
        "code": code_identity(),
        "inputs": {str(path): sha256_file(path) for path in inputs if Path(path).is_file()},
        "recipe": recipe or {},
        "packages": packages(),
        "wall_seconds": round(time.time() - STARTED, 1),
        **facts,
    }
