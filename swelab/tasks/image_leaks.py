"""Finds leaks of a task's answer in its image: repaired copies of files, and copies of the git history."""

import re
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from swelab.records import shorten
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch, touched_paths
from swelab.records.task_records import Leak, Task
from swelab.sandbox import WORKDIR, Backend, Image, Limits, PathRefused, Sandbox, SandboxLost
from swelab.tasks.image_history import HistoryRefused, prepare
from swelab.tasks.patch_application import apply_patch

_AGAIN = f"-type d -samefile {WORKDIR} ! -path {WORKDIR}"  # /testbed under the path that it has in the image
ALL_FILES = f"\\( -path /proc -o -path /sys -o -path /dev -o {_AGAIN} \\) -prune -o -type f"
"""Expression of `find /` that lists each regular file that an agent may see, once."""
_LIST = f"find / {ALL_FILES} -print0"
_LIMITS = Limits(wall_seconds=600, cpu_seconds=600, memory_bytes=4 << 30, file_bytes=1 << 30)
_SPOILED = (".orig", ".rej", "~", ".bak", ".old")
_STORE = re.compile(r"(.*/objects)/(?:pack/pack-[0-9a-f]+\.pack|[0-9a-f]{2}/[0-9a-f]{38,62})")
_BIGGEST_COPY = 4 << 20


def check_image(backend: Backend, image: Image, tasks: Sequence[Task]) -> tuple[int, list[Leak]]:
    """Searches an image, in a separate sandbox. Returns (number of tasks, leaks). Raises SandboxError."""
    leaks = list[Leak]()
    with backend.start(None, image=image, limits=_LIMITS) as sandbox:
        files = _files(sandbox)
        for task in tasks:
            copies = _leaks_in_copies(sandbox, task, files)
            leaks += [Leak(instance_id=task.instance_id, what=what) for what in copies]
        leaks += [Leak(instance_id="", what=what) for what in _histories(sandbox, files)]
        try:
            prepare(sandbox, tasks[0])
        except HistoryRefused as fault:
            leaks.append(Leak(instance_id="", what=str(fault)))
    return len(tasks), leaks


def _files(sandbox: Sandbox) -> list[str]:
    """Returns the paths of all regular files that an agent can see."""
    paths = _output(sandbox, _LIST, 256 << 20).split(b"\0")[:-1]
    if not paths:
        raise SandboxLost("the files of the image could not be listed")
    return [path.decode("utf-8", "surrogateescape") for path in paths]


def _output(sandbox: Sandbox, command: str, most: int) -> bytes:
    """Returns the command's standard output, or b"" if it is longer than `most`.
    Output that the image's shell adds is excluded."""
    path = f"/tmp/swelab-{secrets.token_hex(8)}"
    sandbox.exec(f"( {command} ) > {path} 2>/dev/null", limits=_LIMITS).check()
    try:
        return sandbox.get(path, most)
    except (PathRefused, FileNotFoundError):
        return b""
    finally:
        sandbox.exec(f"rm -f {path}")


def _leaks_in_copies(sandbox: Sandbox, task: Task, files: list[str]) -> Iterator[str]:
    """Yields the leaks in copies of the files that the task's patch changes."""
    wanted = {name: PurePosixPath(name).name for name in touched_paths(task.patch)}
    for path in files:
        for name, base in wanted.items():
            if path == f"{WORKDIR}/{name}" or not _is_copy(path, name, base):
                continue
            if path.endswith(f"{name}.rej"):
                yield f"{path} holds a rejected part of a patch"
            elif _solves(_output(sandbox, f"cat -- {shlex.quote(path)}", _BIGGEST_COPY), task, name):
                yield f"{path} holds the answer to {name}"


def _is_copy(path: str, name: str, base: str) -> bool:
    """Returns whether `path` could be a copy of the file `name`.
    A copy has the same name and parent folder, or the same name with a suffix of backup files."""
    last = path.rpartition("/")[2]
    if last == base:
        tail = "/".join(PurePosixPath(name).parts[-2:])
        return path.endswith(f"/{tail}")
    return last.startswith(base) and last.removeprefix(base) in _SPOILED


def _solves(content: bytes, task: Task, name: str) -> bool:
    """Returns whether `content` is a version of the file `name` with the fix.
    In that case, git can apply the reverse of the fix to it."""
    with tempfile.TemporaryDirectory() as folder, suppress(PatchRefused):
        part = read_patch(task.patch).only(lambda change: name in (change.path, change.source)).text
        place = Path(folder) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return apply_patch(Path(folder), part, "--check", reverse=not task.is_bug).returncode == 0
    return False


def _histories(sandbox: Sandbox, files: list[str]) -> Iterator[str]:
    """Yields a leak for each git object store outside the repository that contains the repository's HEAD."""
    own = f"{WORKDIR}/.git/objects"
    stores = {found[1] for path in files if (found := _STORE.fullmatch(path))} - {own}
    head = sandbox.exec("git -c safe.directory='*' rev-parse --verify -q HEAD").output.decode(
        errors="replace"
    )
    for store in sorted(stores):
        if not re.fullmatch(r"[0-9a-f]{40,64}", head.strip()):
            return
        command = (
            "export GIT_DIR=$(mktemp -d) && git init -q && "
            f"GIT_ALTERNATE_OBJECT_DIRECTORIES={shlex.quote(store)} git cat-file -e {head.strip()}"
        )
        if sandbox.exec(command).returncode == 0:
            yield f"{shorten(store)} is another copy of the repository's history"
