"""Prints the records of an instance: task, patch, tests, test log, reason of the verdict, rerun command.

Lists the attempts if there are several. --policy, --subset and --sample select one. With --run, the attempt's
tests run again in a fresh sandbox. No record is changed.
"""

import argparse
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.grading.show import show


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("instance", help="instance id, or a part that only one id contains")
    add("--policy", default="*", help="show only attempts of this policy")
    add("--subset", default="*", help="show only attempts at this subset")
    add("--sample", type=at_least(0), help="number of the policy's attempt (0: the first)")
    add("--validation", choices=("gold", "base", "reversed"), help="show a validation run, not an attempt")
    add("--number", type=at_least(1), default=1, help="for --validation: number of the run")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--log", action="store_true", help="print only the whole test log")
    what.add_argument("--raw", action="store_true", help="print grade and evidence as one JSON object")
    what.add_argument("--run", nargs="?", const="", metavar="COMMAND", help="grade again, or run a command")
    add("--results", type=Path, default=Path("results"), help="folder of the results")
    add("--logs", type=Path, help="folder of a run of scripts.run_evaluation, instead of --results' grades")
    add("--tasks", type=Path, help="subset JSON; by default that of the results")
    add("--images", type=Path, help="record of pulled images; by default that of the results")
    return parser.parse_args()


def main() -> int:
    return show(options())


if __name__ == "__main__":
    run_script(main)
