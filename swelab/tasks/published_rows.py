"""A row of a published set as a task row: SWE-smith's, SWE-bench's, SWE-Gym's, or a prompt row of these."""

import json
from typing import Any

from swelab.records import InputError, Record
from swelab.records.task_records import Task

LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
NAMES = ("instance_id", "repo")
REQUIRED = (*NAMES, "patch", *LISTS)
_SEPARATORS = {"swe-bench": ("swebench", "_1776_"), "swe-gym": ("xingyaoww", "_s_")}


def read_row(raw: Any, where: str, images: str = "swe-bench") -> Task:
    """A task row; all keys are kept, lists written as JSON strings become lists.

    `images` names the convention for rows that name no image: see `image_name`. Raises InputError naming
    the row and the field.
    """
    if not isinstance(raw, dict):
        raise InputError(f"a {type(raw).__name__}", where, "a JSON object")
    row, images = _unwrapped(raw, images)
    for name in REQUIRED:
        if name not in row or (name in NAMES and not row[name]):
            raise InputError(f"field {name} is missing", where, "a row in SWE-smith's schema")
    where = f"{where} ({row['instance_id']})"
    for name in LISTS:
        row[name] = _tests(row[name] or [], where, name)
    row["patch"] = row["patch"] or ""
    row["problem_statement"] = row.get("problem_statement") or ""
    for name in (*NAMES, "patch", "problem_statement", "image_name", "image", "base_commit"):
        if row.get(name) is not None and not isinstance(row[name], str):
            raise InputError(f"field {name} is a {type(row[name]).__name__}", where, "a string")
    row["image_name"] = row.get("image_name") or row.get("image") or image_name(row["instance_id"], images)
    row.setdefault("source", "dataset")
    return Task.of(row)


def is_private(task: Task) -> bool:
    """Whether a task's patch and tests were not published: it can be attempted, not judged here."""
    return task.answers == "private"


def lacks(row: Task) -> str:
    """ "empty_" and the first required field that is empty, as in sets with private answers; or ""."""
    return next((f"empty_{name}" for name in ("patch", "FAIL_TO_PASS") if not row[name]), "")


def image_name(instance: str, images: str = "swe-bench") -> str:
    """The image of an instance whose row names none, by the convention of SWE-bench's or SWE-Gym's images."""
    owner, separator = _SEPARATORS[images]
    return f"{owner}/sweb.eval.x86_64.{instance.replace('__', separator).lower()}:latest"


def _unwrapped(raw: Record, images: str) -> tuple[Record, str]:
    """The instance in a prompt row, and the image convention that it names; other rows stay as they are.

    slime's rows are {text, metadata: {instance, data_source}}, Miles' {prompt, metadata: {..., subset}}.
    """
    metadata = raw.get("metadata")
    if "instance_id" in raw or not isinstance(metadata, dict):
        return dict(raw), images
    if isinstance(metadata.get("instance"), dict):
        gym = "swe-gym" in str(metadata.get("data_source")).lower()
        return dict(metadata["instance"]), "swe-gym" if gym else images
    if "prompt" in raw:
        row = {name: value for name, value in metadata.items() if name not in ("subset", "split")}
        return row, "swe-gym" if metadata.get("subset") == "gym" else images
    return dict(raw), images


def _tests(value: Any, where: str, field: str) -> list[str]:
    """A list of test ids; SWE-bench writes it as a JSON string."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise InputError(f"field {field} is no JSON list", where, "a list of test ids") from None
    if not isinstance(value, list) or not all(isinstance(test, str) and test for test in value):
        raise InputError(f"field {field} is no list of strings", where, "a list of test ids")
    return value
