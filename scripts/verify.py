"""Checks a verified score: every file behind it by its hash, every recipe, every number from its rows."""

import argparse
from pathlib import Path

from swelab.console import run_script
from swelab.scores.recompute import verify


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("score", type=Path, help="results/verified_score.json, of this clone or another")
    args = parser.parse_args()
    found, looked_at = verify(args.score)
    for finding in found:
        print(f"{finding.kind:<8} {finding.path}: {finding.what}")
    print(looked_at)
    return 1 if found else 0


if __name__ == "__main__":
    run_script(main)
