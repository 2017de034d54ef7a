"""Converts recorded trajectories and their reports to training rows, with the options of `collect_trajs`.

Rows are whole conversations of resolved runs that the student's own parser can read. With --compat, rows are
those that swesmith 0.0.9 writes. In an experiment, a recorded policy and the rule build_sft_dataset do this.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from swelab.choices import ROW_STYLES, values_with_code
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.records import InputError, write_json
from swelab.sft.rows import collect
from swelab.sft.rows.styles import Style, definitions


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add, runs = parser.add_argument, Path("trajectories", os.environ.get("USER", ""))
    add("-t", "--traj_dir", type=Path, default=runs, help="folder with <id>/<id>.traj")
    add("-e", "--eval_dir", type=Path, default=Path("logs/run_evaluation"), help="where <id>/report.json are")
    add("-s", "--style", choices=values_with_code(ROW_STYLES), default="xml", help="form of the actions")
    add("-o", "--out_dir", type=Path, default=Path("trajectories_sft"), help="for <eval_dir>.<style>.jsonl")
    add("-w", "--workers", type=at_least(1), default=os.cpu_count(), help="number of processes")
    add("--compat", action="store_true", help="rows of swesmith 0.0.9, also unresolved and truncated ones")
    add("--system-prompt", type=Path, help="the student's system prompt: SWE-agent configuration, or text")
    add("--tools", type=Path, help="tool definitions for the style tool")
    add("--malformed-turns", choices=["drop", "mask", "keep"], default="drop", help="see docs/sft-data.md")
    add("--mask-failed-turns", action="store_true", help="exclude turns that were not executed from the loss")
    return parser.parse_args()


def main() -> None:
    args = options()
    system = collect.system_prompt(args.system_prompt) if args.system_prompt else ""
    if args.compat and args.style == "xml" and not system:
        raise InputError("no --system-prompt", "--compat", "the configuration that the student will run with")
    if args.compat:
        convert = partial(collect.compat_line, args.traj_dir, args.eval_dir, args.style, system)
    else:
        tools = definitions(args.tools) if args.tools else []
        failed = "mask" if args.mask_failed_turns else "learn"
        style = Style(args.style, args.malformed_turns, system, tools, failed)
        convert = partial(collect.whole_line, args.traj_dir, args.eval_dir, style)
    output = args.out_dir / f"{args.eval_dir.name}.{args.style}.jsonl"
    folders = collect.folders_of(args.traj_dir, args.eval_dir)
    count, dropped = collect.write_lines(collect.convert_all(convert, folders, args.workers), output)
    facts = {"folders": len(folders), "rows": count, "dropped": {why: vars(d) for why, d in dropped.items()}}
    write_json(output.with_suffix(".manifest.json"), facts)
    told = "".join(f"; {d.count} dropped: {reason} (first {d.first})" for reason, d in dropped.items())
    print(f"{len(folders)} folders, {count} rows in {output}{told}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
