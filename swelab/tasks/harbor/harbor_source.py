"""The task source `harbor`: makes tasks from Harbor's task folders.
Refuses folders that our graders cannot judge. Prints the refused folders and counts them by reason."""

import base64
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swelab.configs.kinds.subset import HarborSubset
from swelab.images.image_names import parse_image_name
from swelab.records import InputError, check, check_text, write_bytes
from swelab.records.task_records import Task
from swelab.tasks.forge.archive import write_tar
from swelab.tasks.forge.own_repository import Files
from swelab.tasks.harbor.harbor_archives import canonical, clean_archive
from swelab.tasks.harbor.harbor_dockerfile import image_of
from swelab.tasks.harbor.harbor_folder import (
    DOCKERFILE,
    SOLUTION,
    HarborFolder,
    Refused,
    bytes_in,
    file_in,
    folders_in,
    read_folder,
    text_in,
)
from swelab.tasks.published_rows import lacks, read_row

MOST_BYTES = 16 << 20
"""Maximum size in bytes of tests/, and of solution/, because the row contains their files."""
_ID = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]{0,199}")


def script_row(folder: HarborFolder) -> Task:
    """Returns a row for a folder whose script judges. The row lacks the image. Raises Refused."""
    if not _ID.fullmatch(folder.name):
        raise Refused("no instance id", f"{folder.name!r} has other characters than A-Z a-z 0-9 _ . + -")
    row = Task.of(
        {
            "instance_id": folder.name,
            "repo": f"harbor/{folder.name}",
            "patch": "",
            "problem_statement": folder.statement,
            "FAIL_TO_PASS": [],
            "PASS_TO_PASS": [],
            "source": "harbor",
            "answers": "script",
            "verifier_tar": _pack(folder, "tests"),
        }
    )
    row = row | ({"verifier_env": folder.verifier_env} if folder.verifier_env else {})
    return row | ({"solution_tar": _pack(folder, "solution")} if file_in(folder.path, SOLUTION) else {})


def _pack(folder: HarborFolder, part: str) -> str:
    """Returns a tar of the files in a subfolder of the task folder, in Base64. Raises Refused."""
    files: Files = {}
    left = MOST_BYTES
    for path in sorted((folder.path / part).rglob("*")):
        name = path.relative_to(folder.path).as_posix()
        if path.is_dir():
            if path.is_symlink():
                raise Refused("a broken file", f"{name} is a link to a folder")
            continue
        data = bytes_in(folder.path, name) or b""
        left -= len(data)
        if left < 0:
            raise Refused("a broken file", f"{part}/ has more than {MOST_BYTES >> 20} MiB")
        files[path.relative_to(folder.path / part).as_posix()] = data, os.access(path, os.X_OK)
    return base64.b64encode(write_tar(files)).decode()


Usable = Callable[[Task], object]
"""A function that raises InputError if the tests of a row cannot run on this machine."""


def make_tasks(
    recipe: HarborSubset, archives: Mapping[str, Path], usable: Usable
) -> tuple[Sequence[Task], dict[str, int]]:
    """Returns the rows of the task folders in `recipe.path`, and the counts of refused folders.

    The counts are a mapping from reasons to numbers of folders. archives: maps names of the recipe's
    repositories to archives. Raises InputError if no folder can be used.
    """
    digests = {name: canonical(path) for name, path in archives.items()}

    def at_hand(folder: HarborFolder) -> None:
        name = folder.repository
        if name not in digests:
            wanted = f"`repos: [{name}]` in the subset's recipe, with configs/repos/{name}.yaml"
            raise Refused("its repository is not named", f"expected {wanted}")
        if digests[name] != folder.ours.get("sha256"):
            raise Refused("its repository is another one", f"results/repos/{name}.tar has other files")

    place, drops, rows = Path(recipe.path).expanduser(), Counter[str](), list[Task]()
    for path, found in read_rows(place, usable, at_hand):
        if isinstance(found, Refused):
            drops[found.reason] += 1
            print(f"refused: {path.name}: {found}", file=sys.stderr)
        else:
            rows.append(found)
    if not rows:
        why = f"no task folder can be used ({dict(drops)})" if drops else "holds no task folder"
        raise InputError(why, place, "Harbor's task folders")
    if recipe.limit and len(rows) > recipe.limit:
        drops["over_limit"] = len(rows) - recipe.limit
    return rows[: recipe.limit or None], dict(sorted(drops.items()))


