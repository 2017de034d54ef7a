"""Pulls the images that a subset's tasks run in and looks in them for leaked answers; resumable."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.images.image_names import images_of
from swelab.images.pull import Pulling, open_puller, pull_images, tell_failed
from swelab.images.registry import Registry
from swelab.images.registry_http import Transport
from swelab.jobs.journal import Journal
from swelab.jobs.provenance import Stage
from swelab.records import check, write_json
from swelab.records.task_records import Images, Task
from swelab.rollouts.predictions import load_predictions
from swelab.sandbox import open_backend
from swelab.tasks.datasets_source import file_rows
from swelab.tasks.image_leaks import check_image
from swelab.tasks.install_steps import preparation


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
    record = pull(args, tasks) if tasks else Images(images={}, failed={}, counts={"named": 0})
    check(record, "images", args.output)
    tell_failed(record, args.may_fail)
    write_json(args.output, record)
    stage.write([args.output])


def pull(args: argparse.Namespace, tasks: Mapping[str, Sequence[Task]]) -> Images:
    backend, say = open_backend(), lambda line: print(line, file=sys.stderr, flush=True)
    puller = open_puller(backend.name, args.store, Registry(Transport(say=say)), args.architecture)
    look = lambda image: check_image(backend, image, tasks[image.name])  # noqa: E731
    key = f"{backend.name} {args.architecture} {os.environ.get('DOCKER_HOST', '')}"
    steps = {name: preparation(rows) for name, rows in tasks.items()}
    with Journal(args.progress) as journal:
        pulling = Pulling(puller, args.store, args.prefix, journal, look, key, steps)
        return pull_images(sorted(tasks), pulling, args.workers)


if __name__ == "__main__":
    run_script(main)
