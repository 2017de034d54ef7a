"""Fine-tunes with an unchanged torchtune configuration, after checks. In experiments, train_sft does this."""

import argparse
import os
import sys
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.records import InputError
from swelab.sft.rows.lengths import check_stats
from swelab.sft.train.torchtune_file import data_file, faults, read_torchtune, run_torchtune_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="torchtune configuration, YAML")
    parser.add_argument("--gpus", type=at_least(1), default=1, help="number of processes, each with a GPU")
    parser.add_argument("--stats", help="length statistics to compare the rows with; empty for none")
    parser.add_argument("--max-seq-len", type=at_least(1), default=32768, help="tokens, for the statistics")
    parser.add_argument("--check", action="store_true", help="only check")
    args = parser.parse_args()
    config = read_torchtune(args.config)
    found = faults(config)
    for fault in found[:-1]:
        print(f"fault: {fault}", file=sys.stderr)
    if found:
        raise InputError(f"{found[-1]} ({len(found)} faults)", args.config)
    if args.stats:
        over, stats = check_stats(data_file(config), Path(args.stats), args.max_seq_len)
        longer = f"{over} of {stats.num_samples} rows are longer than {args.max_seq_len} tokens"
        print(f"{longer} ({stats.over_long})", flush=True)
    if args.gpus < 1:
        raise InputError(f"--gpus {args.gpus}", expected="at least 1")
    print(f"{args.config}: paths and weights are there; {args.gpus} processes", flush=True)
    if not args.check:
        run_torchtune_file(config, args.config, args.gpus, dict(os.environ))


if __name__ == "__main__":
    run_script(main)
