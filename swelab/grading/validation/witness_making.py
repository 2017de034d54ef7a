"""Makes the witness of a task: its tests as a question, and the values that the gold patch emits in it.

The gold patch runs the question three times, in two sandboxes (once with the expected values left in), the
code with the bug once. Tasks that share a clean tree share the sandbox of their gold runs.
"""

import base64
import json
import posixpath
import random
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from swelab.grading.evidence import WitnessRun
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.patches import touched_paths
from swelab.grading.harness.protected import test_folders
from swelab.grading.harness.question_run import PATTERNS, Answer, QuestionRun
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.grading.harness.testimony import cases_apart, gold_apart, own_standing
from swelab.grading.validation.witness_sources import task_sources
from swelab.grading.witness_store import KeptWitness
from swelab.jobs.bounded_calls import Unread
from swelab.records import InputError
from swelab.records.attempt_records import UNASKED, GradeWitness
from swelab.records.task_records import Task
from swelab.sandbox import Limits, Sandbox, SandboxError
from swelab.tasks.checkout import gold_patch
from swelab.witness.emitted import needs
from swelab.witness.forming import Question, form

OTHERS = 3
"""How many tests that pass with the bug too are asked in addition to those to be repaired."""

_TEST_NAME = re.compile(r"(test_.*|.*_test)\.py")


@dataclass
class Asked:
    """A task whose tests have a question form, and what its runs have emitted so far."""

    task: Task
    spec: RunSpec
    patch: str
    question: Question
    kept: list[str]
    gold: list[Answer]
    patterns: list[str] = field(default_factory=list)
    whole: bool = True
    cases: dict[str, list[int]] = field(default_factory=dict)

    def ask(self, run: QuestionRun, answers: bool = False, kept: Iterable[str] = ()) -> Answer:
        """Asks the question, or its form with what is expected left in. kept: files that others need.

        Once the cases of the tests are known, only those are run. A run that meets its time limit is made
        again, since the machine may have been busy: what it did not emit would be missed for good.
        """
        asked = self.question
        files = asked.answers if answers else asked.files
        stay = sorted({*self.kept, *kept})
        rest = (asked.command_args, asked.removed, stay, self.patterns, self.whole, self.cases)
        answer = run.ask(files, *rest)
        return run.ask(files, *rest) if answer.ended == "wall" else answer


def make_witnesses(tasks: Sequence[Task], bench: Bench) -> WitnessRun:
    """The witnesses of tasks that share a clean tree. A task that has none gets a reason.

    Raises InputError (unusable task).
    """
    start = time.monotonic()
    standings: dict[str, GradeWitness] = {}
    packed: dict[str, str] = {}
    try:
        asked = list(_formed(tasks, bench, standings))
        _ask_gold(asked, bench)
        for each in asked:
            name = each.task.instance_id
            standings[name], witness = _witness(each, _ask_bug(each, bench))
            if witness:
                packed[name] = pack(witness)
    except (SandboxError, OSError, MemoryError) as error:
        return WitnessRun(lost=f"{type(error).__name__}: {error}")
    return WitnessRun(standings=standings, packed=packed, seconds=round(time.monotonic() - start, 3))


def pack(witness: KeptWitness) -> str:
    """A witness as a line of text."""
    return base64.b64encode(zlib.compress(json.dumps(witness).encode(), 6)).decode()


def unpack(text: str) -> KeptWitness:
    """The inverse of `pack`."""
    return KeptWitness.of(json.loads(zlib.decompress(base64.b64decode(text))))


def _formed(tasks: Sequence[Task], bench: Bench, standings: dict[str, GradeWitness]) -> Iterator[Asked]:
    """The tasks whose tests have a question form; the others get their standing."""
    for task in tasks:
        spec = read_spec(task)
        if not spec.by_pytest:
            standings[task.instance_id] = _not("pytest does not run its tests")
            continue
        homes = roots(spec.gold)
        sources, assertions = task_sources(task, spec, bench, homes)
        draw = random.Random(f"witness {task.instance_id}")
        others = draw.sample(spec.pass_to_pass, min(OTHERS, len(spec.pass_to_pass)))
        question = form(sources, [*spec.fail_to_pass, *others], homes, assertions)
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
        yield Asked(task, spec, gold, question, kept, [])


def _not(reason: str) -> GradeWitness:
    return GradeWitness(standing=UNASKED, reason=reason)


