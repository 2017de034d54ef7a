"""Implements `scripts.show`: selects one attempt and prints it, or reruns it."""

import argparse
import difflib
import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import CONFIG
from swelab.files.json_streams import list_items, object_items
from swelab.files.text_lines import lines_of
from swelab.grading.evidence import GateRun, RunEvidence
from swelab.grading.grading_stage import OWN_EVAL, Bench
from swelab.grading.harness import logs
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.patch_run import LOG_BYTES
from swelab.grading.harness.prediction_files import whole_files
from swelab.grading.harness.reward_run import lay
from swelab.grading.harness.spec import read_spec
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.jobs.shards import parse_shard, sample_suffix, shard_of
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records import Fault, InputError, Record
from swelab.records.attempt_records import Grade, TestVerdicts
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch
from swelab.records.task_records import Task
from swelab.sandbox import ExecResult, Limits, Sandbox, open_backend
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.patch_application import encode_patch
from swelab.tasks.task_images import task_images
from swelab.tasks.task_rows import read_tasks

PROGRAM = ".venv/bin/python -m scripts.show"
GATE = "validation"
"""The name that validation runs have in place of a policy."""


@dataclass(frozen=True)
class KeptAttempt:
    """One patch on a task: a graded attempt of a policy, or a validation run.

    run: the key of the run's evidence in the archive, or "". more: command-line options of `scripts.show`
    that name the files of this attempt.
    """

    policy: str
    subset: str
    sample: int
    row: Grade | GateRun
    run: str
    number: int = 0
    more: tuple[str, ...] = ()

    @property
    def run_kind(self) -> str:
        """The kind of a validation run; "" for a graded attempt."""
        return self.row.run_kind if isinstance(self.row, GateRun) else ""

    @property
    def name(self) -> str:
        """A name that distinguishes this attempt from the other attempts at the instance."""
        if self.policy == GATE:
            return f"{GATE} {self.run_kind} {self.number} on {self.subset}"
        return f"{self.policy} on {self.subset}" + (f", sample {self.sample}" if self.sample else "")

    @property
    def command(self) -> str:
        """The command that shows this attempt. With ` --run` appended, the command reruns the attempt."""
        name = self.row.instance_id
        if self.policy == GATE:
            which = ["--validation", self.run_kind, "--number", str(self.number), "--subset", self.subset]
            command = f"{PROGRAM} {shlex.join([name, *which])}"
        elif "--logs" in self.more:
            command = f"{PROGRAM} {shlex.quote(name)}"
        else:
            command = show_command(name, self.policy, self.subset, self.sample)
        return f"{command} {shlex.join(self.more)}".rstrip()


def show_command(instance_id: str, policy: str, subset: str, sample: int = 0) -> str:
    """Returns the command that shows a graded attempt.

    With ` --run` appended, the command reruns the attempt.
    """
    words = [instance_id, "--policy", policy, "--subset", subset]
    return f"{PROGRAM} {shlex.join(words + (['--sample', str(sample)] if sample else []))}"


def grading_runs(results: Path, name: str, policy: str = "*", subset: str = "*") -> Iterator[KeptAttempt]:
    """Yields the grades of an instance in a results folder.

    Reads only the shards to which the instance belongs.
    """
    for path in sorted((results / "grades").glob(f"{policy}/{subset}/*of*.jsonl")):
        number, count, sample = parse_shard(path.stem)
        if shard_of(name, count) == number:
            for row in _lines(path, name):
                if row.get("instance_id") == name:
                    grade = Grade.of(row)
                    yield KeptAttempt(path.parent.parent.name, path.parent.name, sample, grade, grade.run)


def validation_runs(results: Path, name: str, subset: str = "*") -> Iterator[KeptAttempt]:
    """Yields the validation runs that include an instance, numbered from 1 for each kind of run."""
    for path in sorted((results / "progress/validate_tasks").glob(f"{subset}.jsonl")):
        counts: dict[str, int] = {}
        for row in _lines(path, name):
            if name in row.get("instances", ()):
                known = ("status", "reason", "kind", "passed", "seconds")
                run = GateRun.of({"instance_id": name, **{key: row[key] for key in known}})
                number = counts[run.run_kind] = counts.get(run.run_kind, 0) + 1
                yield KeptAttempt(GATE, path.stem, 0, run, row["key"], number)


