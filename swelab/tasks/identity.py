"""Identity of tasks: two tasks are the same if they share the instance, the start commit, or the repair."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from swelab.records.task_records import Task
from swelab.tasks.patch_text import file_changes

_MIRROR = re.compile(r"[^/]+/(.+?)__(.+)\.([0-9a-f]{8})")
_COMMIT = re.compile(r"[0-9a-f]{8,64}")


def repo_commit(task: Task) -> str:
    """ "owner/name@commit" of the code that a published row starts from: lower case, 8 digits; or "".

    SWE-smith's rows have this repository and commit in the name of the mirror repository; their `base_commit`
    is a commit of the mirror. Tasks made here get "": train and held-out tasks share their repositories, and
    are kept apart by function.
    """
    if not task.in_image:
        return ""
    if mirror := _MIRROR.fullmatch(task.repo):
        owner, name, commit = mirror.groups()
        return f"{owner}/{name}@{commit}".lower()
    commit = str(task.base_commit or "").lower()
    return f"{task.repo.lower()}@{commit[:8]}" if _COMMIT.fullmatch(commit) else ""


def change(task: Task) -> str:
    """The hash of a task's bug: from our own row, otherwise from the repairing change; "" if unknown."""
    if task.bug and not task.in_image:
        return task.bug
    return change_hash(task.patch, backwards=task.is_bug) if task.patch else ""


def change_hash(patch: str, backwards: bool = False) -> str:
    """Hash (16 hex digits) of a patch's files, changed and context lines, not of its line numbers.

    backwards: hash the reversed patch. So a mirrored pull request, whose row has the bug, gets the hash of
    the same pull request in a set whose rows have the fix.
    """
    removed, added = ("+", "-") if backwards else ("-", "+")
    text: list[str] = []
    for file in file_changes(patch):
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
        """The identities of these tasks; reads one task at a time."""
        found = cls()
        for task in tasks:
            found.instance.add(task.instance_id)
            found.repo_commit.add(repo_commit(task))
            found.patch.add(change(task))
        found.repo_commit.discard("")
        found.patch.discard("")
        return found

    def shares(self, task: Task) -> str:
        """Which identity a task shares: excluded_instance, excluded_repo_commit, excluded_patch, or ""."""
        if task.instance_id in self.instance:
            return "excluded_instance"
        if self.repo_commit and repo_commit(task) in self.repo_commit:
            return "excluded_repo_commit"
        return "excluded_patch" if self.patch and change(task) in self.patch else ""
