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
    add("--to", type=Path, required=True, help="folder of a split, such as evaluation/verified")
    add("--name", required=True, help="of the submission")
    add("--site", default="", help="address of the system's page")
    add("--report", default="", help="address of a paper or report; the leaderboard wants one")
    add("--authors", default="", help="who made it")
    add("--org", default="", help="for whom")
    add("--os-model", action="store_true", help="the weights are open")
    add("--os-system", action="store_true", help="the system is open")
    add("--max-lost", type=at_least(0), default=0, help="attempts that may be lost to infrastructure")
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