def by_hand(folder: Path, name: str) -> Iterator[KeptAttempt]:
    """Yields the newest grade of an instance in a folder that `scripts.run_evaluation` wrote, if there is
    one.
    """
    rows = [row for row in _lines(folder / "journal.jsonl", name) if row.get("instance_id") == name]
    for grade in map(Grade.of, rows[-1:]):
        yield KeptAttempt(folder.name, "by_hand", 0, grade, grade.run)


def task_of(results: Path, tasks: Path | None, attempt: KeptAttempt) -> Task | None:
    """Returns the attempt's task row, or None if the subset's file is missing.

    Raises InputError if rows are malformed.
    """
    path = tasks or results / "tasks" / f"{attempt.subset}.json"
    name = attempt.row.instance_id
    return next(read_tasks(path, lambda other: other == name), None) if path.is_file() else None


def patch_of(results: Path, attempt: KeptAttempt, evidence: RunEvidence | None) -> str | None:
    """Returns the patch of an attempt from its stored run, else from the predictions.

    Returns None if neither has the patch.
    """
    if evidence and evidence.patch is not None:
        return evidence.patch
    folder = results / "rollouts" / attempt.policy / attempt.subset
    path = folder / f"preds{sample_suffix(attempt.sample)}.json"
    name = attempt.row.instance_id
    if attempt.policy == GATE or not path.is_file():
        return None
    rows = object_items(path, lambda other: other == name)
    return next((row.get("model_patch") or "" for _, row in rows), None)


def kept_run(archive: Archive, attempt: KeptAttempt) -> RunEvidence | None:
    """Returns the stored record of the attempt's run, or None if there is none.

    Raises InputError if the file is damaged.
    """
    if not attempt.run:
        return None
    run = archive.look(attempt.run)
    if run is None and archive.path(attempt.run).exists():
        raise InputError(
            "the kept run cannot be read", archive.path(attempt.run), f"a whole file; {attempt.command} --run"
        )
    return run


def full_name(results: Path, tasks: Path | None, text: str) -> str:
    """Returns the instance id that equals or contains `text`.

    Raises InputError, which names the nearest ids, if no instance or more than one matches.
    """
    names: dict[str, None] = {}
    paths = [tasks] if tasks else sorted((results / "tasks").glob("*.json"))
    for path in paths:
        if not path.name.endswith((".lock.json", ".kept.json", ".manifest.json")):
            for _ in list_items(path, lambda name: bool(names.setdefault(name))):
                pass
    if text in names:
        return text
    matches = [name for name in names if text in name]
    if len(matches) == 1:
        return matches[0]
    if not names:
        raise InputError("there are no tasks", results / "tasks", "a run of the workflow before")
    near = sorted(matches)[:8] or difflib.get_close_matches(text, names, 5, 0.4)
    what = f"{len(matches)} instances have that in their id" if matches else "no such instance"
    raise InputError(what, text, f"one id, such as {', '.join(near)}" if near else "an instance id")


def _lines(path: Path, name: str) -> Iterator[Record]:
    """Yields the objects in those lines of a JSON Lines file that contain `name`.

    The other lines are not parsed.
    """
    if not path.is_file():
        return
    quoted = json.dumps(name, ensure_ascii=False).encode("utf-8", "backslashreplace")  # like `records.line`
    with open(path, "rb") as stream:
        for line in stream:
            if quoted in line and line.endswith(b"\n"):
                yield json.loads(line)


