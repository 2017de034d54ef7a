"""Builds the archive of a clean checkout, from which tasks are made."""

import argparse
import hashlib
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import REPO
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import write_bytes
from swelab.tasks.sources import build_repo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="repository recipe")
    parser.add_argument("--cache", type=Path, required=True, help="folder of downloaded source archives")
    parser.add_argument("--output", type=Path, required=True, help="archive to write, a tar")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest to write: hash, size, origin")
    args = parser.parse_args()
    recipe = recipes.load(REPO, args.recipe)
    stage = Stage("build_repo", {args.recipe: recipe.plain()}, rows=getattr(recipe, "path", None))
    data = build_repo(recipe, args.cache)
    write_bytes(args.output, data)
    facts = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    stage.write({args.output: facts["sha256"]}, args.manifest, **facts)


if __name__ == "__main__":
    run_script(main)
