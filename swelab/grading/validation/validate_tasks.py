"""The validation gate: a task is kept when its gold patch always resolves it and an empty patch never does.

Gold patches go through the grader itself. All gold trees of one repository archive are one and the same, its
clean tree, so a run of one test command on it tells about every task with that command.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from swelab.configs.kinds.subset import Validation
from swelab.files.json_streams import Outline
from swelab.grading import versions
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, judged, run_patch
from swelab.grading.harness.logs import GROUPS, statuses
from swelab.grading.harness.patch_run import LOG_BYTES
from swelab.grading.harness.patches import touched_paths
from swelab.grading.harness.spec import read_spec
from swelab.grading.validation.validation_batches import Batch, gold_batches, rounds
from swelab.jobs.journal import Journal
from swelab.jobs.shards import run_shard
from swelab.outcomes import LOST_GRADES, GradeEnd
from swelab.records import Fault, InputError, Record, digest
from swelab.records.task_records import Lock, Task
from swelab.sandbox import Limits, SandboxError
from swelab.tasks.checkout import encode_patch, git, gold_patch
from swelab.tasks.patch_text import reversed_patch
from swelab.tasks.published_rows import is_private

BLOCK = 2000
"""Tasks that are held at once."""


def validate(
    tasks: Iterable[Task],
    settings: Validation,
    bench: Bench,
    journal: Journal,
    workers: int,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> Lock:
    """The lock of `tasks` (schema `lock`); in it are unjudged those with which the guard itself fails.
    settings: the recipe's `validate`; finished runs are journalled.

    Tasks are taken BLOCK at a time: of the others only the verdicts are held, and runs are shared inside a
    block. refused: why tasks are not even tried, by instance id; they are broken. Those whose answers are
    private are kept as they are.

    Raises InputError (unusable tasks, none kept), Fault when runs were lost to infrastructure again and
    again.
    """
    outline = Outline()
    parts: dict[str, list[Record]] = {"kept": [], "flaky": [], "broken": [], "unjudged": []}
    rows, private = map(outline.add, tasks), 0
    while block := list(islice(rows, BLOCK)):
        usable = [task for task in block if task.instance_id not in refused]
        tried = [task for task in usable if not is_private(task)]
        private += len(usable) - len(tried)
        seen = _seen(tried, settings, bench, journal, workers)
        for task in block:
            part, row = _judge(task, seen.get(task.instance_id, {}), bench, refused)
            parts[part].append(row)
    if not parts["kept"] and outline.ids:
        first = (parts["unjudged"] + parts["broken"] + parts["flaky"])[0]
        raise InputError(
            f"no task is valid; {first['instance_id']}: {first['reason']}", expected="gold patches that work"
        )
    facts = {"tasks_digest": outline.digest, "total": len(outline.ids), "settings": settings.plain()}
    if not parts["unjudged"]:
        del parts["unjudged"]
    return Lock.of(facts | parts | ({"private": private} if private else {}))


def _seen(
    tasks: list[Task], settings: Validation, bench: Bench, journal: Journal, workers: int
) -> dict[str, dict[str, list[Record]]]:
    """The results of all runs that some tasks need, by instance and kind of run.

    Raises Fault when runs were lost.
    """
    jobs = list(_jobs(tasks, settings, bench))
    results = run_shard(
        [(key_of(job, bench), job) for job in jobs],
        lambda: nullcontext(lambda job: _work(job, bench)),
        journal,
        workers=workers,
        label="validate",
        is_lost=lambda record: bool(record["lost"]),
        is_good=lambda record: not record["lost"],
    )
    seen: dict[str, dict[str, list[Record]]] = {}
    lost = []
    for job, result in zip(jobs, results, strict=True):
        if result["lost"]:
            lost.append(result["lost"])
        for task in job["batch"].tasks:
            kinds = seen.setdefault(task.instance_id, {})
            kinds.setdefault(job["kind"], []).append(_brief(task, result))
    if lost:
        raise Fault(f"{len(lost)} validation runs were lost to infrastructure, such as: {lost[0]}")
    return seen


def _jobs(tasks: list[Task], settings: Validation, bench: Bench) -> Iterator[Record]:
    """What is run: {"kind": gold | base | reversed, "batch": Batch, "number"}."""
    together = settings.together
    for batch in gold_batches(tasks, bench, together):
        for number in range(settings.gold_runs):
            yield {"kind": "gold", "batch": batch, "number": number}
    for batch in rounds(tasks, bench, together):
        yield {"kind": "base", "batch": batch, "number": 0}
    for task in tasks:
        yield {"kind": "reversed", "batch": Batch.of(task), "number": 0}


def key_of(job: Record, bench: Bench) -> str:
    """What a run of the gate is journalled and kept under."""
    batch: Batch = job["batch"]
    places = [bench.place(task) for task in batch.tasks]
    grader = [versions.RUN, versions.GRADER, versions.GATE]
    return digest(["validate", grader, job["kind"], job["number"], batch.row, batch.tasks, places])


def _work(job: Record, bench: Bench) -> Record:
    """{"status", "reason", "passed": test ids, "seconds", "lost": why nothing can be said, or "", "kind",
    "instances": the tasks that it tells about}; "unjudged": why nothing could be said if it were run again.
    The run's evidence goes to the archive."""
    batch: Batch = job["batch"]
    try:
        if job["kind"] == "base":
            result, run = _base(batch, bench)
        elif job["kind"] == "reversed":
            result, run = _reversed(batch.tasks[0], bench)
        else:
            result, run = _graded(batch.row, _gold(batch.row, bench), bench)
    except SandboxError as error:
        result, run = _told(GradeEnd.INFRA_ERROR, str(error), [], 0.0), {}
    if run:
        bench.archive.put(key_of(job, bench), run)
    return result | {"kind": job["kind"], "instances": [task.instance_id for task in batch.tasks]}


