"""Pulls the images of a subset's tasks, and searches the images for leaked answers. Can be resumed."""

import argparse
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.images.image_names import images_of
from swelab.images.pull import tell_failed
from swelab.jobs.provenance import Stage
from swelab.records import InputError, Record, check, write_json
from swelab.records.image_records import Images
from swelab.rollouts.predictions import load_predictions
from swelab.tasks.datasets_source import make_tasks, named_set
from swelab.tasks.pulled_for_tasks import pull_for_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", required=True, help="subset JSON, or owner/set[@commit] on the hub")
    parser.add_argument("--split", default="test", help="split of a set on the hub")
    parser.add_argument("--predictions", type=Path, help="pull only images of tasks with a prediction here")
    parser.add_argument("--store", type=Path, required=True, help="folder for unpacked images")
    parser.add_argument("--prefix", default="", help="mirror to put before names: host[:port][/folder]")
    parser.add_argument("--architecture", default="amd64", help="processor of the images (Linux)")
    parser.add_argument("--progress", type=Path, required=True, help="journal")
    parser.add_argument("--workers", type=at_least(1), default=4, help="number of images to pull at once")
    parser.add_argument(
        "--may-fail", type=at_least(0), default=0, help="number of images that may be missing at the end"
    )
    parser.add_argument("--output", type=Path, required=True, help="record of images, in the store's folder")
    args = parser.parse_args()
    source = named_set(args.tasks, args.split)
    stage = Stage("pull_images", tasks=source.path or (), predictions=args.predictions)
    predicted = load_predictions(args.predictions) if args.predictions else None
    rows, _ = make_tasks(source)
    if not (wanted := [row for row in rows if predicted is None or row.instance_id in predicted]):
        raise InputError(f"predicts no task of {args.tasks}", args.predictions, "predictions of its tasks")
    tasks = images_of(wanted)
    named = {"prefix": args.prefix, "architecture": args.architecture, "workers": args.workers}
    record = pull_for_tasks(tasks, args.store, args.progress, **named)
    check(record, Images, args.output)
    tell_failed(record, args.may_fail)
    write_json(args.output, record)
    origin: Record = {} if source.path else {"dataset": source.dataset, "revision": source.revision}
    stage.write([args.output], **origin)


if __name__ == "__main__":
    run_script(main)
