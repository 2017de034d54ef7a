"""Makes the witness of a task: its tests in question form, and the values that the gold patch emits in them.

The question is run on the gold patch and on the code with the bug.
"""

import base64
import fnmatch
import json
import posixpath
import random
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from swelab.grading.evidence import WitnessRun
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.protected import test_folders
from swelab.grading.harness.question_run import PATTERNS, Answer, QuestionRun
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.grading.harness.testimony import cases_apart, gold_apart, own_standing
from swelab.grading.validation.validation_batches import Batch
from swelab.grading.validation.witness_sources import task_sources
from swelab.grading.witness_store import KeptWitness
from swelab.jobs.bounded_calls import Unread
from swelab.records import InputError
from swelab.records.attempt_records import UNASKED, GradeWitness
from swelab.records.patch_reader import read_patch, touched_paths
from swelab.records.patches import Patch
from swelab.records.task_records import Task
from swelab.sandbox import Limits, Sandbox, SandboxError
from swelab.tasks.checkout import gold_patch
from swelab.witness.emitted import by_case, needs, serialize
from swelab.witness.forming import Question, command_args, form

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


OTHERS = 3
"""Maximum number of already passing tests per task that are also turned into questions."""

_TEST_NAME = re.compile(r"(test_.*|.*_test)\.py")


def make_witnesses(tasks: Sequence[Task], bench: Bench, together: bool = False) -> WitnessRun:
    """Makes the witnesses of tasks that share a clean tree. Records a reason for each task without a witness.

    together: whether the tests and bugs of the tasks are in different files, so that the tasks can share
    runs. Raises InputError if a task is unusable.
    """
    start = time.monotonic()
    standings: dict[str, GradeWitness] = {}
    packed: dict[str, str] = {}
    try:
        asked = list(_form_questions(tasks, bench, standings))
        ask_all(asked, bench, together)
        for each in asked:
            name = each.task.instance_id
            standings[name], witness = _witness(each)
            if witness:
                packed[name] = pack(witness)
    except (SandboxError, OSError, MemoryError) as error:
        return WitnessRun(lost=f"{type(error).__name__}: {error}")
    return WitnessRun(standings=standings, packed=packed, seconds=round(time.monotonic() - start, 3))


def pack(witness: KeptWitness) -> str:
    """Returns the witness as one line of text."""
    return base64.b64encode(zlib.compress(json.dumps(witness).encode(), 6)).decode()


def unpack(text: str) -> KeptWitness:
    """Returns the witness that `pack` encoded."""
    return KeptWitness.of(json.loads(zlib.decompress(base64.b64decode(text))))


def _form_questions(
    tasks: Sequence[Task], bench: Bench, standings: dict[str, GradeWitness]
) -> Iterator[TaskQuestion]:
    """Yields the tasks whose tests have a question form.

    Writes the reason for each other task to `standings`.
    """
    number = 0
    for task in tasks:
        spec = read_spec(task)
        if not spec.by_pytest:
            standings[task.instance_id] = _not("pytest does not run its tests")
            continue
        homes = roots(spec.gold)
        sources, assertions = task_sources(task, spec, bench, homes)
        draw = random.Random(f"witness {task.instance_id}")
        others = draw.sample(spec.pass_to_pass, min(OTHERS, len(spec.pass_to_pass)))
        question = form(sources, [*spec.fail_to_pass, *others], homes, assertions, number)
        formed = [test for test in spec.fail_to_pass if test in question.manifest.tests]
        if not formed:
            first = spec.fail_to_pass[0]
            standings[task.instance_id] = _not(f"{first}: {question.unformed.get(first, 'it has no form')}")
            continue
        there = {*question.files, *question.removed}
        kept = [
            path for path in sources if _TEST_NAME.fullmatch(posixpath.basename(path)) and path not in there
        ]
        gold = spec.gold_fix if task.instance_id in bench.images else gold_patch(bench.store, task)
        number += len(question.manifest.questions)
        yield TaskQuestion(task, spec, gold, question, kept)


def _not(reason: str) -> GradeWitness:
    return GradeWitness(standing=UNASKED, reason=reason)


def roots(gold: str) -> set[str]:
    """Returns the names of the packages that a patch changes."""
    parts = [path.removeprefix("src/").removeprefix("lib/").split("/") for path in touched_paths(gold)]
    return {each[0].removesuffix(".py") for each in parts if each[-1].endswith(".py")}


def _witness(asked_task: TaskQuestion) -> tuple[GradeWitness, KeptWitness | None]:
    """Returns (how strongly the gold patch is confirmed, the witness).

    The witness is None if it is not confirmed enough.
    """
    question, repaired = asked_task.question, list(asked_task.spec.fail_to_pass)
    own, bug = asked_task.own or Answer(b""), asked_task.bug or Answer(b"")
    gold, answers = [asked_task.first.values, own.values], asked_task.answers
    try:
        values = gold_apart(question.manifest, gold, answers.values, bug.values)
    except Unread as fault:
        return _not(f"its values cannot be read: {fault}"), None
    standing = own_standing(question.manifest, values, repaired)
    ended = next((each.ended for each in (asked_task.first, own, answers) if each.ended), "")
    if ended and standing.standing != "witnessed":
        standing = standing | {"reason": f"{standing.reason} (its question ended with {ended})"}
    if standing.standing not in ("witnessed", "weakly_witnessed"):
        return standing | {"standing": UNASKED}, None
    witness = KeptWitness(
        files=question.files,
        kept=asked_task.further,
        patterns=asked_task.patterns,
        whole=asked_task.whole,
        removed=question.removed,
        cases=asked_task.cases,
        args=command_args(question.targets),
        repaired=repaired,
        manifest=question.manifest,
        gold=values,
    )
    return standing, witness
