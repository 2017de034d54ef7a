"""Downloads a published model at a pinned commit, and checks every file. Can be resumed."""

import argparse
import os
import shutil
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import MODEL
from swelab.configs.kinds.model import HubModel
from swelab.console.terminal import run_script
from swelab.files.hf_hub import HubRepository
from swelab.files.weights import check_weights, weight_digest
from swelab.jobs.provenance import Stage
from swelab.records import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="model recipe")
    parser.add_argument(
        "--progress", type=Path, required=True, help="folder for unfinished downloads, kept after a kill"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write, in Hugging Face layout")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write: digest, size and hash of each file"
    )
    args = parser.parse_args()
    recipe = recipes.load_as(HubModel, MODEL, args.recipe)
    repository = HubRepository(recipe.repository, recipe.revision)
    stage = Stage("fetch_model", {args.recipe: recipe.plain()})
    folder = args.progress / recipe.revision
    facts = repository.fetch(folder, recipe.files, recipe.sha256)
    check_weights(folder)
    files = {name: fact["sha256"] for name, fact in facts.items()}
    sizes = {name: fact["size"] for name, fact in facts.items()}
    shutil.rmtree(args.output, ignore_errors=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    digest = weight_digest(folder, files)
    os.replace(folder, args.output)
    write_json(args.manifest, {"digest": digest, "files": files, "bytes": sizes, "recipe": recipe.plain()})
    stage.write({args.manifest: "", **{args.output / name: sha for name, sha in files.items()}})


if __name__ == "__main__":
    run_script(main)
