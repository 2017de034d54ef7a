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
    add("instance", help="an instance id, or a part that only one id has")
    add("--policy", default="*", help="whose attempt")
    add("--subset", default="*", help="on which subset")
    add("--sample", type=at_least(0), help="which of a policy's attempts (0: the first)")
    add("--validation", choices=("gold", "base", "reversed"), help="a run of the gate instead of a policy's")
    add("--number", type=at_least(1), default=1, help="with --validation: which of its runs")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--log", action="store_true", help="the whole test log alone")
    what.add_argument("--raw", action="store_true", help="grade and evidence as one JSON object")
    what.add_argument("--run", nargs="?", const="", metavar="COMMAND", help="grade it anew, or run a command")
    add("--results", type=Path, default=Path("results"), help="folder of the results")
    add("--logs", type=Path, help="folder of a run of scripts.run_evaluation, in place of --results' grades")
    add("--tasks", type=Path, help="subset JSON; by default that of the results")
    add("--images", type=Path, help="record of pulled images; by default that of the results")
    return parser.parse_args()


def main() -> int:
    return show(options())


if __name__ == "__main__":
    run_script(main)
