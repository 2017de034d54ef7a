"""Finds the images in which tasks run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from swelab.choices import BACKENDS
from swelab.images.image_names import image_name
from swelab.records import InputError, read_record, shorten
from swelab.records.image_records import Images
from swelab.records.task_records import Task
from swelab.sandbox import Image, backend_name
from swelab.sandbox.pulled_images import load_images


def task_images(tasks: Sequence[Task], path: Path | None, refuse_leaks: bool = True) -> dict[str, Image]:
    """Maps the instance id of each task that runs in an image to the image.

    Tasks that we make from source code run without an image. path: the record that the rule pull_images
    wrote. Raises InputError if there is no record, or if it lacks an image. Raises InputError if a script
    judges a task and the backend does not support this. With `refuse_leaks`, raises InputError if an image
    shows a task's answer.
    """
    in_images = [task for task in tasks if task.in_image]
    if not in_images:
        return {}
    if path is None:
        name = f"{in_images[0].instance_id} ({image_name(in_images[0])})"
        raise InputError("this task runs in an image", name, "--images with the record of pulled images")
    pulled = load_images(path)
    if missing := [task for task in in_images if image_name(task) not in pulled]:
        raise InputError(
            f"the image of {missing[0].instance_id} was not pulled ({len(missing)} such tasks)",
            path,
            f"{image_name(missing[0])} in it",
        )
    if refuse_leaks and (told := leaks(tasks, path)):
        first, what = next(iter(told.items()))
        raise InputError(
            f"{len(told)} tasks run in images that reveal answers, {first}: {shorten(what)}", path
        )
    scripts = [task.instance_id for task in in_images if task.by_script]
    able = [name for name, each in BACKENDS.items() if each.may_have_scripts]
    if scripts and (backend := backend_name()) not in able:
        what = f"a script judges this task, and sandboxes of {backend} have no folders for it"
        raise InputError(what, scripts[0], f"{' or '.join(able)} as the backend")
    return {
        task.instance_id: replace(pulled[image_name(task)], for_scripts=task.by_script) for task in in_images
    }


def unusable_tasks(tasks: Sequence[Task], path: Path | None) -> dict[str, str]:
    """Maps the instance id of each task that cannot be used to the reason.

    Either the image could not be pulled, or the image shows the task's answer. Raises InputError if a task
    needs an image and there is no record, or if the record lacks the image.
    """
    in_images = [task for task in tasks if task.in_image]
    if not in_images or path is None:
        task_images(in_images, path)
        return {}
    failed = read_record(path, Images).failed
    lost = [task for task in in_images if image_name(task) in failed]
    names = {task.instance_id for task in lost}
    task_images([task for task in in_images if task.instance_id not in names], path, refuse_leaks=False)
    found = {task.instance_id: f"no image: {failed[image_name(task)].error}" for task in lost}
    return found | {
        name: f"its image tells its answer: {what}" for name, what in leaks(in_images, path).items()
    }


def leaks(tasks: Sequence[Task], path: Path) -> dict[str, str]:
    """Maps the instance id of each task with a leak to a description of the leak in its image.
    path: the record of pulled images."""
    images = read_record(path, Images).images
    by_task: dict[str, str] = {}
    for task in tasks:
        image = images.get(image_name(task))
        for leak in image.leaks if image else ():
            if leak.instance_id in ("", task.instance_id):
                by_task.setdefault(task.instance_id, leak.what)
    return by_task
