"""Runs the witness questions of several tasks in one run of pytest, and splits the emitted values by task."""

import posixpath
from collections.abc import Mapping, Sequence

from swelab.grading.harness.question_run import Answer, QuestionRun
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.grading.validation.asked_task import TaskQuestion
from swelab.grading.validation.validation_batches import Batch
from swelab.witness.emitted import by_case, needs, serialize
from swelab.witness.forming import command_args

_OF_A_FOLDER = ("conftest.py", "__init__.py")
"""Files that pytest loads before any test of their folder."""


class JointQuestion:
    """Tasks with the same clean tree, whose question modules have distinct numbers."""

    def __init__(self, members: Sequence[TaskQuestion]):
        self.members = members
        self.needed: tuple[list[str], list[str]] | None = None
        """Name patterns and files that the first run needed (`emitted.needs`)."""

    @property
    def spec(self) -> RunSpec:
        """The first task's run specification, with the tests, test files and summed time limits of all."""
        return read_spec(Batch.of(*(each.task for each in self.members)).row)

    def ask(self, run: QuestionRun, answers: bool = False, every_case: bool = False) -> list[Answer]:
        """Runs all questions at once and returns the emitted values of each task.

        Returns [] if the values cannot be split by task, or if the run ended early.
        """
        files = self._files(answers)
        removed = {path for each in self.members for path in each.question.removed}
        if files is None or removed & set(files):
            return []
        test_files = {path for each in self.members for path in (*each.listed, *each.further)}
        patterns = {name for each in self.members for name in each.patterns}
        cases = (
            {}
            if every_case
            else {name: numbers for each in self.members for name, numbers in each.cases.items()}
        )
        targets = [target for each in self.members for target in each.question.targets]
        whole = any(each.whole for each in self.members)
        answer = run.ask(
            files, command_args(targets), sorted(removed), sorted(test_files), sorted(patterns), whole, cases
        )
        self.needed = self.needed or needs(answer.values)
        return [] if answer.ended else self._apart(answer.values)

    def strays(self) -> bool:
        """Returns whether the run needed a test file that at least one of the tasks does not list.

        Returns True if the run did not report its needed files.
        """
        if self.needed is None:
            return True
        for each in self.members:
            others = (path for path in each.of_tests(self.needed[1]) if path not in each.listed)
            if any(posixpath.basename(path) not in _OF_A_FOLDER for path in others):
                return True
        return False

    def _files(self, answers: bool) -> dict[str, str] | None:
        """Maps paths to the test modules of all questions.

        Returns None if two tasks need different modules at a path.
        """
        files: dict[str, str] = {}
        for each in self.members:
            own = each.question.answers if answers else each.question.files
            if any(files.get(path, text) != text for path, text in own.items()):
                return None
            files |= own
        return files

    def _apart(self, values: bytes) -> list[Answer]:
        cases = by_case(values)
        owners = {
            posixpath.basename(path): place
            for place, each in enumerate(self.members)
            for path in each.question.manifest.questions
        }
        parts: list[list[str]] = [[] for _ in self.members]
        for node in cases:
            place = owners.get(posixpath.basename(node.partition("::")[0]))
            if place is None:
                return []
            parts[place].append(node)
        if not all(parts):
            return []
        return [Answer(serialize(cases[node] for node in part)) for part in parts]


def agree(own: Answer, first: Answer) -> bool:
    """Returns whether each test of a task's own run emitted the same values in the shared run."""
    theirs: Mapping[str, object] = by_case(first.values)
    mine = by_case(own.values)
    return not own.ended and bool(mine) and all(theirs.get(node) == events for node, events in mine.items())
