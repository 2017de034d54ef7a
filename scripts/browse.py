"""Shows the trajectories of an evaluation, or of any folder, in the terminal."""

import argparse
import sys
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.evaluation.trajectory_browser import browse, entries, list_lines, pages, pressed_keys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="folder of an evaluation, or of .traj, .traj.json or .atif.json files"
    )
    parser.add_argument("--filter", default="", help="regular expression to search in instance ids")
    parser.add_argument("--status", default="", help="show attempts that ended so, such as unresolved")
    parser.add_argument("--list", action="store_true", help="print only the list")
    args = parser.parse_args()
    attempts = entries(args.folder, args.filter, args.status)
    if args.list or (len(attempts) > 1 and not (sys.stdin.isatty() and sys.stdout.isatty())):
        print("\n".join(list_lines(attempts)))
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("\n\n".join(pages(attempts[0])))
    else:
        with pressed_keys() as keys:
            browse(attempts, keys, lambda text: print(text, end="", flush=True))
        print()


if __name__ == "__main__":
    run_script(main)
