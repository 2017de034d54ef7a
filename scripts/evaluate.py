"""Evaluates a model on a list of tasks, in one command: rollouts, grades, score (docs/evaluate.md).

After a kill, the same command continues. Exit code 0: every attempt has a verdict.
"""

import sys
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.evaluation.command_line import parse, plan_of
from swelab.evaluation.evaluation_run import evaluate
from swelab.evaluation.result_files import table
from swelab.records import InputError


def main() -> None:
    args = parse(str(__doc__))
    plan, choose = plan_of(args)
    if args.resume and not (plan.folder / "evaluation.json").is_file():
        raise InputError(
            "--resume: there is no evaluation to continue", plan.folder, "the folder of an earlier run"
        )
    record = evaluate(plan, choose, checks=not args.no_checks, dry=args.check_only, redo=args.redo_existing)
    if record:
        print("\n".join(table(record)), flush=True)
        print(f"{Path(args.output_dir) / 'summary.json'}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
