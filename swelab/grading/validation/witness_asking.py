"""Asks the questions of tasks at validation: the gold patch three times, the code with the bug once.

Most of what a question costs is the start of pytest. So the questions of tasks that share a clean tree go
into one run, whose emitted values are then separated by task. If that fails for a task, its question is run
alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.question_run import QuestionRun
from swelab.grading.validation.asked_task import TaskQuestion
from swelab.grading.validation.joint_question import JointQuestion, agree
from swelab.records import InputError
from swelab.sandbox import Limits, Sandbox
from swelab.witness.emitted import needs


def ask_all(questions: Sequence[TaskQuestion], bench: Bench, together: bool) -> None:
    """Asks the questions of tasks that share a clean tree.

    The gold patch is run in two sandboxes: a value from only one sandbox is no evidence. together: the tasks
    disturb one another neither by their tests nor by their bugs, which are in different files. Raises
    InputError (unusable task), SandboxError, OSError.
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
    """Asks the gold patch in shared runs; `own` stays None where they are of no use to a task.

    The second run is a task's own, as at grading. With `together` halves of the tasks share it, each task at
    another place than in the first run.
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
    """Asks the gold patch about each task by itself. The first sandbox, which tasks share, has all files of
    the tests; the second has those that the question needed in the first, as at grading."""
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
    """A sandbox with the gold patch. Raises InputError (it does not apply)."""
    with _sandbox(questions[:1], bench) as (sandbox, limits):
        run = QuestionRun(JointQuestion(questions).spec, questions[0].patch, sandbox, limits)
        if run.prepare():
            raise InputError("its gold patch does not apply", questions[0].task.instance_id)
        yield run


@contextmanager
def _bug_sandbox(questions: Sequence[TaskQuestion], bench: Bench) -> Iterator[QuestionRun]:
    """A sandbox with the bugs of all these tasks. All their cases are run in it, since an agent that guesses
    sees them, too."""
    with _sandbox(questions, bench) as (sandbox, limits):
        run = QuestionRun(JointQuestion(questions).spec, "", sandbox, limits, removed=[])
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