MOST_LINES = 60
"""Maximum number of log lines to show, counted from the end of the log."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MOST_TESTS = 20
"""Maximum number of passed tests to list."""


def listing(name: str, attempts: Sequence[KeptAttempt]) -> str:
    """Returns a text that lists the attempts at a task, each with the command that shows it."""
    rows = [f"{len(attempts)} runs of {name}; to see one of them:", ""]
    for attempt in attempts:
        rows += [f"{attempt.name}: {_verdict(attempt.row)}", f"    {attempt.command}"]
    return "\n".join(rows)


def describe_attempt(
    attempt: KeptAttempt,
    task: Task | None,
    patch: str | None,
    run: RunEvidence | None,
    place: str,
    bold: bool,
) -> str:
    """Returns everything about one attempt as text.

    run: the run's evidence. place: the path of the file that contains the evidence. bold: whether headings
    are bold.
    """
    found = ((title, plain(text)) for title, text in _parts(attempt, task, patch, run, place))
    return "\n".join(
        f"{_bold(title) if bold else title}\n{textwrap.indent(text.rstrip(), '    ', lambda line: True)}\n"
        for title, text in found
    )


def plain(text: str) -> str:
    """Returns `text` without terminal control characters, since output of tests and patches is untrusted."""
    return _CONTROLS.sub("?", text.replace("\r\n", "\n").encode("utf-8", "replace").decode())


def _bold(title: str) -> str:
    return title if os.environ.get("NO_COLOR") else f"\x1b[1m{title}\x1b[0m"


def _parts(
    attempt: KeptAttempt, task: Task | None, patch: str | None, run: RunEvidence | None, place: str
) -> Iterator[tuple[str, str]]:
    """Yields the parts of the text about an attempt, as (title, text)."""
    row = attempt.row
    yield row.instance_id, f"{attempt.name}\n{_verdict(row)}"
    yield "Task", _task(task) if task else "its row is not there"
    if patch is None:
        yield "Patch", "not kept"
    else:
        yield "Patch", patch or "empty"
    yield "Tests", "\n".join(_tests(row, task, run))
    yield "What decided", "\n".join(_evidence(row, run))
    yield f"Test log{f' ({place})' if run else ''}", _tail(run.log if run else "")
    again = f"{attempt.command} --run"
    own = f" '{task.test_cmd}'" if task and task.test_cmd else " 'a command of yours'"
    yield (
        "Run it again, in a fresh sandbox of the same kind",
        f"{again}\n{again}{own}\n"
        "The first grades it anew and changes no file. The second runs a command on the patched code.",
    )


def _verdict(row: Grade | GateRun) -> str:
    told = row.status + (f": {row.reason}" if row.reason else "")
    outcome = row.outcome if isinstance(row, Grade) else RolloutEnd.SUBMITTED
    return told if outcome == RolloutEnd.SUBMITTED else f"{told} (the rollout ended as {outcome})"


def _task(task: Task) -> str:
    spec = read_spec(task)
    listed = (
        f"tests to repair: {len(spec.fail_to_pass)}; tests that must still pass: {len(spec.pass_to_pass)}"
    )
    rows = [
        f"repository: {task.get('repo', '')}",
        "judged by the reward of its own script" if spec.verifier else listed,
        f"test command: {spec.test_cmd or ('tests/test.sh' if spec.verifier else 'an eval script')}",
        "",
        task.get("problem_statement") or "no problem statement",
    ]
    return "\n".join(rows)


def _tests(row: Grade | GateRun, task: Task | None, run: RunEvidence | None) -> Iterator[str]:
    """Yields one line for each test, failing tests first.

    The line has the outcomes in the log and the observer's record.
    """
    groups = row.tests_status if isinstance(row, Grade) else _passed_or_not(row, task)
    if not groups:
        yield "no verdict on single tests"
        return
    told = _test_line(task, run)
    for group, parts in groups.items():
        good, bad = parts.success, parts.failure
        yield f"{group}: {len(good)} of {len(good) + len(bad)} pass"
        yield from (f"  not passed  {test}{told(test)}" for test in bad)
        yield from (f"  passed      {test}" for test in good[:MOST_TESTS])
        if len(good) > MOST_TESTS:
            yield f"  passed      and {len(good) - MOST_TESTS} more"


def _passed_or_not(row: GateRun, task: Task | None) -> TestVerdicts | None:
    """Returns the per-test verdicts of a validation run.

    The row of such a run lists only the tests that passed.
    """
    if not task or row.status not in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED, "ran"):
        return None
    passed = set(row.passed)
    return logs.judge(task, {}, lambda group, test, statuses: test in passed)


def _test_line(task: Task | None, run: RunEvidence | None) -> Callable[[str], str]:
    """Returns a function that maps a test id to the test's outcomes in the log and the record."""
    if not task or not run or "log" not in run:
        return lambda test: ""
    found = logs.Results(logs.statuses(logs.official_part(run.log), read_spec(task).parser))
    seen = run.observed.outcomes if run.observed else {}

    def line_of(test: str) -> str:
        said = f"log: {', '.join(sorted(found.of(test))) or 'nothing'}"
        return f" ({said}; observer: {seen.get(test, 'nothing')})" if run.observed else f" ({said})"

    return line_of


