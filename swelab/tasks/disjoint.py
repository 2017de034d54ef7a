"""Checks that a policy was not trained on the tasks on which it is scored.

Also refuses to train or validate on tasks of published evaluation sets.
"""

from collections import Counter
from collections.abc import Iterable

from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.tasks.identity import change, repo_commit


class EvaluationTasks:
    """Counts the tasks of each evaluation set. A task's row names its evaluation set."""

    def __init__(self) -> None:
        self.total, self.counts = 0, Counter[str]()
        self.first: dict[str, str] = {}

    def note(self, task: Task) -> Task:
        """Counts a task and returns it."""
        self.total += 1
        if name := task.evaluation_set:
            self.counts[name] += 1
            self.first.setdefault(name, task.instance_id)
        return task

    def refuse(self, use: str) -> None:
        """Raises InputError if a counted task belongs to an evaluation set.
        use: intended use of the tasks."""
        if not self.counts:
            return
        told = "; ".join(
            f"{count} of {self.total} tasks are of {name}, such as {self.first[name]}"
            for name, count in self.counts.items()
        )
        drops = f"`leave_out: [{', '.join(self.counts)}]` in the subset drops these"
        raise InputError(f"an evaluation set is no set to {use}: {told}", expected=f"other tasks; {drops}")


SHOWN = 5


def check_disjoint(train: Iterable[Task], heldout: Iterable[Task], same_commit: str = "refuse") -> Record:
    """Checks that train and held-out tasks share no instance, function, bug, or start commit.

    Returns the numbers of these items on each side. A function is (repository recipe, "path::Qual.name").
    Rows of a published set have no functions. A bug is the hash in its row, or the hash of the change that
    repairs the bug. If `same_commit` is "report", shared start commits are allowed, and the result lists them
    under `same_commit`. Raises InputError with the items that both sides share. Raises InputError for
    training tasks that belong to published evaluation sets.
    """
    known = EvaluationTasks()
    sides = {"train": _identities(map(known.note, train)), "heldout": _identities(heldout)}
    ours, theirs = sides.values()
    known.refuse("train on")
    shared = {kind: sorted(ids & theirs[kind]) for kind, ids in ours.items()}
    facts = {"same_commit": shared.pop("repo_commit")} if same_commit == "report" else {}
    overlaps = {kind: ids for kind, ids in shared.items() if ids}
    if overlaps:
        listed = [f"{len(ids)} by {kind} ({_some(ids)})" for kind, ids in overlaps.items()]
        wanted = "no task on both sides: `exclude` in the subset takes a benchmark's out"
        raise InputError(f"train and heldout overlap: {', '.join(listed)}", expected=wanted)
    counts = {side: {kind: len(ids) for kind, ids in kinds.items()} for side, kinds in sides.items()}
    return {"disjoint": True, **facts, **counts}


def _identities(tasks: Iterable[Task]) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {"instance_id": set(), "function": set(), "bug": set(), "repo_commit": set()}
    for task in tasks:
        function = f"{task.repo_recipe or task.repo}:{task.function}" if task.function else ""
        found = (task.instance_id, function, change(task), repo_commit(task))
        for known, value in zip(kinds.values(), found):
            known.update([value] if value else [])
    return kinds


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
