"""Runs the witness questions of tasks: three times on the gold patch, once on the code with the bug.

A question run spends most of its time on the start of pytest. So tasks with the same clean tree share a run,
and the emitted values are then split by task. If that fails for a task, its question runs separately.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.question_run import Answer, QuestionRun
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.grading.validation.asked_task import TaskQuestion
from swelab.grading.validation.validation_batches import Batch
from swelab.records import InputError
from swelab.records.patch_reader import read_patch
from swelab.records.patches import Patch
from swelab.sandbox import Limits, Sandbox
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


def ask_all(questions: Sequence[TaskQuestion], bench: Bench, together: bool) -> None:
    """Runs the questions of tasks that share a clean tree, and stores the emitted values in `questions`.

    The gold patch runs in two sandboxes: a value counts only if it is emitted in both. together: whether the
    tests and bugs of the tasks are in different files, so that all can share one tree. Raises InputError if a
    task is unusable. Raises SandboxError, OSError.
    """
    if len(questions) > 1:
        _ask_gold_jointly(questions, bench, together)
    alike = [each for each in questions if each.own is not None]
    _ask_gold_alone([each for each in questions if each.own is None], bench)
    if together and len(alike) > 1:
        with _bug_sandbox(alike, bench) as run:
            answers = JointQuestion(alike).ask(run, every_case=True)
        for each, answer in zip(alike, answers, strict=False):
            each.bug = answer
    for each in questions:
        if each.bug is None:
            with _bug_sandbox([each], bench) as run:
                each.bug = replace(each, cases={}).ask(run)


def _ask_gold_jointly(questions: Sequence[TaskQuestion], bench: Bench, together: bool) -> None:
    """Runs questions on the gold patch in shared runs. `own` stays None for a task without usable values.

    All tasks share the first run. Each second run has one task, as at grading. With `together`, there are two
    second runs with half of the tasks each, in another order.
    """
    joint = JointQuestion(questions)
    with _gold_sandbox(questions, bench) as run:
        first = joint.ask(run)
        answers = joint.ask(run, answers=True)
    if not first or not answers or joint.strays():
        return
    for each, plain, expected in zip(questions, first, answers, strict=True):
        each.learn(plain, expected, joint.needed)
    half = len(questions) // 2
    parts = (
        [[*questions[1:half], questions[0]], questions[half:]] if together else [[each] for each in questions]
    )
    for part in parts:
        with _gold_sandbox(part, bench) as run:
            own = JointQuestion(part).ask(run)
        for each, answer in zip(part, own, strict=False):
            each.own = answer if agree(answer, each.first) else None


def _ask_gold_alone(questions: Sequence[TaskQuestion], bench: Bench) -> None:
    """Runs the question of each task on its gold patch, one task at a time.

    The first sandbox has all test files, and the tasks share it. The second sandbox has only the test files
    that the question needed in the first sandbox, as at grading.
    """
    if not questions:
        return
    known = sorted({path for each in questions for path in each.listed})
    with _gold_sandbox(questions, bench) as run:
        for each in questions:
            whole = replace(each, whole=True, cases={}, patterns=[], further=known)
            first = whole.ask(run)
            each.learn(first, whole.ask(run, answers=True), needs(first.values))
    for each in questions:
        with _gold_sandbox([each], bench) as run:
            each.own = each.ask(run)


@contextmanager
def _gold_sandbox(questions: Sequence[TaskQuestion], bench: Bench) -> Iterator[QuestionRun]:
    """Opens a sandbox with the gold patch. Raises InputError if the gold patch does not apply."""
    with _sandbox(questions[:1], bench) as (sandbox, limits):
        run = QuestionRun(JointQuestion(questions).spec, read_patch(questions[0].patch), sandbox, limits)
        if run.prepare():
            raise InputError("its gold patch does not apply", questions[0].task.instance_id)
        yield run


@contextmanager
def _bug_sandbox(questions: Sequence[TaskQuestion], bench: Bench) -> Iterator[QuestionRun]:
    """Opens a sandbox with the bugs of all these tasks.

    All cases of the tests run in this sandbox, since an agent that guesses may see all cases.
    """
    with _sandbox(questions, bench) as (sandbox, limits):
        run = QuestionRun(JointQuestion(questions).spec, Patch(), sandbox, limits, removed=[])
        run.prepare()
        yield run


@contextmanager
def _sandbox(questions: Sequence[TaskQuestion], bench: Bench) -> Iterator[tuple[Sandbox, Limits]]:
    first, *others = questions
    image = bench.images.get(first.task.instance_id)
    limits = limits_of(Limits(), image)
    assert bench.backend is not None
    tasks = [each.task for each in others]
    with fresh_sandbox(first.spec, first.task, bench.store, bench.backend, limits, image, tasks) as sandbox:
        yield sandbox, limits