def read_rows(
    place: Path, usable: Usable, at_hand: Callable[[HarborFolder], None] | None = None
) -> Iterator[tuple[Path, Task | Refused]]:
    """Yields (task folder, row or Refused error) for the task folders, sorted by name. Raises InputError.
    at_hand: function that raises Refused if the repository of a task made by swelab is missing."""
    if not place.is_dir():
        raise InputError("no such folder", place, "a folder of Harbor's task folders")
    folders: dict[str, str] = {}
    for path in folders_in(place):
        try:
            folder = read_folder(path)
            row = task_row(folder, usable)
            if folder.repository and at_hand:
                at_hand(folder)
            first = folders.setdefault(row.instance_id, path.name)
            if first != path.name:
                raise Refused("the same instance_id twice", f"{row.instance_id} is also that of {first}")
            yield path, row
        except Refused as fault:
            yield path, fault


def task_row(folder: HarborFolder, usable: Usable) -> Task:
    """Returns the row of a task folder. Raises Refused."""
    row = _with_image(folder, script_row(folder)) if folder.by_script else _listed_row(folder)
    if folder.seconds and not (folder.ours or row.test_timeout):
        row = row | {"test_timeout": folder.seconds}
    try:
        check(row, Task, folder.name)
        check_text(row, folder.name)
        usable(row)
    except InputError as error:
        raise Refused("no tests that can be run here", str(error)) from None
    return row


def _listed_row(folder: HarborFolder) -> Task:
    """Returns the row in tests/config.json, with its archive or image. Raises Refused."""
    try:
        given = folder.row.items()
        raw = {name: value for name, value in given if value is not None or name != "eval_script"}
        row = read_row({"prompt": folder.statement, "instance": raw}, folder.name)
    except InputError as error:
        said = str(error).removeprefix(f"{folder.name}: ").replace("field instance.", "field ")
        raise Refused("tests/config.json holds no row", said) from None
    row = row | {"problem_statement": folder.statement}
    if missing := lacks(row):
        raise Refused("tests/config.json holds no row", f"{missing.replace('_', ' ', 1)}")
    if folder.repository:
        if row.repo_recipe != folder.repository:
            raise Refused("its repository is another one", f"the row says {row.repo_recipe!r}")
        clean_archive(folder)  # raises Refused if the folder does not contain the repository
        return row
    if row.repo_recipe:
        raise Refused("its repository is not in it", f"no [metadata.swelab] names {row.repo_recipe!r}")
    return _with_image(folder, row)


def _with_image(folder: HarborFolder, row: Task) -> Task:
    """Returns the row with the image from task.toml or the Dockerfile.
    If the row names the same image in another form, this form is kept."""
    named = folder.environment.get("docker_image")
    if named is not None and not (isinstance(named, str) and named):
        raise Refused("task.toml is not Harbor's", f"environment.docker_image is {named!r}")
    text = text_in(folder.path, DOCKERFILE)
    if not named and text is None:
        raise Refused("no image", "neither environment/Dockerfile nor environment.docker_image")
    image = named or image_of(text or "", alone=folder.by_script)
    own = folder.row.get("image_name") or folder.row.get("image")
    try:
        if own and parse_image_name(image).base == parse_image_name(row.image_name).base:
            return row
        parse_image_name(image)
    except InputError as error:
        raise Refused("no image", str(error)) from None
    return Task.of({name: value for name, value in row.items() if name != "image"} | {"image_name": image})


@dataclass
class ImportResult:
    """The result of an import.

    rows: the rows of the usable folders, in the order of the folders' names. refused: maps a folder to the
    reason for refusal.
    """

    rows: list[Task] = field(default_factory=list)
    refused: dict[str, Refused] = field(default_factory=dict)

    def reasons(self) -> dict[str, int]:
        """Returns the number of refused folders for each reason."""
        return dict(Counter(fault.reason for fault in self.refused.values()).most_common())


def import_folders(place: Path, repos: Path, usable: Usable) -> ImportResult:
    """Reads the task folders in a folder, and adds missing archives to `repos`.
    Prints the refused folders. Raises InputError if there is no such folder, or no usable task folder."""
    digests: dict[str, str] = {}

    def keep(folder: HarborFolder) -> None:
        name, expected = folder.repository, str(folder.ours.get("sha256"))
        path = repos / f"{name}.tar"
        if name not in digests:
            if not path.is_file():
                write_bytes(path, clean_archive(folder))
            digests[name] = canonical(path)
        if digests[name] != expected:
            raise Refused("its repository is another one", f"{path} has other files: name another folder")

    result = ImportResult()
    for path, row in read_rows(place, usable, keep):
        if isinstance(row, Refused):
            result.refused[path.name] = row
            print(f"refused: {path.name}: {row}", file=sys.stderr)
        else:
            result.rows.append(row)
    if not result.rows:
        why = f"no task folder can be used ({result.reasons()})" if result.refused else "holds no task folder"
        raise InputError(why, place, "Harbor's task folders")
    return result