def _told(status: str, reason: str, passed: list[str], seconds: float) -> Record:
    lost = reason if status in LOST_GRADES else ""
    return {"status": status, "reason": reason, "passed": passed, "seconds": seconds, "lost": lost}


def _gold(task: Task, bench: Bench) -> str:
    if task.instance_id not in bench.images:
        return gold_patch(bench.store, task)
    spec = read_spec(task)
    return reversed_patch(spec.gold) if spec.gold_reversed else spec.gold


def _graded(task: Task, patch: str, bench: Bench) -> tuple[Record, Record]:
    """(the facts that the gate needs, the run's evidence) of a patch that is graded like a prediction."""
    image = bench.images.get(task.instance_id)
    assert bench.backend is not None
    run = run_patch(task, patch, bench.store, bench.backend, Limits(), image=image, allow_empty=True)
    record = judged(read_spec(task), patch, run)
    tests = record.get("tests_status", {})
    passed = [test for group in tests.values() for test in group["success"]]
    told = _told(record["status"], record["reason"], passed, record["seconds"])
    if fault := run.get("guard_fault"):
        told |= {"lost": "", "unjudged": f"the guard itself failed: {fault}"}
    return told, run | {"patch": patch}


def _base(batch: Batch, bench: Bench) -> tuple[Record, Record]:
    """The tests on the code with the bug, as an empty patch leaves it."""
    task = batch.row
    if task.instance_id in bench.images:
        return _graded(task, "", bench)
    spec = read_spec(task)
    assert bench.backend is not None
    with fresh_sandbox(spec, task, bench.store, bench.backend, Limits(), None, batch.tasks[1:]) as sandbox:
        bounds = Limits(wall_seconds=spec.seconds, cpu_seconds=2 * spec.seconds, output_bytes=LOG_BYTES)
        result = sandbox.exec(spec.test_cmd, limits=bounds)
    log, seconds = result.output.decode("utf-8", "replace"), round(result.seconds, 3)
    status = statuses(log, spec.parser)
    passed = [test for test in spec.listed if status.get(test) in ("PASSED", "XFAIL")]
    run = {"ended": "ran", "reason": result.limit, "log": log, "code": result.returncode, "seconds": seconds}
    return _told("ran", result.limit, passed, seconds), run | {"patch": ""}


