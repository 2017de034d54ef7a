"""The witness of a task: its tests as a question, and what the gold patch says in it.

The gold patch says it three times (once with what is expected left in), the code with the bug once. Tasks
that share a clean tree share the sandbox of their gold runs.
"""

import base64
import io
import json
import posixpath
import random
import re
import shlex
import tarfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from swelab.grading.evidence import WitnessRun
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.patches import touched_paths
from swelab.grading.harness.question_run import QuestionRun, Said
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.grading.harness.testimony import gold_apart, own_standing
from swelab.grading.witness_store import KeptWitness
from swelab.jobs.bounded_calls import Unread
from swelab.records import InputError
from swelab.records.attempt_records import UNASKED, GradeWitness
from swelab.records.task_records import Task
from swelab.sandbox import Limits, Sandbox, SandboxError
from swelab.tasks.checkout import encode_patch, gold_patch
from swelab.witness.forming import Question, form

OTHERS = 3
"""How many tests that pass with the bug too are asked in addition to those to be repaired."""

MOST_SOURCE = 4 << 20
_TEST_NAME = re.compile(r"(test_.*|.*_test)\.py")


@dataclass
class Asked:
    """A task whose tests have a question form, and what its runs have emitted so far."""

    task: Task
    spec: RunSpec
    patch: str
    question: Question
    kept: list[str]
    gold: list[Said]

    def ask(self, run: QuestionRun, kept: Iterable[str], answers: bool = False) -> Said:
        """Asks the question, or its form with what is expected left in. kept: test files that stay."""
        asked = self.question
        files = asked.answers if answers else asked.files
        return run.ask(files, asked.command_args, asked.removed, kept)


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
        sources = _sources(task, spec, bench)
        draw = random.Random(f"witness {task.instance_id}")
        others = draw.sample(spec.pass_to_pass, min(OTHERS, len(spec.pass_to_pass)))
        question = form(sources, [*spec.fail_to_pass, *others], roots(spec.gold))
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
    """Asks the questions with the gold patch, in one sandbox, as their clean tree is the same."""
    if not asked:
        return
    kept = {path for each in asked for path in each.kept}
    first = asked[0]
    with _sandbox(first, bench) as (sandbox, limits):
        run = QuestionRun(first.spec, first.patch, sandbox, limits)
        if run.prepare():
            raise InputError("its gold patch does not apply", first.task.instance_id)
        for each in asked:
            each.gold += [each.ask(run, kept, answers=number == 2) for number in range(3)]


def _ask_bug(asked: Asked, bench: Bench) -> Said:
    """Asks a question without a patch."""
    with _sandbox(asked, bench) as (sandbox, limits):
        run = QuestionRun(asked.spec, "", sandbox, limits)
        run.prepare()
        return asked.ask(run, asked.kept)


@contextmanager
def _sandbox(asked: Asked, bench: Bench) -> Iterator[tuple[Sandbox, Limits]]:
    image = bench.images.get(asked.task.instance_id)
    limits = limits_of(Limits(), image)
    assert bench.backend is not None
    with fresh_sandbox(asked.spec, asked.task, bench.store, bench.backend, limits, image) as sandbox:
        yield sandbox, limits


def _witness(asked: Asked, bug: Said) -> tuple[GradeWitness, KeptWitness | None]:
    """(how well the gold patch is witnessed; the question and gold values, if it is)."""
    question, repaired = asked.question, list(asked.spec.fail_to_pass)
    *gold, answers = [said.values for said in asked.gold]
    try:
        values = gold_apart(question.manifest, gold, answers, bug.values)
    except Unread as fault:
        return _not(f"its values cannot be read: {fault}"), None
    told = own_standing(question.manifest, values, repaired)
    ended = next((said.ended for said in asked.gold if said.ended), "")
    if ended and told.standing != "witnessed":
        told = told | {"reason": f"{told.reason} (its question ended with {ended})"}
    if told.standing not in ("witnessed", "weakly_witnessed"):
        return told | {"standing": UNASKED}, None
    witness = KeptWitness(
        files=question.files,
        kept=asked.kept,
        removed=question.removed,
        args=question.command_args,
        repaired=repaired,
        manifest=question.manifest,
        gold=values,
    )
    return told, witness


def _sources(task: Task, spec: RunSpec, bench: Bench) -> dict[str, str]:
    """Text of the files that hold the asked tests, and of the Python files in their folders and above."""
    files = sorted({test.partition("::")[0] for test in spec.listed})
    folders = sorted({folder for path in files for folder in _above(path)})
    if task.instance_id not in bench.images:
        found = _read_tree(bench.store.clean_tree(task), files, folders)
    else:
        found = _read_image(task, spec, bench, files, folders)
    words = set(re.findall(r"\w+", " ".join(text for path, text in found.items() if path in files)))
    return {path: text for path, text in found.items() if _is_needed(path, files, words)}


def _above(path: str) -> Iterator[str]:
    while path:
        path = posixpath.dirname(path)
        yield path or "."


def _is_needed(path: str, files: Iterable[str], words: set[str]) -> bool:
    name = posixpath.basename(path).removesuffix(".py")
    return path in files or name == "conftest" or name in words


def _read_tree(tree: Path, files: Iterable[str], folders: Iterable[str]) -> dict[str, str]:
    own = {posixpath.dirname(path) or "." for path in files}
    found, size = {}, 0
    for folder in folders:
        names = "*.py" if folder in own else "conftest.py"
        for path in sorted((tree / folder).glob(names)):
            size += path.stat().st_size
            if path.is_file() and not path.is_symlink() and size < MOST_SOURCE:
                found[path.relative_to(tree).as_posix()] = path.read_text("utf-8", "replace")
    return found


def _read_image(
    task: Task, spec: RunSpec, bench: Bench, files: Sequence[str], folders: Sequence[str]
) -> dict[str, str]:
    """The same from the task's image, with the tests of its fix."""
    image = bench.images[task.instance_id]
    own = sorted({posixpath.dirname(path) or "." for path in files})
    lines = ["{", *spec.setup]
    if spec.tests_diff:
        lines += ["git apply --whitespace=nowarn /tmp/tests.diff"]
    lines += ["} >/dev/null 2>&1 </dev/null", "shopt -s nullglob"]
    names = [f"{shlex.quote(folder)}/conftest.py" for folder in folders]
    names += [f"{shlex.quote(folder)}/*.py" for folder in own]
    lines += [f"for f in {' '.join(names)}; do [ -f $f ] && printf '%s\\0' $f; done | sort -zu | "
              "tar -c --null -T - --ignore-failed-read 2>/dev/null"]  # fmt: skip
    limits = replace(limits_of(Limits(), image), output_bytes=2 * MOST_SOURCE, wall_seconds=300)
    assert bench.backend is not None
    with fresh_sandbox(spec, task, bench.store, bench.backend, limits, image) as sandbox:
        sandbox.put("/tmp/tests.diff", encode_patch(spec.tests_diff))
        done = sandbox.exec("\n".join(lines), limits=limits)
    if done.dropped_bytes or not done.output:
        return {}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(done.output)) as tar:
        for entry in tar:
            if entry.isreg() and (stream := tar.extractfile(entry)):
                found[posixpath.normpath(entry.name)] = stream.read().decode("utf-8", "replace")
    return found
