"""A task whose witness question runs at validation, and the values that its runs have emitted so far."""

import fnmatch
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from swelab.grading.harness.protected import test_folders
from swelab.grading.harness.question_run import PATTERNS, Answer, QuestionRun
from swelab.grading.harness.spec import RunSpec
from swelab.grading.harness.testimony import cases_apart
from swelab.records.task_records import Task
from swelab.witness.forming import Question, command_args

_QUESTION = re.compile(r"(^|/)(__pycache__/|test_question_\d+\.py$)")


@dataclass
class TaskQuestion:
    """A task whose tests have a question form, and what the runs of the question have emitted so far.

    listed: test files that the question's text needs. further: all test files that the first run needed.
    patterns: name patterns of test files in addition to pytest's own. whole: whether the test folders stay
    complete. cases: numbers of the test cases that are run, by question file.

    The emitted values: first: from the gold patch, in a sandbox that tasks share. own: from the gold patch,
    in a sandbox like that at grading. answers: from the form of the question that has the expected values.
    bug: from the code without a patch.
    """

    task: Task
    spec: RunSpec
    patch: str
    question: Question
    listed: list[str]
    further: list[str] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)
    whole: bool = True
    cases: dict[str, list[int]] = field(default_factory=dict)
    first: Answer = Answer(b"")
    own: Answer | None = None
    answers: Answer = Answer(b"")
    bug: Answer | None = None

    def learn(self, first: Answer, answers: Answer, needed: tuple[list[str], list[str]] | None) -> None:
        """Stores what the first sandbox emitted.

        needed: name patterns and files that its run needed (`emitted.needs`).
        """
        self.first, self.answers, self.whole = first, answers, needed is None
        patterns, paths = needed or ([], [])
        self.patterns = sorted(filter(_is_of_tests, patterns))
        self.further = sorted({*self.listed, *self.of_tests(paths)})
        self.cases = cases_apart(self.question.manifest, answers.values)

    def of_tests(self, paths: Iterable[str]) -> list[str]:
        """Returns the paths that belong to tests, without the files of questions.

        Such a path is removed at grading if the question does not need it.
        """
        files = self.spec.test_paths
        folders, names = tuple(f"{each}/" for each in test_folders(files)), [*PATTERNS, *self.patterns]
        return [
            path
            for path in paths
            if path in files or path.startswith(folders) or any(_matches(path, name) for name in names)
            if not _QUESTION.search(path)
        ]

    def ask(self, run: QuestionRun, answers: bool = False) -> Answer:
        """Runs the question.

        With `answers`, runs the form of the question that still has the expected values.

        A run that meets its wall-time limit is repeated once, since the machine may have been busy. Values
        that are not emitted here could never count at grading.
        """
        asked = self.question
        files, args = asked.answers if answers else asked.files, command_args(asked.targets)
        rest = (args, asked.removed, {*self.listed, *self.further}, self.patterns, self.whole, self.cases)
        answer = run.ask(files, *rest)
        return run.ask(files, *rest) if answer.ended == "wall" else answer


def _matches(path: str, pattern: str) -> bool:
    """Returns whether `find` would match the pattern.

    A pattern with a slash is matched with the path, others with the file name.
    """
    if "/" in pattern:
        return fnmatch.fnmatchcase(f"./{path}", f"*/{pattern}")
    return fnmatch.fnmatchcase(posixpath.basename(path), pattern)


def _is_of_tests(pattern: str) -> bool:
    """Returns whether a file name pattern is specific to tests: `*.py` would also match the code."""
    return bool(re.search(r"\w", pattern.removesuffix(".py"))) and pattern not in PATTERNS