def _reversed(task: Task, bench: Bench) -> tuple[Record, Record]:
    """The gold patch's reverse: on most tasks it does not even apply, which is tried before a sandbox
    starts."""
    spec = read_spec(task)
    patch = spec.gold if spec.gold_reversed else reversed_patch(spec.gold)
    if task.instance_id not in bench.images and not _applies_again(task, encode_patch(patch), bench):
        return _told(GradeEnd.APPLY_FAILED, "", [], 0.0), {}
    return _graded(task, patch, bench)


def _applies_again(task: Task, patch: bytes, bench: Bench) -> bool:
    """Whether the bug's patch applies to the code with the bug, in any of the ways that a prediction may."""
    clean = bench.store.clean_tree(task)
    with tempfile.TemporaryDirectory(dir=bench.store.cache_dir) as scratch:
        tree = Path(scratch)
        for name in touched_paths(task.patch):
            if (clean / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(clean / name, tree / name)
        if git(tree, "apply", "-", data=encode_patch(task.patch)).returncode:
            return True  # the grader will say what is wrong with it
        if git(tree, "apply", "--check", "-", data=patch).returncode == 0:
            return True
        dry = ("patch", "--batch", "--forward", "--dry-run", "--fuzz=5", "-p1", "--directory", str(tree))
        return subprocess.run(dry, input=patch, capture_output=True).returncode == 0


def _brief(task: Task, result: Record) -> Record:
    """A run's result as one of its tasks needs it: how many of its tests do not pass, and the first."""
    missing = _missing([test for group in GROUPS for test in task[group]], result)
    told = {name: result[name] for name in ("status", "reason", "seconds", "unjudged") if name in result}
    return told | {"missing": len(missing), "first": missing[0] if missing else ""}


def _judge(
    task: Task, results: dict[str, list[Record]], bench: Bench, refused: Mapping[str, str]
) -> tuple[str, Record]:
    """The part of the lock that a task belongs to, and its row there."""
    name = {"instance_id": task.instance_id}
    if why := refused.get(task.instance_id):
        return "broken", name | {"reason": why, "gold_resolved": 0}
    if is_private(task):
        return "kept", name | {"task": digest(task), "place": bench.place(task), "seconds": 0.0}
    part, reason, resolved = _sentence(results)
    if part != "kept":
        image = bench.images.get(task.instance_id)
        reason += f"; {image.install}" if image and image.install else ""
        return part, name | {"reason": reason, "gold_resolved": resolved}
    seconds = max(result["seconds"] for result in results["gold"])
    return part, name | {"task": digest(task), "place": bench.place(task), "seconds": seconds}


def _sentence(results: dict[str, list[Record]]) -> tuple[str, str, int]:
    """("kept" | "flaky" | "broken" | "unjudged", reason, gold runs that resolved the task)."""
    golds = results["gold"]
    good = sum(not result["missing"] for result in golds)
    if why := next((run["unjudged"] for runs in results.values() for run in runs if "unjudged" in run), ""):
        return "unjudged", why, good
    if good < len(golds):
        result = next(result for result in golds if result["missing"])
        why = f"{result['missing']} tests do not pass, such as {result['first']}"
        if result["status"] not in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED):
            why = f"{result['status']}: {result['reason']}"
        part = "flaky" if good else "broken"
        return part, f"the gold patch is resolved in {good} of {len(golds)} runs ({why})", good
    if not results["base"][0]["missing"]:
        return "broken", "an empty patch is resolved", good
    if results["reversed"][0]["status"] == GradeEnd.RESOLVED:
        return "broken", "the reverse of the gold patch is resolved", good
    return "kept", "", good


def _missing(listed: list[str], result: Record) -> list[str]:
    if result["status"] not in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED, "ran"):
        return listed
    passed = set(result["passed"])
    return [test for test in listed if test not in passed]
