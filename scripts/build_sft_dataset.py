"""Writes resolved trajectories as SFT conversations, with token lengths and the numbers of dropped ones."""

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
from swelab.sft.rows.dataset import build_dataset, load_verdicts, require_kept
from swelab.sft.rows.lengths import ChatTokenizer, stats, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=Path, nargs="+", required=True, help="shards, JSON Lines")
    parser.add_argument("--grades", type=Path, nargs="+", required=True, help="shards of grades, JSON Lines")
    parser.add_argument("--base", type=Path, required=True, help="manifest of the base model: <folder>.json")
    parser.add_argument("--recipe", type=Path, required=True, help="SFT recipe: configs/sft/<name>.yaml")
    parser.add_argument("--dataset", type=Path, required=True, help="training rows to write, JSON Lines")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest to write: counts, drops")
    parser.add_argument("--lengths", type=Path, required=True, help="file to write: conversations' tokens")
    parser.add_argument("--stats", type=Path, help="file to write: token lengths (dataset.stats.json)")
    args = parser.parse_args()
    recipe = recipes.load(SFT, args.recipe)
    inputs = {"trajectories": args.trajectories, "grades": args.grades, "base": args.base}
    inputs["texts"] = texts_of(recipe)
    stage = Stage("build_sft_dataset", {args.recipe: selection_slice(recipe)}, **inputs)
    selection, style = recipe.selection, style_of(recipe)
    tokenizer = ChatTokenizer(args.base.with_suffix(""))
    grades = load_verdicts(args.grades)
    rows = (row for _, row in read_records(args.trajectories, Trajectory))
    with folder_for(args.dataset.parent) as folder, tempfile.TemporaryFile(dir=folder) as spool:
        base = args.base.with_suffix("")
        template = template_for(recipe.rows, base)
        dataset = build_dataset(
            rows, grades, selection, tokenizer, spool, style, template, recipe.rows.thoughts
        )
        facts = dataset.facts(selection.max_tokens)
        require_kept(facts, args.trajectories)
        write_jsonl(args.dataset, dataset.rows())
    write_bytes(args.lengths, table(dataset.table()))
    limit, policy = selection.max_tokens, selection.over_long
    if args.stats:
        told = stats(args.dataset, dataset.lengths(), limit, policy)
        write_json(args.stats, told | {"sha256": sha256_file(args.dataset)})
    facts["recipe"] = selection.plain() | {"rows": recipe.rows.plain()}
    outputs = [args.dataset, args.lengths, *filter(None, [args.stats])]
    stage.write(outputs, args.manifest, **facts)


if __name__ == "__main__":
    run_script(main)
