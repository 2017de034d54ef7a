"""A run of SWE-agent and its reports as training rows, as `collect_trajs` of swesmith 0.0.9 writes them.

By hand, on folders; inside an experiment the rule build_sft_dataset does this on its own records.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from swelab.console import run_script
from swelab.records import InputError
from swelab.sft.collect import compat_line, convert_all, folders_of, system_prompt, write_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add(
        "-t",
        "--traj_dir",
        type=Path,
        default=Path("trajectories", os.environ.get("USER", "")),
        help="the run",
    )
    add("-e", "--eval_dir", type=Path, default=Path("logs/run_evaluation"), help="<id>/report.json of each")
    add("-s", "--style", choices=["xml", "ticks", "tool"], default="xml", help="how actions are written")
    add(
        "-o",
        "--out_dir",
        type=Path,
        default=Path("trajectories_sft"),
        help="where <eval_dir>.<style>.jsonl goes",
    )
    add("-w", "--workers", type=int, default=os.cpu_count(), help="processes")
    add("--system-prompt", type=Path, help="SWE-agent configuration, or text, with the system prompt of xml")
    args = parser.parse_args()
    if args.style == "xml" and not args.system_prompt:
        raise InputError(
            "no --system-prompt", "--style xml", "the configuration that the student will run with"
        )
    system = system_prompt(args.system_prompt) if args.system_prompt else ""
    output = args.out_dir / f"{args.eval_dir.name}.{args.style}.jsonl"
    folders = folders_of(args.traj_dir)
    convert = partial(compat_line, args.traj_dir, args.eval_dir, args.style, system)
    count, dropped = write_lines(convert_all(convert, folders, args.workers), output)
    told = "".join(f"; {number} dropped: {reason}" for reason, number in sorted(dropped.items()))
    print(f"{len(folders)} folders, {count} rows in {output}{told}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
