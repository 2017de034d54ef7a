"""Recomputes the numbers of a score from the rows of tasks, rollouts and grades. Rows are read one at a time.
Memory holds only a verdict and a hash for each instance."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from swelab.console.terminal import Progress
from swelab.files.json_streams import Spool, object_items
from swelab.grading.swebench_report import build_report, validation
from swelab.jobs.journal import read_journal
from swelab.jobs.shards import belongs_to
from swelab.lineage import find
from swelab.outcomes import GradeEnd
from swelab.records import (
    InputError,
    Record,
    as_record,
    digest,
    read_json,
    read_jsonl,
    read_record,
    read_records,
)
from swelab.records.attempt_records import Grade, Trajectory, Usage
from swelab.records.report_records import Report
from swelab.records.score_records import Manifest, VerifiedScore
from swelab.records.task_records import Task
from swelab.rollouts.predictions import collect, read_predictions, shard_predictions
from swelab.rollouts.token_usage import collect_usage
from swelab.scores.score import read_usage, score
from swelab.scores.score_table import score_table
from swelab.scores.trail import Trail, follow, merged_recipes, without
from swelab.scores.verification import Finding, Verification, check_files, check_recipes, difference, summary
from swelab.scores.verified_score import load_score, score_experiment
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.task_images import task_images
from swelab.tasks.task_rows import slim
from swelab.tasks.validation_lock import read_kept, read_lock


@dataclass(frozen=True)
class TrailStage:
    """A stage of a trail: the stage's manifest and its input files, keyed by role."""

    stage: Manifest

    def paths(self, role: str) -> list[str]:
        """Returns the files with a role, in the order in which the stage got them."""
        return list(self.stage.inputs.get(role, {}))

    def path(self, role: str) -> str | None:
        """Returns the first file with a role, or None if the stage got none."""
        return next(iter(self.paths(role)), None)

    @property
    def outputs(self) -> list[str]:
        """Paths of the files that the stage wrote, from its manifest."""
        return list(self.stage.outputs)

    def tasks(self) -> Iterator[Task]:
        """Yields the tasks that the stage worked on."""
        return read_kept(self.path("tasks") or "", self.path("lock"))


def check_numbers(
    trail: Trail, verification: Verification, done: Callable[[], object] = lambda: None
) -> Iterator[Finding]:
    """Yields a finding for each edited row, and for each value that differs when it is recomputed. Calls
    `done` after each stage. Stages with withheld files are skipped."""
    for stage in trail.stages.values():
        files = {*stage.outputs, *(path for paths in stage.inputs.values() for path in paths)}
        if (again := CHECKS.get(stage.rule)) and not files & verification.withheld.keys():
            yield from _guard(next(iter(stage.outputs)), again(TrailStage(stage), verification))
        done()


