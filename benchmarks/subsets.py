"""Selection from a large published set by all criteria, without a benchmark's rows; check and export of it.

    .venv/bin/python -m benchmarks.subsets 50000

prints seconds, rows a second and the peak of resident memory of each script, and that of a tenth of the rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.workflow_world import write_rows

CRITERIA = {
    "id_pattern": r"\.train__",
    "min_fail_to_pass": 1,
    "max_fail_to_pass": 3,
    "languages": ["python"],
    "difficulties": ["<15 min fix"],
    "ratings": [1, 5],
    "min_statement_chars": 10,
    "max_statement_chars": 100000,
    "min_patch_lines": 1,
    "max_patch_lines": 100,
    "min_patch_files": 1,
    "max_patch_files": 3,
}


def prepare(folder: Path, count: int) -> None:
    """Rows, a benchmark of 500, ratings of nine rows in ten, and the recipe."""
    write_rows(folder / "plain.jsonl", "train", count, 0)
    write_rows(folder / "held.jsonl", "heldout", 500, 1)
    with open(folder / "rows.jsonl", "w") as rows, open(folder / "ratings.jsonl", "w") as ratings:
        for number, text in enumerate(open(folder / "plain.jsonl")):
            row = json.loads(text) | {"difficulty": "<15 min fix"}
            rows.write(json.dumps(row) + "\n")
            rated = {"outcome": "rated", "difficulty": "medium", "rating": 5, "answer": "", "attempts": 1}
            if number % 10:
                ratings.write(json.dumps({"instance_id": row["instance_id"], **rated}) + "\n")
    held = [json.loads(text) for text in open(folder / "held.jsonl")]
    others = [row | {"repo": f"other/{row['repo'].partition('/')[2]}x"} for row in held]
    for name, part in (("held", held[:25]), ("other", others)):
        (folder / f"{name}.json").write_text(json.dumps(part))
    recipe = {"source": "dataset", "path": str(folder / "rows.jsonl"), "criteria": CRITERIA}
    recipe |= {"ratings": {"rater": "r", "subset": "s"}, "stratify": "proportional"}
    (folder / "subset.yaml").write_text(yaml.safe_dump(recipe))


def spent(script: str, **flags: Path) -> tuple[float, int]:
    """(wall seconds, peak of resident bytes) of one script."""
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", f"scripts.{script}", *words])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"scripts.{script} failed")
    return time.monotonic() - began, usage.ru_maxrss * 1024


def measure(count: int) -> None:
    """Makes, checks and exports a subset of `count` rows, and prints what each took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, count)
        tasks, recipe, manifest = folder / "tasks.json", folder / "subset.yaml", folder / "manifest.json"
        made = {"recipe": recipe, "repos-dir": folder, "progress": folder / "j", "output": tasks}
        given = {"exclude": folder / "held.json", "ratings": folder / "ratings.jsonl", "manifest": manifest}
        other, export = folder / "other.json", {"tasks": tasks, "recipe": recipe, "output": folder}
        steps = {
            "make_tasks": made | given,
            "check_disjoint": {"train": tasks, "heldout": other, "output": folder / "d.json"},
            "export_tasks": export | {"manifest": folder / "m.json"},
        }
        for script, flags in steps.items():
            seconds, peak = spent(script, **flags)
            rate = count / seconds
            print(f"{count} rows {script}: {seconds:.1f} s, {rate:.0f} rows/s, {peak / 1e6:.0f} MB")
        facts = json.loads(manifest.read_text())
        print(f"kept {facts['kept']}, dropped {facts['drops']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=50_000)
    count = parser.parse_args().rows
    for rows in (count // 10, count):
        measure(rows)


if __name__ == "__main__":
    main()
