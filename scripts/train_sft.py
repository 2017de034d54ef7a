"""Fine-tunes a base model on a dataset with torchtune or TRL, and checks the result."""

import argparse
import time
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import training_slice
from swelab.configs.kinds import SFT
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.records import write_json, write_jsonl
from swelab.sft.train.run_log import publish_log
from swelab.sft.train.training import fine_tune


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=Path, required=True, help="training rows, JSON Lines")
    parser.add_argument("--base", type=Path, required=True, help="manifest of the base model: <folder>.json")
    parser.add_argument("--recipe", type=Path, required=True, help="SFT recipe: configs/sft/<name>.yaml")
    parser.add_argument("--progress", type=Path, required=True, help="working folder, kept after a kill")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder to write, Hugging Face layout")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write; equal runs write equal bytes"
    )
    parser.add_argument("--preflight", type=Path, help="preflight's report, which has the rows' lengths")
    parser.add_argument("--loss", type=Path, required=True, help="loss curve to write, JSON Lines")
    told = "what each step did, tab-separated values; beside it training.svg and tensorboard/"
    parser.add_argument("--metrics", type=Path, help=told)
    args = parser.parse_args()
    start = time.monotonic()
    recipe = recipes.load(SFT, args.recipe)
    stage = Stage("train_sft", {args.recipe: training_slice(recipe)}, dataset=args.dataset, base=args.base)
    manifest, loss = fine_tune(
        args.base.with_suffix(""), args.dataset, recipe, args.progress, args.checkpoint, args.preflight
    )
    write_jsonl(args.loss, loss)
    if args.metrics:
        publish_log(args.progress, args.recipe.stem, args.metrics)
    seconds = time.monotonic() - start
    write_json(args.manifest.with_name("train.log.json"), {"wall_seconds": round(seconds, 1)})
    write_json(args.manifest, manifest)
    files = {args.checkpoint / name: sha for name, sha in manifest["files"].items()}
    stage.write({args.manifest: "", args.loss: "", **files})


if __name__ == "__main__":
    run_script(main)
