"""Makes rows for task folders whose own `tests/test.sh` judges. The rows have neither tests nor a patch."""

import base64
import os
import re

from swelab.records.task_records import Task
from swelab.tasks.forge.archive import write_tar
from swelab.tasks.forge.own_repository import Files
from swelab.tasks.harbor.harbor_folder import SOLUTION, HarborFolder, Refused, bytes_in, file_in

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
