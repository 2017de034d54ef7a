"""Pulls the images in which tasks run, and searches them for leaked answers."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from swelab.images.pull import Pulling, open_puller, pull_images
from swelab.images.registry import Registry, Transport
from swelab.jobs.journal import Journal
from swelab.records import digest
from swelab.records.image_records import Images
from swelab.records.task_records import Task
from swelab.sandbox import open_backend
from swelab.tasks.image_history import start_files
from swelab.tasks.image_leaks import check_image
from swelab.tasks.install_steps import preparation


def pull_for_tasks(
    tasks: Mapping[str, Sequence[Task]],
    store: Path,
    progress: Path,
    *,
    prefix: str = "",
    architecture: str = "amd64",
    workers: int = 4,
) -> Images:
    """Pulls images and returns the record of them. An interrupted call can be resumed.

    tasks: maps an image name to its tasks. store: folder for unpacked images, if the backend needs them.
    progress: journal. prefix: mirror to put before names. workers: how many images to pull at once. Raises
    BackendMissing, RegistryUnreachable, EngineFailed.
    """
    if not tasks:
        return Images(images={}, failed={}, counts={"named": 0})
    backend = open_backend()
    registry = Registry(Transport(say=lambda line: print(line, file=sys.stderr, flush=True)))
    puller = open_puller(backend.name, store, registry, architecture)
    look = lambda image: check_image(backend, image, tasks[image.name])  # noqa: E731
    key = f"{backend.name} {architecture} {os.environ.get('DOCKER_HOST', '')}"
    steps = {name: preparation(rows) for name, rows in tasks.items()}
    searches = {name: search_digest(rows) for name, rows in tasks.items()}
    with Journal(progress) as journal:
        pulling = Pulling(puller, store, prefix, journal, look, key, steps, searches)
        return pull_images(sorted(tasks), pulling, workers)


def search_digest(tasks: Sequence[Task]) -> str:
    """Returns a digest of all that the search for leaks reads of an image's tasks."""
    first = {name: content.hex() for name, content in start_files(tasks[0]).items()}
    rows = [[task.instance_id, task.is_bug, task.patch] for task in tasks]
    return digest([rows, tasks[0].base_commit, tasks[0].by_script, first])
