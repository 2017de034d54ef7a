"""Writes the JSON Schemas, the tables of outcomes and the table of results/README.md from the library."""

import argparse
import json
from pathlib import Path

from swelab.configs.json_schemas import text_of
from swelab.configs.kinds import RECIPE_KINDS
from swelab.console.terminal import run_script
from swelab.outcomes import written
from swelab.records import SCHEMAS, InputError, read_text, write_bytes
from swelab.records.attempt_records import Grade, Prediction, Trajectory, Usage
from swelab.records.report_records import Report
from swelab.records.score_records import Score, VerifiedScore
from swelab.records.stage_records import Manifest
from swelab.records.task_records import Difficulty, Images, Lock, Task
from swelab.records.training_records import SftPair, SftRow
from swelab.records.typed import schema
from swelab.records.witness_records import GoldValues, Testimony, WitnessManifest
from swelab.scores.artifact_table import with_table

ATTEMPTS = (Trajectory, Prediction, Usage, Grade, Report, Score, VerifiedScore)
WITNESS = (WitnessManifest, GoldValues, Testimony)
RECORDS = (Task, Difficulty, Lock, Images, *ATTEMPTS, SftRow, SftPair, Manifest, *WITNESS)
PAGES = SCHEMAS.parents[1] / "docs"
RESULTS = PAGES.parent / "results/README.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not current")
    args = parser.parse_args()
    made = {SCHEMAS / f"{name}.json": text_of(kind) for name, kind in RECIPE_KINDS.items()} | {
        SCHEMAS / f"{record.kind()}.json": json.dumps(schema(record), indent=2, ensure_ascii=False) + "\n"
        for record in RECORDS
    }
    by_hand = {path: written(read_text(path)) for path in [*SCHEMAS.glob("*.json"), *PAGES.glob("*.md")]}
    by_hand[RESULTS] = with_table(read_text(RESULTS), PAGES.parent / "rules")
    for path, text in sorted((by_hand | made).items(), key=lambda item: Path.as_posix(item[0])):
        if path.exists() and read_text(path) == text:
            continue
        if args.check:
            raise InputError("not as in swelab/", path, ".venv/bin/python -m scripts.write_schemas before")
        write_bytes(path, text.encode())
        print(path)


if __name__ == "__main__":
    run_script(main)
