"""Resets the repository in an image to a task's start, so that its history ends at the base commit.
All commands run inside the sandbox. So programs that the repository's configuration names run only there."""

import re
import secrets
from pathlib import Path

from swelab.records import Fault, shorten
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch, touched_paths
from swelab.records.task_records import Task
from swelab.sandbox import Limits, Sandbox, SandboxLost
from swelab.tasks.patch_application import encode_patch

SCRIPT = Path(__file__).with_name("scrub.sh")
LIMITS = Limits(
    wall_seconds=900,
    cpu_seconds=900,
    memory_bytes=8 << 30,
    file_bytes=16 << 30,
    disk_bytes=32 << 30,  # the maximum that a host of the pool allows
    output_bytes=1 << 20,
)


class HistoryRefused(Fault):
    """Raised if later commits cannot be removed, or if HEAD is not at the task's base commit."""


def start_files(task: Task) -> dict[str, bytes]:
    """Maps names to the files for `start_command`. The patch file is empty if the patch is the answer.
    Raises HistoryRefused."""
    try:
        patch = read_patch(task.patch if task.is_bug else "")
    except PatchRefused as refusal:
        raise HistoryRefused(f"{task.instance_id}: the row's patch is refused: {refusal}") from None
    lists = {"touched": touched_paths(task.patch), "removed": task.failing_files if task.is_bug else []}
    files = {"scrub.sh": SCRIPT.read_bytes(), "patch": encode_patch(patch.text)}
    for name, paths in lists.items():
        kept = [path for path in paths if not path.startswith("/") and ".." not in path.split("/")]
        files[name] = b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in kept)
    return files


def start_command(task: Task, folder: str) -> str:
    """Returns the shell line that resets the repository in the working directory to the task's start.
    folder: contains `start_files`. The command removes the folder. Raises HistoryRefused."""
    kind, wanted = ("bug", task.instance_id) if task.is_bug else ("fix", task.base_commit or "")
    kind = "any" if task.by_script else kind
    if not re.fullmatch(r"[A-Za-z0-9_.+-]*", wanted):
        raise HistoryRefused(f"{task.instance_id}: {shorten(wanted)!r} is not a commit")
    return f"bash {folder}/scrub.sh {kind} '{wanted}' {folder}"


def prepare(sandbox: Sandbox, task: Task) -> str:
    """Resets a fresh sandbox of the task's image to the task's start. Returns the base commit.

    If the row's patch is the fix, the start is the row's base commit with its history. It may also be the
    benchmark's set-up commit after the base commit. If the row's patch is the bug, the start is a single
    commit of the buggy code. So no parent and no branch shows the clean code. Other changes in the working
    copy are committed, with the same hash each time. If a script judges the task, a folder without git
    becomes such a repository. Raises HistoryRefused, SandboxError.
    """
    folder = f"/tmp/swelab-{secrets.token_hex(8)}"
    command = start_command(task, folder)
    for name, content in start_files(task).items():
        sandbox.put(f"{folder}/{name}", content)
    result = sandbox.exec(command, limits=LIMITS)
    lines = result.output.decode(errors="replace").strip().splitlines() or [f"exit {result.returncode}"]
    word, _, rest = lines[-1].partition(" ")
    if result.returncode == 0 and word == "BASE" and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", rest):
        return rest
    if word == "REFUSED":
        raise HistoryRefused(f"{task.instance_id}: {shorten(rest)}")
    if result.limit in ("memory", "disk", "wall"):
        raise SandboxLost(f"rebuilding the repository met the {result.limit} limit")
    raise HistoryRefused(f"{task.instance_id}: the repository could not be rebuilt: {shorten(lines[-1])}")
