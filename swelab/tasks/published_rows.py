"""Converts rows of published sets (SWE-smith, SWE-bench, SWE-Gym) to task rows.
Also converts prompt rows: rows that RL trainers make from such a set."""

import json
import re
from dataclasses import dataclass
from typing import Any

from swelab.records import InputError, Record
from swelab.records.task_records import Task

LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
NAMES = ("instance_id", "repo")
IMAGES = ("image_name", "image", "docker_image")
"""Fields in which a row may name its image. SWE-rebench and SWE-bench-Live write `docker_image`."""
REQUIRED = (*NAMES, "patch", *LISTS)
PROMPTS = ("prompt", "text")
"""Keys under which a prompt row may contain the prompt."""
ROUTING = ("subset", "split", "agent_name")
"""Columns that Miles adds to the columns of an instance."""
PHANTOMS = re.compile(r"\[ *\d+%\]")
"""Ids in published lists that are no tests. A parser took them from pytest's progress, `PASSED [100%]`."""
_SEPARATORS = {"swe-bench": ("swebench", "_1776_"), "swe-gym": ("xingyaoww", "_s_")}


def read_row(raw: Any, where: str, images: str = "swe-bench") -> Task:
    """Converts a row to a task row. Keeps all keys. Lists written as JSON strings become lists.

    images: naming convention for the image of a row that names no image, see `image_name`. Raises InputError
    naming the row and the field. Raises InputError for a prompt row without a way to run its tests.
    """
    if not isinstance(raw, dict):
        raise InputError(f"a {type(raw).__name__}", where, "a JSON object")
    prompt = _unwrap(raw, where)
    row, at = prompt.row, prompt.at
    for name in REQUIRED:
        if name not in row or (name in NAMES and not row[name]):
            raise InputError(f"field {at}{name} is missing", where, "a row in SWE-smith's schema")
    where = f"{where} ({row['instance_id']})"
    if at:
        _check_runnable(row, where, at)
    for name in LISTS:
        row[name] = _tests(row[name] or [], where, at + name)
    row["patch"] = row["patch"] or ""
    row["problem_statement"] = row.get("problem_statement") or prompt.text
    for name in (*NAMES, "patch", "problem_statement", *IMAGES, "base_commit"):
        if row.get(name) is not None and not isinstance(row[name], str):
            raise InputError(f"field {at}{name} is a {type(row[name]).__name__}", where, "a string")
    image = image_name(row["instance_id"], prompt.images or images)
    row["image_name"] = next((row[name] for name in IMAGES if row.get(name)), image)
    row.setdefault("source", "dataset")
    files = row.get("files")
    if not (isinstance(files, list) and all(isinstance(each, dict) for each in files)):
        row.pop("files", None)  # another publisher's `files`
    try:
        return Task.of(row)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"a field of another type: {error}", where, "a row in SWE-smith's schema") from None


def is_private(task: Task) -> bool:
    """Returns whether a task's patch and tests are unpublished.
    Agents can attempt such a task, but we cannot judge it."""
    return task.answers == "private"


def lacks(row: Task) -> str:
    """Returns "empty_" and the name of the first required field that is empty, or "" if none is.
    Sets with private answers have empty fields."""
    if row.by_script:
        return "" if row.verifier_tar else "empty_verifier_tar"
    wanted = ("FAIL_TO_PASS",) if row.answers == "none" else ("patch", "FAIL_TO_PASS")
    return next((f"empty_{name}" for name in wanted if not row[name]), "")


def image_name(instance: str, images: str = "swe-bench") -> str:
    """Returns the name of an instance's image, for a row that names no image.
    images: the naming convention, "swe-bench" or "swe-gym"."""
    owner, separator = _SEPARATORS[images]
    return f"{owner}/sweb.eval.x86_64.{instance.replace('__', separator).lower()}:latest"


@dataclass(frozen=True)
class _Prompt:
    """An instance in a prompt row, and the text of the prompt.

    row: the instance. at: path of the instance in the prompt row, such as "metadata.instance.". images:
    naming convention of the instance's image, or "".
    """

    row: Record
    at: str = ""
    images: str = ""
    text: str = ""


def _unwrap(raw: Record, where: str) -> _Prompt:
    """Returns the instance inside a prompt row, or the row itself if it is not a prompt row.

    Raises InputError.

    slime's rows are {text, metadata: {instance, data_source}} or {prompt, instance}. Those of its coding
    agent are {prompt, label, metadata: {remote_env_info}}. Miles' rows are {prompt, metadata: {columns,
    subset, split}}.
    """
    prompt = next((name for name in PROMPTS if name in raw), "")
    if "instance_id" in raw or not prompt:
        return _Prompt(dict(raw))
    text = _text(raw[prompt])
    if "instance" in raw:
        return _Prompt(_object(raw, "instance", where), "instance.", "", text)
    metadata = _object(raw, "metadata", where)
    source = str(metadata.get("data_source")).lower()
    of_slime = next((name for name in _SEPARATORS if name in source), "")
    if "instance" in metadata:
        return _Prompt(
            _object(metadata, "instance", where, "metadata."), "metadata.instance.", of_slime, text
        )
    if isinstance(inner := metadata.get("remote_env_info"), dict) and "instance_id" in inner:
        return _Prompt(dict(inner), "metadata.remote_env_info.", of_slime, text)
    of_miles = {"gym": "swe-gym", "verified": "swe-bench"}.get(str(metadata.get("subset")), "")
    row = {name: value for name, value in metadata.items() if name not in ROUTING}
    return _Prompt(row, "metadata.", of_miles, text)


def _object(row: Record, name: str, where: str, at: str = "") -> Record:
    """Returns a copy of the object under a name in a prompt row. Raises InputError."""
    if name not in row:
        raise InputError(f"field {at}{name} is missing", where, "the instance of the prompt in it")
    if not isinstance(row[name], dict):
        what = f"field {at}{name} is a {type(row[name]).__name__}"
        raise InputError(what, where, "an object with the instance")
    return dict(row[name])


def _text(prompt: Any) -> str:
    """Returns the issue in a prompt: the prompt itself, or the user's first message."""
    if isinstance(prompt, str):
        return prompt
    turns = [each for each in prompt if isinstance(each, dict)] if isinstance(prompt, list) else []
    said = next((turn.get("content") for turn in turns if turn.get("role") == "user"), "")
    return said if isinstance(said, str) else ""


def _check_runnable(row: Record, where: str, at: str) -> None:
    """Raises InputError if the instance of a prompt row has no way to run its tests.

    Trainers that use prompt rows only run the instance's script. An empty script succeeds, so every patch
    that applies would be rewarded.
    """
    if row.get("test_cmd"):
        return
    script = row.get("eval_script")
    if script is not None and not isinstance(script, str):
        raise InputError(f"field {at}eval_script is a {type(script).__name__}", where, "a string")
    known = row.get("test_patch") or "swesmith" in str(row.get("repo"))
    if not (script or "").strip() and ("eval_script" in row or not known):
        what = f"field {at}eval_script is {'empty' if 'eval_script' in row else 'missing'}"
        raise InputError(what, where, "bash that runs its tests: with none, every patch would count as right")


def _tests(value: Any, where: str, field: str) -> list[str]:
    """Returns a list of test ids, which SWE-bench writes as a JSON string. Omits PHANTOMS."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise InputError(f"field {field} is no JSON list", where, "a list of test ids") from None
    if not isinstance(value, list) or not all(isinstance(test, str) and test for test in value):
        raise InputError(f"field {field} is no list of strings", where, "a list of test ids")
    return [test for test in value if not PHANTOMS.fullmatch(test)]
