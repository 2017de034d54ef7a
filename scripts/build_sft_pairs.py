"""Writes pairs of a resolved and an unresolved trajectory of a task, and the numbers of excluded ones."""

import argparse
import tempfile
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.experiment import selection_slice
from swelab.configs.kinds import SFT
from swelab.console.terminal import run_script
from swelab.jobs.provenance import Stage
from swelab.lineage.artifact_kinds import texts_of
from swelab.records import folder_for, read_records, sha256_file, write_bytes, write_json, write_jsonl
from swelab.records.attempt_records import Trajectory
from swelab.sft.rows.collect import style_of, template_for
from swelab.sft.rows.dataset import load_verdicts, require_kept
from swelab.sft.rows.lengths import ChatTokenizer, stats, table
from swelab.sft.rows.preferences import build_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=Path, nargs="+", required=True, help="shards, JSON Lines")
    parser.add_argument("--grades", type=Path, nargs="+", required=True, help="shards of grades, JSON Lines")
    parser.add_argument("--base", type=Path, required=True, help="manifest of the base model: <folder>.json")
    parser.add_argument("--recipe", type=Path, required=True, help="SFT recipe: configs/sft/<name>.yaml")
    parser.add_argument("--dataset", type=Path, required=True, help="training pairs to write, JSON Lines")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest to write: counts, drops")
    parser.add_argument("--lengths", type=Path, required=True, help="file to write: tokens of longer sides")
    parser.add_argument("--stats", type=Path, required=True, help="file to write: token lengths of the pairs")
    args = parser.parse_args()
    recipe, base = recipes.load(SFT, args.recipe), args.base.with_suffix("")
    inputs = {"trajectories": args.trajectories, "grades": args.grades, "base": args.base}
    inputs["texts"] = texts_of(recipe)
    stage = Stage("build_sft_pairs", {args.recipe: selection_slice(recipe)}, **inputs)
    style = style_of(recipe)
    template = template_for(recipe.rows, base)
    grades = load_verdicts(args.grades)
    rows = (row for _, row in read_records(args.trajectories, Trajectory))
    with folder_for(args.dataset.parent) as folder, tempfile.TemporaryFile(dir=folder) as spool:
        pairs = build_pairs(rows, grades, recipe, ChatTokenizer(base), spool, style, template)
        require_kept(facts := pairs.facts(), args.trajectories)
        write_jsonl(args.dataset, pairs.rows(spool))
    names = [name for name, _, _ in pairs.chosen]
    write_bytes(args.lengths, table([(name, each, "kept") for name, each in zip(names, pairs.lengths())]))
    told = stats(args.dataset, pairs.lengths(), recipe.selection.max_tokens, "drop")
    write_json(args.stats, told | {"sha256": sha256_file(args.dataset)})
    facts["recipe"] = selection_slice(recipe)
    stage.write([args.dataset, args.lengths, args.stats], args.manifest, **facts)


if __name__ == "__main__":
    run_script(main)
