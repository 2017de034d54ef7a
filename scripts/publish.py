"""Writes everything that an experiment publishes: data, model, submissions, archive (docs/publish.md)."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.sharing.hub_upload import check_push, push
from swelab.sharing.published_folder import write_published


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("score", type=Path, help="results/verified_score.json of this or another clone")
    add("--to", type=Path, required=True, help="new folder to write")
    add(
        "--push",
        metavar="NAME",
        default="",
        help="also upload data set and model to the hub, as <owner>/<name>",
    )
    args = parser.parse_args()
    to = args.to.absolute()
    if args.push:
        check_push(args.push)
    told = write_published(args.score, to)
    for line in told:
        print(f"not there: {line}")
    for path in sorted(to.iterdir()):
        print(path)
    for kind in ("dataset", "model") if args.push else ():
        if (to / kind).is_dir():
            print(f"pushed: {push(to / kind, args.push, kind)}")


if __name__ == "__main__":
    run_script(main)
