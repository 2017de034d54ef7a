"""Fine-tunes on Modal's GPUs like train_sft. --config takes a torchtune file with paths on Modal."""

import argparse
import os
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.records import InputError
from swelab.sft.train.on_modal import Modal, find_modal, train_on_modal, tune_on_modal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=Path, help="training rows, JSON Lines")
    parser.add_argument("--base", type=Path, help="manifest of the base model: <folder>.json")
    parser.add_argument("--recipe", type=Path, help="SFT recipe: configs/sft/<name>.yaml")
    parser.add_argument("--config", type=Path, help="torchtune configuration, instead of those three")
    parser.add_argument("--volume", default="swelab", help="name of the volume at Modal")
    parser.add_argument("--gpus", type=at_least(1), help="number of GPUs; by default the recipe's, or 2")
    parser.add_argument("--modal", default="", help="path of Modal's client")
    parser.add_argument("--log", type=Path, default=Path("modal.log"), help="file for the client's output")
    parser.add_argument("--output", type=Path, help="new folder: checkpoint/, checkpoint.json, loss.jsonl")
    args = parser.parse_args()
    if args.config:
        gpus = args.gpus or int(os.environ.get("N_GPUS") or 2)
        tune_on_modal(Modal(find_modal(args.modal), args.volume, gpus, args.log), args.config)
        return
    if not (args.dataset and args.base and args.recipe and args.output):
        raise InputError("not all of --dataset --base --recipe --output", expected="them, or --config")
    recipe = recipes.load(SFT, args.recipe)
    gpus = args.gpus or recipe.job.gpus or 1
    modal = Modal(find_modal(args.modal), args.volume, gpus, args.log)
    train_on_modal(modal, args.recipe.stem, args.dataset, args.base, args.recipe, recipe, args.output)


if __name__ == "__main__":
    run_script(main)
