"""Checks a score: the hashes of all files behind it, the recipes, and all numbers, which are recomputed."""

import argparse
from collections import Counter
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.scores.recompute import verify

SHOWN = 5
"""Maximum number of findings of one kind in one file that are printed without --all."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "score", type=Path, help="results/verified_score.json or results/scores/POLICY/SUBSET.json"
    )
    parser.add_argument("--all", action="store_true", help=f"all findings, not {SHOWN} per kind and file")
    args = parser.parse_args()
    findings, looked_at = verify(args.score)
    told: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        told[finding.kind, str(finding.path)] += 1
        if args.all or told[finding.kind, str(finding.path)] <= SHOWN:
            print(f"{finding.kind:<8} {finding.path}: {finding.what}")
    for (kind, path), count in told.items():
        if count > SHOWN and not args.all:
            print(f"{kind:<8} {path}: {count - SHOWN} more (--all prints them)")
    print(looked_at)
    return 1 if findings else 0


if __name__ == "__main__":
    run_script(main)