def roots(gold: str) -> set[str]:
    """Names of the packages that a patch changes."""
    parts = [path.removeprefix("src/").removeprefix("lib/").split("/") for path in touched_paths(gold)]
    return {each[0].removesuffix(".py") for each in parts if each[-1].endswith(".py")}


def _ask_gold(asked: Sequence[Asked], bench: Bench) -> None:
    """Asks the questions with the gold patch, in two sandboxes: a value of one sandbox alone is no evidence.
    The first has all files of the tests, and tasks share it, as their clean tree is the same. The second is
    a task's own, with the files that its question needed in the first and without further cases, as at
    grading."""
    if not asked:
        return
    kept = {path for each in asked for path in each.kept}
    with _gold_sandbox(asked[0], bench) as run:
        for each in asked:
            each.gold += [each.ask(run, kept=kept), each.ask(run, answers=True, kept=kept)]
    for each in asked:
        needed = needs(each.gold[0].values)
        if needed:
            patterns, paths = needed
            each.kept = sorted({*each.kept, *filter(_can_be_removed(each.spec), paths)})
            each.patterns = sorted(filter(_is_of_tests, patterns))
        each.whole = needed is None
        each.cases = cases_apart(each.question.manifest, each.gold[1].values)
        with _gold_sandbox(each, bench) as run:
            each.gold.insert(1, each.ask(run))


def _can_be_removed(spec: RunSpec) -> Callable[[str], bool]:
    """Whether a path that a question needs is one that is removed where it is not needed."""
    folders = tuple(f"{folder}/" for folder in test_folders(spec.test_paths))
    return lambda path: path.endswith(".py") or path.startswith(folders) or path in spec.test_paths


def _is_of_tests(pattern: str) -> bool:
    """Whether a pattern of file names is more than wildcards: `*.py` names the code, too."""
    return bool(re.search(r"\w", pattern.removesuffix(".py"))) and pattern not in PATTERNS


@contextmanager
def _gold_sandbox(asked: Asked, bench: Bench) -> Iterator[QuestionRun]:
    """A sandbox with the gold patch. Raises InputError (it does not apply)."""
    with _sandbox(asked, bench) as (sandbox, limits):
        run = QuestionRun(asked.spec, asked.patch, sandbox, limits)
        if run.prepare():
            raise InputError("its gold patch does not apply", asked.task.instance_id)
        yield run


def _ask_bug(asked: Asked, bench: Bench) -> Answer:
    """Asks a question without a patch, in all its cases: an agent that guesses sees all of them, too."""
    with _sandbox(asked, bench) as (sandbox, limits):
        run = QuestionRun(asked.spec, "", sandbox, limits, removed=[])
        run.prepare()
        return replace(asked, cases={}).ask(run)


@contextmanager
def _sandbox(asked: Asked, bench: Bench) -> Iterator[tuple[Sandbox, Limits]]:
    image = bench.images.get(asked.task.instance_id)
    limits = limits_of(Limits(), image)
    assert bench.backend is not None
    with fresh_sandbox(asked.spec, asked.task, bench.store, bench.backend, limits, image) as sandbox:
        yield sandbox, limits


def _witness(asked: Asked, bug: Answer) -> tuple[GradeWitness, KeptWitness | None]:
    """(how well the gold patch is witnessed; the question and gold values, if it is)."""
    question, repaired = asked.question, list(asked.spec.fail_to_pass)
    *gold, answers = [each.values for each in asked.gold]
    try:
        values = gold_apart(question.manifest, gold, answers, bug.values)
    except Unread as fault:
        return _not(f"its values cannot be read: {fault}"), None
    own = own_standing(question.manifest, values, repaired)
    ended = next((each.ended for each in asked.gold if each.ended), "")
    if ended and own.standing != "witnessed":
        own = own | {"reason": f"{own.reason} (its question ended with {ended})"}
    if own.standing not in ("witnessed", "weakly_witnessed"):
        return own | {"standing": UNASKED}, None
    witness = KeptWitness(
        files=question.files,
        kept=asked.kept,
        patterns=asked.patterns,
        whole=asked.whole,
        removed=question.removed,
        cases=asked.cases,
        args=question.command_args,
        repaired=repaired,
        manifest=question.manifest,
        gold=values,
    )
    return own, witness
