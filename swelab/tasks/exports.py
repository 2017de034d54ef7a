"""Writes a subset in other programs' formats: names, rows for harnesses, prompts for RL trainers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from swelab.configs.kinds.subset import Subset
from swelab.images.image_names import image_name, is_file, parse_image_name
from swelab.records import InputError, Record, atomic, line, read_json
from swelab.records.image_records import Images
from swelab.records.task_records import Task
from swelab.tasks.patch_text import reversed_patch
from swelab.tasks.published_rows import is_private

LISTS = ("instance_ids.txt", "docker_images.txt")
ROWS = ("evaluation.jsonl", "gold.jsonl", "slime.jsonl", "miles.jsonl")
SUBSETS = {"xingyaoww/": "gym", "swebench/sweb.eval.": "verified"}
"""Maps a prefix of image names to the name that Miles uses for the set."""

Form = Callable[[Task], Record | None]


def export(tasks: Iterable[Task], folder: Path, *, name: str, recipe: Subset, images: Path | None) -> Record:
    """Writes the files LISTS and ROWS into `folder`. Returns the numbers of lines and of omitted tasks.

    name, recipe: the subset's name and recipe. images: record of pulled images, for the digests of images.
    Rows are read one at a time. Raises InputError if there is no task, or if a text is not an image name.
    """
    digests = _digests(images)
    counts, left_out, image_names = Counter[str](), Counter[str](), set[str]()
    forms: dict[str, Form] = {
        "evaluation.jsonl": evaluation_row,
        "gold.jsonl": gold_prediction,
        "slime.jsonl": lambda task: slime_row(task, getattr(recipe, "dataset", None) or name),
        "miles.jsonl": lambda task: miles_row(task, name, getattr(recipe, "split", "train")),
    }
    with ExitStack() as stack:
        files = {file: stack.enter_context(atomic(folder / file)) for file in (*LISTS, *ROWS)}
        for task in tasks:
            files["instance_ids.txt"].write(f"{task.instance_id}\n".encode())
            counts["instance_ids.txt"] += 1
            image = docker_image(task, digests)
            if image and is_file(image):
                left_out["docker_images.txt: an apptainer file"] += 1
            elif image and image not in image_names:
                image_names.add(image)
                files["docker_images.txt"].write(f"{image}\n".encode())
            for file, form in forms.items():
                if (row := form(task)) is None:
                    left_out[f"{file}: {_why_none(task)}"] += 1
                    continue
                files[file].write(line(row))
                counts[file] += 1
        if not counts:
            raise InputError("no task", f"subset {name}", "at least one")
    counts["docker_images.txt"] = len(image_names)
    known = sum("@" in image for image in image_names)
    return {"lines": dict(sorted(counts.items())), "left_out": dict(left_out), "images_with_digest": known}


def docker_image(task: Task, digests: Mapping[str, str]) -> str:
    """Returns the name of a task's image for `docker pull`, with its digest if known, or "" for no image.
    Tasks that we make have no image of their own. Raises InputError for a text that is not an image name."""
    if not task.in_image:
        return ""
    written = image_name(task)
    if is_file(written):
        return written
    name = parse_image_name(written)
    if name.digest or written not in digests:
        return written.removeprefix("docker://")
    return f"{name.base}:{name.tag}@{digests[written]}"


def _why_none(task: Task) -> str:
    if task.answers:
        return "private answers" if is_private(task) else "no repair is known as a patch"
    return "binary patch"


def evaluation_row(task: Task) -> Record:
    """Returns the row that slime's evaluation and the harnesses of SWE-bench and SWE-smith read."""
    return {name: value for name, value in task.items() if name != "source"}


def gold_prediction(task: Task) -> Record | None:
    """Returns the repair as a prediction, or None if the bug is binary or no repair is known."""
    if task.answers:
        return None
    try:
        patch = reversed_patch(task.patch) if task.is_bug else task.patch
    except ValueError:
        return None
    return {"instance_id": task.instance_id, "model_name_or_path": "gold", "model_patch": patch}


def slime_row(task: Task, data_source: str) -> Record:
    """Returns slime's prompt row: {text, metadata: {instance, data_source}}."""
    instance = evaluation_row(task) | ({"image_name": image_name(task)} if "image_name" in task else {})
    return {"text": task.problem_statement, "metadata": {"instance": instance, "data_source": data_source}}


def miles_row(task: Task, name: str, split: str) -> Record:
    """Returns Miles' prompt row: {prompt, metadata: {columns, subset, split}}.
    columns: the row's own fields."""
    instance: dict[str, Any] = evaluation_row(task)
    image = image_name(task) if "image_name" in task or "image" in task else ""
    known = (word for start, word in SUBSETS.items() if image.removeprefix("docker.io/").startswith(start))
    return {
        "prompt": task.problem_statement,
        "metadata": {**instance, "image_name": image, "subset": next(known, name), "split": split},
    }


def _digests(images: Path | None) -> dict[str, str]:
    pulled = Images.of(read_json(images)).images if images else {}
    return {name: image.digest for name, image in pulled.items()}
