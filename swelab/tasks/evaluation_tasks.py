"""Refuses to train or validate on tasks of published evaluation sets."""

from collections import Counter

from swelab.records import InputError
from swelab.records.task_records import Task


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
