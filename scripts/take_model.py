"""Makes a model's folder the base of a training: checks the folder, and links to its files."""

import argparse
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import MODEL
from swelab.configs.kinds.model import FolderModel
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import write_json
from swelab.sft.train.own_model import take_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="model recipe with `source: folder`")
    parser.add_argument("--output", type=Path, required=True, help="new folder, in Hugging Face layout")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write: digest, size and hash of each file"
    )
    args = parser.parse_args()
    recipe = recipes.load_as(FolderModel, MODEL, args.recipe)
    stage = Stage("take_model", {args.recipe: recipe.plain()})
    facts = take_folder(Path(recipe.path).expanduser(), args.output)
    write_json(args.manifest, facts | {"recipe": recipe.plain()})
    stage.write({args.manifest: "", **{args.output / name: sha for name, sha in facts["files"].items()}})


if __name__ == "__main__":
    run_script(main)
