"""Checks a training before it occupies a GPU, and prints one line for each fault."""

import argparse
from pathlib import Path

from swelab.checks.finding import ok, require
from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.console.terminal import run_script
from swelab.lineage import Wildcards, base_manifest
from swelab.machine import gib
from swelab.records import write_json
from swelab.sft.train.preflight import Training, a_rank, disk_bytes, findings, longest, memory
from swelab.sft.train.row_lengths import lengths_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="SFT recipe: configs/sft/<name>.yaml")
    parser.add_argument("--base", type=Path, help="manifest of the base model: <folder>.json")
    parser.add_argument("--dataset", type=Path, help="training rows, JSON Lines")
    parser.add_argument("--stats", type=Path, help="length statistics of the rows")
    parser.add_argument("--progress", type=Path, help="working folder of the training")
    parser.add_argument("--report", type=Path, help="findings to write, JSON")
    args = parser.parse_args()
    recipe, name = recipes.load(SFT, args.recipe), args.recipe.stem
    paths = Wildcards({"sft": name})
    base = args.base or Path(base_manifest(recipe))
    training = Training(
        base.with_suffix(""),
        args.dataset or Path(paths.path("dataset")),
        args.stats or Path(paths.path("dataset.stats")),
        recipe,
        args.progress or Path("results/progress/train_sft") / name,
    )
    if needs := memory(training):
        print(f"memory: about {a_rank(needs)} at {longest(training)} tokens")
        print(f"disk: {gib(disk_bytes(training))}")
    require(findings(training), f"{name} can be trained")
    lengths = lengths_record(training.base, training.dataset, recipe.train)
    print(ok(f"{name} can be trained"))
    if args.report:
        estimate = {key: round(value) for key, value in vars(needs).items()} if needs else {}
        facts = {"recipe": name, "bytes_a_rank": estimate, "disk_bytes": disk_bytes(training)}
        write_json(args.report, {**facts, "lengths": lengths})


if __name__ == "__main__":
    run_script(main)
