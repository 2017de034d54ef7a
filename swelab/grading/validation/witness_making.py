"""Makes the witness of a task: its tests in question form, and the values that the gold patch emits in them.

`witness_asking` runs the question on the gold patch and on the code with the bug.
"""

import base64
import json
import posixpath
import random
import re
import time
import zlib
from collections.abc import Iterator, Sequence

from swelab.grading.evidence import WitnessRun
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.question_run import Answer
from swelab.grading.harness.spec import read_spec
from swelab.grading.harness.testimony import gold_apart, own_standing
from swelab.grading.validation.asked_task import TaskQuestion
from swelab.grading.validation.witness_asking import ask_all
from swelab.grading.validation.witness_sources import task_sources
from swelab.grading.witness_store import KeptWitness
from swelab.jobs.bounded_calls import Unread
from swelab.records.attempt_records import UNASKED, GradeWitness
from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import Task
from swelab.sandbox import SandboxError
from swelab.tasks.checkout import gold_patch
from swelab.witness.forming import command_args, form

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
