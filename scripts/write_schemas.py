"""Writes JSON Schemas for editors, and tables of the documentation, from the library's code.

The schemas of recipes and records are written to configs/schemas/, which git ignores. No program here reads
the schemas.
"""

import argparse
import json
from pathlib import Path

from swelab import choices
from swelab.configs.json_schemas import schema_of
from swelab.configs.kinds import RECIPE_KINDS
from swelab.console.terminal import run_script
from swelab.outcomes import with_tables
from swelab.records import SHIPPED_CONFIGS, read_text, write_bytes
from swelab.records.attempt_records import Grade, Prediction, Trajectory, Usage
from swelab.records.image_records import Images
from swelab.records.report_records import Report
from swelab.records.score_records import Manifest, Score, VerifiedScore
from swelab.records.task_records import Difficulty, Lock, Task
from swelab.records.training_records import SftPair, SftRow
from swelab.records.typed import schema
from swelab.records.witness_records import GoldValues, Testimony, WitnessManifest
from swelab.sampling_settings import with_sampling_table
from swelab.scores.artifact_table import with_table

ATTEMPTS = (Trajectory, Prediction, Usage, Grade, Report, Score, VerifiedScore)
WITNESS = (WitnessManifest, GoldValues, Testimony)
RECORDS = (Task, Difficulty, Lock, Images, *ATTEMPTS, SftRow, SftPair, Manifest, *WITNESS)
ROOT = SHIPPED_CONFIGS.parent
RESULTS = ROOT / "results/README.md"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    documents = {name: schema_of(kind) for name, kind in RECIPE_KINDS.items()}
    documents |= {record.kind(): schema(record) for record in RECORDS}
    texts = {
        SHIPPED_CONFIGS / f"schemas/{name}.json": json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in documents.items()
    }
    for path in (ROOT / "docs").glob("*.md"):
        texts[path] = with_sampling_table(choices.with_tables(with_tables(read_text(path))))
    texts[RESULTS] = with_table(read_text(RESULTS), ROOT / "rules")
    for path, text in sorted(texts.items(), key=lambda item: Path.as_posix(item[0])):
        if not path.exists() or read_text(path) != text:
            write_bytes(path, text.encode())
            print(path)


if __name__ == "__main__":
    run_script(main)
