"""Converts a model in a GGUF file to Hugging Face layout, and checks that it can be fine-tuned."""

import argparse
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import MODEL
from swelab.configs.kinds.model import GgufModel
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import write_json
from swelab.sft.train.gguf_model import convert, gguf_file
from swelab.sft.train.own_model import check_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="model recipe with `source: gguf`")
    parser.add_argument(
        "--progress", type=Path, required=True, help="folder for unfinished downloads, kept after a kill"
    )
    parser.add_argument("--output", type=Path, required=True, help="new folder, in Hugging Face layout")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write: digest, size and hash of each file"
    )
    args = parser.parse_args()
    recipe = recipes.load_as(GgufModel, MODEL, args.recipe)
    stage = Stage("convert_model", {args.recipe: recipe.plain()})
    with gguf_file(recipe, args.progress) as path:
        facts = convert(path, args.output, recipe.dtype)
        check_model(args.output)
    write_json(args.manifest, facts | {"recipe": recipe.plain()})
    stage.write({args.manifest: "", **{args.output / name: sha for name, sha in facts["files"].items()}})


if __name__ == "__main__":
    run_script(main)