def _evidence(row: Grade | GateRun, run: RunEvidence | None) -> Iterator[str]:
    """Yields the reason for the verdict, and the content of each source of evidence."""
    yield f"verdict: {_verdict(row)}"
    if run is None:
        yield "no run is kept: it was never started, or it was kept by an older version"
        return
    if run.ended != "ran":
        yield f"the run ended as {run.ended}: {run.reason or 'nothing was run'}"
    yield from (f"the patch's code: {finding}" for finding in run.get("findings", ()))
    if "code" in run:
        limit = f" (limit met: {run.limit})" if run.limit else ""
        yield f"exit code of the tests: {run['code']}{limit}"
    if "guarded" in run:
        sealed = run.sealed if run.guarded else "none, as pytest does not run these tests"
        yield f"observer's record: {sealed}"
    if seen := run.observed:
        yield from (f"the runner was changed: {change}" for change in seen.changed)
        yield from (f"the patched code used a reserved power: {power}" for power in seen.powers)
    if isinstance(row, Grade) and row.witness:
        why = f": {row.witness.reason}" if row.witness.reason else ""
        yield f"the witness: {row.evidence.replace('_', ' ')}, {row.witness.bits:g} bits{why}"
    if run.get("echo"):
        yield f"the second run, with spoiled tests: {run.echo}"


def _tail(log: str) -> str:
    lines = lines_of(log)
    if not lines:
        return "none: no test was run"
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    left = len(lines) - MOST_LINES
    return "\n".join([f"({left} lines before these; --log prints all)", *lines[-MOST_LINES:]])


_PATCH, _TESTS = "/tmp/swelab.patch", "/tmp/swelab.tests"


@contextmanager
def open_bench(task: Task, repos: Path, images: Path, witness: Path | None = None) -> Iterator[Bench]:
    """Opens a bench for one task, with the sandbox backend that configs/config.yaml names.

    witness: the witness file of the task's subset, if there is one. Raises InputError if there is no archive
    or image, SandboxError if there is no such backend.
    """
    settings = recipes.load(CONFIG, Path("configs/config.yaml"))
    for name in ("backend", "toolbox"):
        os.environ.setdefault(f"SWELAB_{name.upper()}", getattr(settings, name))
    known = task_images([task], images if images.is_file() else None, refuse_leaks=False)
    with scratch_folder() as scratch:
        judges = Witnesses(witness if witness and witness.is_file() else None)
        yield Bench(RepoStore(repos, scratch), open_backend(), known, witnesses=judges)


def run_again(task: Task, patch: str, bench: Bench) -> tuple[Grade, RunEvidence]:
    """Runs a patch again and returns (grade, evidence). The tests run even if the patch is empty."""
    run = bench.run_anew(task, patch, allow_empty=True)
    return bench.grade_of(task, patch, run), run


def run_command(task: Task, patch: str, bench: Bench, command: str) -> ExecResult:
    """Runs a command on the patched code, with the task's own tests in place.

    Raises Fault if the patch does not apply. Raises SandboxError, OSError.
    """
    spec, image = read_spec(task), bench.images.get(task.instance_id)
    limits = limits_of(Limits(), image)
    bounds = replace(limits, wall_seconds=spec.seconds, cpu_seconds=2 * spec.seconds, output_bytes=LOG_BYTES)
    assert bench.backend is not None
    with fresh_sandbox(spec, task, bench.store, bench.backend, limits, image) as sandbox:
        if spec.verifier:
            lay(sandbox, "tests", spec.verifier, spec.instance_id)
        if spec.setup:
            sandbox.exec("\n".join(spec.setup), limits=bounds)
        try:
            _apply(sandbox, _PATCH, whole_files(spec, read_patch(patch), sandbox).text)
        except PatchRefused as refusal:
            raise Fault(f"the patch does not apply: {refusal}") from None
        _apply(sandbox, _TESTS, spec.tests_diff)
        return sandbox.exec(command, limits=bounds)


def _apply(sandbox: Sandbox, name: str, patch: str) -> None:
    if not patch.strip():
        return
    sandbox.put(name, encode_patch(patch))
    ways = (f"git apply --whitespace=nowarn {name}", f"patch --batch --forward --fuzz=5 -p1 -i {name}")
    done = sandbox.exec(" || ".join(ways))
    if done.returncode:
        raise Fault(f"the patch does not apply: {done.output.decode('utf-8', 'replace')[:400]}")


