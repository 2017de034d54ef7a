"""Measures token lengths of manually made training rows, for a check by `validate_len_stats`."""

import argparse
import sys
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.records import InputError, as_record, read_jsonl, write_json
from swelab.records.training_records import SftRow
from swelab.sft.rows.chat_template import PlainRows
from swelab.sft.rows.lengths import ChatTokenizer, stats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_file", type=Path, required=True, help="training rows, JSON Lines")
    parser.add_argument("--base", type=Path, required=True, help="folder of the model whose tokenizer counts")
    parser.add_argument("--stats_file", type=Path, required=True, help="statistics to write, JSON")
    parser.add_argument("--max_seq_len", type=at_least(1), default=32768, help="longest row, in tokens")
    args = parser.parse_args()
    tokenizer, plain, lengths = ChatTokenizer(args.base), PlainRows(args.base), []
    for number, row in enumerate(read_jsonl(args.data_file), 1):
        whole = as_record(row | {"resolved": True}, SftRow, f"{args.data_file}, row {number}")
        lengths.append(tokenizer.measure(plain.of(whole)))
    if not lengths:
        raise InputError("holds no row", args.data_file, "training rows")
    told = stats(args.data_file, lengths, args.max_seq_len, "keep_truncate")
    write_json(args.stats_file, told)
    over = told[f"gt_{args.max_seq_len}"]
    print(f"{len(lengths)} rows in {args.data_file}, {over} over {args.max_seq_len} tokens", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
