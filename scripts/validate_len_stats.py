"""Checks that length statistics belong to the given training rows, and prints how many rows are too long."""

import argparse
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.sft.rows.lengths import check_stats

POLICIES = {"keep_truncate": "keep_all_truncate"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_file", type=Path, required=True, help="training rows, JSON Lines")
    parser.add_argument("--stats_file", type=Path, required=True, help="dataset.stats.json")
    parser.add_argument("--max_seq_len", type=at_least(1), default=32768, help="longest row, in tokens")
    args = parser.parse_args()
    over, stats = check_stats(args.data_file, args.stats_file, args.max_seq_len)
    rows, policy = stats.num_samples, stats.over_long
    share = over / max(rows, 1)
    name, limit = f"[{Path(__file__).stem}]", args.max_seq_len
    print(f"{name} Validation passed.")
    print(f"{name} data_file={args.data_file}")
    print(f"{name} stats_file={args.stats_file}")
    print(f"{name} over_{limit}={over}/{rows} ({share:.2%})")
    print(f"{name} policy={POLICIES.get(policy, policy)} (training max_seq_len={limit})")


if __name__ == "__main__":
    run_script(main)