def show(options: argparse.Namespace) -> int:
    """Prints what the options of `scripts.show` select, and returns the exit code. Raises InputError."""
    name = full_name(options.results, options.tasks, options.instance)
    attempt, *others = _attempts(options, name)
    if others:
        _print(listing(name, [attempt, *others]))
        return 0
    archive = Archive((options.logs or options.results / "progress") / "runs")
    task = task_of(options.results, options.tasks, attempt)
    if options.run is not None:
        kept = archive.look(attempt.run) if attempt.run else None
        patch = patch_of(options.results, attempt, kept)
        return _again(options, attempt, task, patch)
    run = kept_run(archive, attempt)
    if options.raw:
        print(json.dumps({"grade": attempt.row, "run": run}, indent=2))
    elif options.log:
        _print(run.log if run else "")
    else:
        place = str(archive.path(attempt.run)) if run else ""
        bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        patch = patch_of(options.results, attempt, run)
        _print(describe_attempt(attempt, task, patch, run, place, bold), steered=bold)
    return 0


def _attempts(options: argparse.Namespace, name: str) -> list[KeptAttempt]:
    """Returns the attempts that match the options. Raises InputError if none matches."""
    matching = list(_matching(options, name))
    if not matching:
        raise InputError("no graded or validated attempt matches", name, "a finished job before")
    given = (("results", Path("results")), ("logs", None), ("tasks", None), ("images", None))
    more = [
        (f"--{flag}", str(getattr(options, flag))) for flag, usual in given if getattr(options, flag) != usual
    ]
    return [replace(each, more=sum(more, ())) for each in matching]


def _matching(options: argparse.Namespace, name: str) -> Iterator[KeptAttempt]:
    results = options.results
    if options.validation:
        wanted = (options.validation, options.number)
        runs = validation_runs(results, name, options.subset)
        yield from (each for each in runs if (each.run_kind, each.number) == wanted)
    elif options.logs:
        yield from by_hand(options.logs, name)
    else:
        grades = grading_runs(results, name, options.policy, options.subset)
        yield from (each for each in grades if options.sample in (None, each.sample))
        if options.policy == "*":
            yield from validation_runs(results, name, options.subset)


def _again(options: argparse.Namespace, attempt: KeptAttempt, task: Task | None, patch: str | None) -> int:
    """Reruns the attempt, or runs a command on its patched code, and prints the result.

    Returns the exit code of the command. Without a command, returns 1 if the verdict differs from the stored
    one, else 0.
    """
    name = attempt.row.instance_id
    if task is None:
        raise InputError("the row of its task is missing", name, f"{attempt.subset}.json, or --tasks")
    if patch is None:
        raise InputError("its patch is missing", name, "the predictions of its policy")
    images = options.images or options.results / "images" / f"{attempt.subset}.json"
    witness = options.results / "tasks" / f"{attempt.subset}.witness.zip"
    with open_bench(task, options.results / "repos", images, witness) as bench:
        if options.run:
            result = run_command(task, patch, bench, options.run)
            _print(result.output.decode("utf-8", "replace"))
            limit = f", limit met: {result.limit}" if result.limit else ""
            print(f"exit code {result.returncode} after {result.seconds:.1f} s{limit}", file=sys.stderr)
            return result.returncode
        grade, run = run_again(task, patch, bench)
    _print(run.log)
    if grade.resolved and attempt.row.reason.endswith(OWN_EVAL):
        grade = grade | {"status": attempt.row.status, "reason": attempt.row.reason}
    before, now = attempt.row.status, grade.status
    print(f"{now}{': ' if grade.reason else ''}{grade.reason}", file=sys.stderr)
    # An empty patch is graded without running its tests, and the validation run on the bug has no grade.
    if before in (now, GradeEnd.EMPTY_PATCH, "ran"):
        return 0
    print(f"the verdict was {before}", file=sys.stderr)
    return 1


def _print(text: str, steered: bool = False) -> None:
    """Prints text that a patch or a model wrote.

    Control characters are removed if the output is a terminal. steered: whether the text is safe, so that its
    control characters are kept.
    """
    if not steered and sys.stdout.isatty():
        text = plain(text)
    sys.stdout.buffer.write(encode_patch(text if text.endswith("\n") else text + "\n"))
    sys.stdout.flush()
