"""Pulls the images that a subset's tasks run in and looks in them for leaked answers; resumable."""

import argparse
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.images.image_names import images_of
from swelab.images.pull import tell_failed
from swelab.jobs.provenance import Stage
from swelab.records import check, write_json
from swelab.rollouts.predictions import load_predictions
from swelab.tasks.datasets_source import file_rows
from swelab.tasks.pulled_for_tasks import pull_for_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="subset: JSON list, JSON Lines or Parquet")
    parser.add_argument("--predictions", type=Path, help="only images of tasks that are predicted there")
    parser.add_argument("--store", type=Path, required=True, help="folder of unpacked images")
    parser.add_argument("--prefix", default="", help="mirror put before names: host[:port][/folder]")
    parser.add_argument("--architecture", default="amd64", help="platform: linux on this")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=int, default=4, help="images at once")
    parser.add_argument("--may-fail", type=int, default=0, help="how many images may be missing in the end")
    parser.add_argument("--output", type=Path, required=True, help="images JSON, in the store's folder")
    args = parser.parse_args()
    stage = Stage("pull_images", tasks=args.tasks, predictions=args.predictions)
    predicted = load_predictions(args.predictions) if args.predictions else None
    rows = file_rows(args.tasks)
    tasks = images_of(row for row in rows if predicted is None or row.instance_id in predicted)
    named = {"prefix": args.prefix, "architecture": args.architecture, "workers": args.workers}
    record = pull_for_tasks(tasks, args.store, args.progress, **named)
    check(record, "images", args.output)
    tell_failed(record, args.may_fail)
    write_json(args.output, record)
    stage.write([args.output])


if __name__ == "__main__":
    run_script(main)
