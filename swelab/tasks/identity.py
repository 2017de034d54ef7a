"""Identity of tasks. Two tasks are the same if they share the instance, the start commit, or the repair."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from swelab.records.patch_reader import readable
from swelab.records.task_records import Task

_MIRROR = re.compile(r"[^/]+/(.+?)__(.+)\.([0-9a-f]{8})")
_COMMIT = re.compile(r"[0-9a-f]{8,64}")


def repo_commit(task: Task) -> str:
    """Returns "owner/name@commit" of the code from which a published row starts, or "".

    The text is in lower case, and the commit has 8 digits. In SWE-smith's rows, the name of the mirror
    repository contains the original repository and commit. Tasks that we make return "", because train and
    held-out tasks may share a repository. They are separated by function.
    """
    if not task.in_image:
        return ""
    if mirror := _MIRROR.fullmatch(task.repo):
        owner, name, commit = mirror.groups()
        return f"{owner}/{name}@{commit}".lower()
    commit = str(task.base_commit or "").lower()
    return f"{task.repo.lower()}@{commit[:8]}" if _COMMIT.fullmatch(commit) else ""


def change(task: Task) -> str:
    """Returns the bug's hash in the row of a task that we made, else the hash of the repair.
    Returns "" if the repair is unknown."""
    if task.bug and not task.in_image:
        return task.bug
    return change_hash(task.patch, backwards=task.is_bug) if task.patch else ""


def change_hash(patch: str, backwards: bool = False) -> str:
    """Returns a hash (16 hex digits) of a patch's files and lines, but not of its line numbers.

    Changed lines and context lines count. backwards: hash the reversed patch. Some sets have a pull request's
    reverse as the bug, and others have the pull request as the fix. Both then get the same hash.
    """
    removed, added = ("+", "-") if backwards else ("-", "+")
    text: list[str] = []
    for file in readable(patch).changes:
        text.append(f"file {file.path}")
        run: dict[str, list[str]] = {removed: [], added: []}
        for mark, line in [*file.lines, (" ", "")]:
            if mark != " ":
                run[mark].append(line.rstrip())
                continue
            text += [f"-{each}" for each in run[removed]] + [f"+{each}" for each in run[added]]
            text.append(f" {line.rstrip()}")
            run = {removed: [], added: []}
    whole = "\n".join(text) if any(each[0] in "-+" for each in text) else patch.strip()
    return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@dataclass
class Identities:
    """All instances, start commits and changes of some tasks."""

    instance: set[str] = field(default_factory=set)
    repo_commit: set[str] = field(default_factory=set)
    patch: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> "Identities":
        """Returns the identities of these tasks. Reads one task at a time."""
        identities = cls()
        for task in tasks:
            identities.instance.add(task.instance_id)
            identities.repo_commit.add(repo_commit(task))
            identities.patch.add(change(task))
        identities.repo_commit.discard("")
        identities.patch.discard("")
        return identities

    def shares(self, task: Task) -> str:
        """Returns why a task is the same as one of these tasks, or "".
        The reasons are excluded_instance, excluded_repo_commit and excluded_patch."""
        if task.instance_id in self.instance:
            return "excluded_instance"
        if self.repo_commit and repo_commit(task) in self.repo_commit:
            return "excluded_repo_commit"
        return "excluded_patch" if self.patch and change(task) in self.patch else ""
