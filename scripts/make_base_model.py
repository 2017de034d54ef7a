"""Pre-trains the demo's base model on generated text and writes it with its tokenizer."""

import argparse
import os
import shutil
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import MODEL
from swelab.configs.kinds.model import DrillModel
from swelab.console.terminal import run_script
from swelab.files.weights import identity
from swelab.jobs.provenance import Stage, packages
from swelab.records import sha256_file, write_json, write_jsonl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="model recipe")
    parser.add_argument("--repo", type=Path, required=True, help="archive of the recipe's repository")
    parser.add_argument("--output", type=Path, required=True, help="folder to write, in Hugging Face layout")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest to write: digest, origin")
    parser.add_argument("--loss", type=Path, required=True, help="file to write: loss by step, JSON Lines")
    args = parser.parse_args()
    recipe = recipes.load_as(DrillModel, MODEL, args.recipe)
    stage = Stage("make_base_model", {args.recipe: recipe.plain()}, repo=args.repo)
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # before torch loads; see the torchtune bridge
    from swelab.sft.demo_model.base_corpus import World
    from swelab.sft.demo_model.base_model import make_base_model

    asked = (args.repo.read_bytes(), recipe.repo, recipe.heldout_share)
    world = World(*asked)
    if recipe.actions == "tools":
        from swelab.sft.demo_model.tool_corpus import ToolWorld

        world = ToolWorld(*asked)
    shutil.rmtree(args.output, ignore_errors=True)
    facts, loss = make_base_model(recipe, world, args.output)
    write_jsonl(args.loss, loss)
    made_from = {"recipe": recipe.plain(), "repo_sha256": sha256_file(args.repo), "packages": packages()}
    made = identity(args.output)
    write_json(args.manifest, {**made, **made_from, **facts})
    files = {args.output / name: sha for name, sha in made["files"].items()}
    stage.write({args.manifest: "", args.loss: "", **files})


if __name__ == "__main__":
    run_script(main)