def _guard(path: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yields the findings about a file. If its inputs cannot be read, yields a further finding."""
    try:
        yield from findings
    except InputError as error:
        yield Finding("number", path, f"cannot be made again: {error}")


def verify(score: Path) -> tuple[list[Finding], str]:
    """Verifies a verified score, or the score of one policy. Returns the findings and a short table.

    Changes the working folder to the root of the clone that contains the score. Raises InputError if the file
    is not a score.
    """
    results = next((each for each in score.absolute().parents if each.name == "results"), None)
    if results and (find(path := str(score.absolute().relative_to(results.parent))) or ("",))[0] == "score":
        load_score(score)
        os.chdir(results.parent)
        return _check(follow([path]))
    record = read_record(score, VerifiedScore)
    if "used" not in record.manifest:
        raise InputError("made by a version that wrote no trail", score, "a score made anew")
    own = as_record({**record.manifest, "recipes": record.manifest["used"]}, Manifest, score)
    if results:
        os.chdir(results.parent)
    trail = follow(path for paths in own.inputs.values() for path in paths)
    trail.stages[score.name] = own
    return _check(trail, _guard(score.name, check_headline(record, score.name)))


def _check(trail: Trail, further: Iterable[Finding] = ()) -> tuple[list[Finding], str]:
    """Returns (findings, table). The findings are those about the trail and `further`, without duplicates.
    Prints its progress, because many files take minutes."""
    verification, count = Verification.here(), len(trail.stages)
    print(f"verify: the files and then the numbers of {count} stages", file=sys.stderr, flush=True)
    progress = Progress(2 * count, "verify", quiet_seconds=10)
    files = check_files(trail, verification, progress.done)
    numbers = check_numbers(trail, verification, progress.done)
    found = list(dict.fromkeys(chain(files, check_recipes(trail.stages), numbers, further)))
    progress.close()
    return found, summary(trail, verification, found)


def check_headline(record: VerifiedScore, path: str) -> Iterator[Finding]:
    """Recomputes the verified score from the scores that its manifest names. Yields each difference.

    Raises InputError if the manifest names no scores, or no pair of policies to compare.
    """
    own = Manifest.of({**record.manifest, "recipes": record.manifest["used"]})
    scores = [load_score(Path(name)) for name in own.inputs.get("scores", ())]
    pairs = [list(recipe.used.get("compare") or ()) for recipe in own.recipes.values()]
    compared = next(iter(pairs), ["", ""])
    if not scores or not pairs or len(compared) not in (0, 2):
        raise InputError("its manifest does not name what was scored and compared", path, "a score made anew")
    made = score_experiment(scores, tuple(compared), record.benchmark.name)
    told = {key: value for key, value in record.items() if key != "manifest"}
    yield from _compare(path, made, told)
    yield from check_provenance(record.manifest, own, path)


def check_provenance(written: Record, own: Manifest, path: str) -> Iterator[Finding]:
    """Compares what a verified score says of its making with the manifests that are there. Yields each
    difference. own: the score's own manifest."""
    trail = follow(name for paths in own.inputs.values() for name in paths)
    stages = {name: without(found, own, "packages") for name, found in trail.stages.items()}
    shared = {name: stage for name, stage in written["stages"].items() if name in stages}
    yield from _compare(path, {"stages": stages}, {"stages": shared})
    if written["stages"].keys() == stages.keys():
        recipes = merged_recipes({**trail.stages, path: own})
        yield from _compare(path, {"recipes": recipes}, {"recipes": written["recipes"]})
    hashes = {name: value for stage in trail.stages for name, value in trail.inputs(stage)}
    files = {row["path"]: row["sha256"] for row in written["files"] if row["path"] in hashes}
    yield from _compare(path, {"files": {name: hashes[name] for name in files}}, {"files": files})


def _score(stage: TrailStage, verification: Verification) -> Iterator[Finding]:
    told = read_json(stage.outputs[0])
    reports = [read_record(path, Report) for path in stage.paths("report")]
    usage = [dict(read_usage(path)) for path in stage.paths("usage")]
    again = score(stage.tasks(), reports, told.get("policy", ""), told.get("subset", ""), usage)
    yield from _compare(stage.outputs[0], again, told)
    for table in stage.outputs[1:]:
        if Path(table).read_text() != score_table(again, usage):
            yield Finding("number", table, "made again: another table")


def _report(stage: TrailStage, verification: Verification) -> Iterator[Finding]:
    told, lock = read_json(stage.outputs[0]), stage.path("lock")
    grades = (row for _, row in read_records(stage.paths("grades"), Grade))
    again = build_report(stage.tasks(), grades, told.get("policy", ""), told.get("subset", ""))
    gate = {"validation": validation(read_lock(lock))} if lock else {}
    yield from _compare(stage.outputs[0], again | gate, told)


def _compare(path: str, computed: Record, written: Record) -> Iterator[Finding]:
    if where := difference(written, computed):
        yield Finding("number", path, f"made again: {where}")


def _predictions(stage: TrailStage, verification: Verification) -> Iterator[Finding]:
    names = [task.instance_id for task in stage.tasks()]
    usage: dict[str, Usage] = {}
    rows = collect_usage(read_records(stage.paths("trajectories"), Trajectory), usage)
    with tempfile.TemporaryDirectory() as folder:
        yield from _rows(stage.outputs[0], collect(rows, names, Spool(Path(folder))))
    for path in stage.outputs[1:]:
        yield from _rows(path, iter(sorted(usage.items())))


def _rows(path: str, rows: Iterator[tuple[str, Record]]) -> Iterator[Finding]:
    for told, again in zip_longest(object_items(path), rows):
        if told != again:
            name = (again or told)[0]
            where = difference(dict([told] if told else []), dict([again] if again else []))
            yield Finding("number", path, f"{name}: made again from its trajectory: {where}")


def _rollout(stage: TrailStage, verification: Verification) -> Iterator[Finding]:
    path = stage.outputs[0]
    if verification.hash_of(path) != stage.stage.outputs[path]:
        yield from _unlike_journal(path, stage.stage.get("journal"))


def _grades(stage: TrailStage, verification: Verification) -> Iterator[Finding]:
    path = stage.outputs[0]
    rows: dict[str, str] = {}
    for row in map(Grade.of, read_jsonl(path)):
        rows[row.instance_id] = row.status
        if row.resolved != (row.status == GradeEnd.RESOLVED):
            told = f"{row.instance_id}: resolved is {row.resolved} and status is {row.status}"
            yield Finding("number", path, told)
    if verification.hash_of(path) != stage.stage.outputs[path]:
        yield from _unlike_journal(path, stage.stage.get("journal"))
    if stage.stage.get("runs") and not stage.path("service") and Path(stage.stage["runs"]).is_dir():
        yield from _unlike_runs(stage, rows, verification)
    else:
        verification.unjudged += len(rows)


def _unlike_journal(path: str, journal: str | None) -> Iterator[Finding]:
    """Yields a finding for each row that differs from the stage's journal."""
    if not journal or not Path(journal).is_file():
        return
    known = {row["key"]: digest(_plain(row)) for row in read_journal(journal)}
    for row in read_jsonl(path):
        if known.get(row.get("key", "")) != digest(_plain(row)):
            yield Finding("edited", path, f"the row of {row['instance_id']} is not that of {journal}")


def _plain(row: Record) -> Record:
    return {name: value for name, value in row.items() if name not in ("journalled", "sample")}


def _unlike_runs(
    stage: TrailStage, texts: Mapping[str, str], verification: Verification
) -> Iterator[Finding]:
    """Computes the verdicts of stored test runs again. Yields a finding for each grade that changes."""
    from swelab.grading.grading_stage import Bench
    from swelab.grading.regrade import regrade
    from swelab.grading.run_cache import Archive  # these imports take seconds
    from swelab.grading.witness_store import Witnesses

    mine = belongs_to(stage.stage["shard"])
    tasks = [task for task in stage.tasks() if mine(task.instance_id)]
    images = stage.path("images")
    with scratch_folder() as scratch:
        places = task_images([slim(task) for task in tasks], Path(images) if images else None, False)
        store = RepoStore(Path(stage.stage["repos"]), scratch)
        witness = stage.path("witness")
        judges = Witnesses(Path(witness) if witness else None)
        bench = Bench(store, None, places, Archive(Path(stage.stage["runs"])), judges)
        if shard := stage.path("trajectories"):
            predictions = iter(shard_predictions(shard, [task.instance_id for task in tasks]).values())
        else:
            predictions = read_predictions(stage.path("predictions") or "", mine)
        facts, _ = regrade(tasks, predictions, texts, bench)
    verification.judged += facts["judged"]
    verification.unjudged += len(facts["missing"])
    for each in facts["changed"]:
        what = f"{each['instance_id']}: {each['before']}, and its kept run judged again is {each['now']}"
        yield Finding("number", stage.outputs[0], what)


CHECKS: dict[str, Callable[[TrailStage, Verification], Iterator[Finding]]] = {
    "score": _score,
    "report_grades": _report,
    "collect_predictions": _predictions,
    "rollout": _rollout,
    "grade": _grades,
}
"""Maps the name of a rule to the function that recomputes the rule's numbers."""
