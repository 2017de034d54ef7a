"""Finds what is stored about an instance: grades, validation runs, the task, the patch."""

import difflib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swelab.files.json_streams import list_items, object_items
from swelab.grading.evidence import GateRun, RunEvidence
from swelab.grading.run_cache import Archive
from swelab.jobs.shards import parse_shard, sample_suffix, shard_of
from swelab.records import InputError, Record
from swelab.records.attempt_records import Grade
from swelab.records.task_records import Task
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
