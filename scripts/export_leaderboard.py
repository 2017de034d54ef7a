"""Writes an evaluation as a submission folder for SWE-bench's leaderboard (docs/evaluate.md)."""

import argparse
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.evaluation.leaderboard import TO_FILL, write_leaderboard
from swelab.sharing.privacy import Private

OWN = ("evaluation", "to", "name", "max_lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("evaluation", type=Path, help="folder that scripts.evaluate wrote")
    add("--to", type=Path, required=True, help="folder of a split to write to, such as evaluation/verified")
    add("--name", required=True, help="name of the submission")
    add("--site", default="", help="web address of the system")
    add("--report", default="", help="web address of a paper or report, which the leaderboard requires")
    add("--authors", default="", help="authors")
    add("--org", default="", help="organization")
    add("--os-model", action="store_true", help="the model's weights are open")
    add("--os-system", action="store_true", help="the system's code is open")
    add("--max-lost", type=at_least(0), default=0, help="number of attempts that infrastructure may lose")
    args = parser.parse_args()
    told = {name: value for name, value in vars(args).items() if name not in OWN}
    private = Private.of(Path())
    out = write_leaderboard(args.evaluation, args.to, args.name, told, private.clean, args.max_lost)
    missing = [f"--{name}" for name in ("site", "report", "authors", "org") if not told[name]]
    print(out)
    for line in (out / "README.md").read_text().splitlines():
        if line.startswith(("- [ ]", "| tasks")):
            print(f"README.md: {line.strip('|- []')}")
    for stand_in, count in private.met.items():
        print(f"taken out, with `{stand_in}` in its place: {count}")
    if missing:
        print(f"metadata.yaml and README.md say {TO_FILL!r} in place of {', '.join(missing)}")


if __name__ == "__main__":
    run_script(main)
