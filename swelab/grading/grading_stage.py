"""The grading stage: grades each prediction of one shard once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from swelab.grading import versions
from swelab.grading.evidence import RunEvidence
from swelab.grading.harness.grade import (
    CHECKS,
    REFERENCE,
    SHARES,
    grade_evidence,
    grade_key,
    limits_of,
    run_patch,
)
from swelab.grading.harness.reward_run import SolutionRun, solve
from swelab.grading.harness.spec import read_spec
from swelab.grading.run_cache import Archive, run_key
from swelab.grading.witness_store import Witnesses
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.resumable_run import run_shard
from swelab.jobs.shards import in_shard, sample_of
from swelab.outcomes import LOST_GRADES, LOST_ROLLOUTS, GradeEnd
from swelab.records import InputError, Record, check
from swelab.records.attempt_records import Grade, Prediction
from swelab.records.task_records import Task
from swelab.sandbox import Backend, Image, Limits, open_backend
from swelab.sandbox.deferred import DeferredBackend
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.task_images import task_images


@dataclass
class Bench:
    """The resources that runs of patches need: repositories, images, sandboxes, and the archive of stored
    runs.

    shares: whether unresolved patches are judged test by test, for a reward that pays for single tests.
    """

    store: RepoStore
    backend: Backend | None
    images: Mapping[str, Image] = field(default_factory=dict)
    archive: Archive = field(default_factory=lambda: Archive(None))
    witnesses: Witnesses = field(default_factory=Witnesses)
    shares: bool = False

    @property
    def checks(self) -> frozenset[str]:
        """The checks of a grading run: all of them, or REFERENCE if verdicts must match the reference
        harness."""
        if self.witnesses.guard == "reference":
            return REFERENCE
        return CHECKS | {SHARES} if self.shares else CHECKS

    def place(self, task: Task) -> str:
        """Returns the digest of the image or repository archive that the task runs in.

        Raises InputError if the task has neither.
        """
        image = self.images.get(task.instance_id)
        return image.digest if image else self.store.digest(task)

    def key(self, task: Task, patch: str) -> str:
        """Returns the archive key of a patch's run on a task.

        Raises InputError if there is no repository archive or image.
        """
        return run_key(task, patch, self.ground(task))

    def ground(self, task: Task) -> str:
        """Returns the digests on which a task's grades depend, joined by a space. The first is the digest of
        the image or archive. The second is the digest of the task's witness, if the task has one. Raises
        InputError if there is no repository archive or image."""
        parts = [self.place(task), self.witnesses.digest(task.instance_id), SHARES * self.shares]
        return " ".join(filter(None, parts))

    def grade_of(self, task: Task, patch: str, run: RunEvidence) -> Grade:
        """Returns the grade for the evidence of a run. Raises InputError if the log parser is unknown."""
        return grade_evidence(read_spec(task), patch, run, self.witnesses.of(task.instance_id))

    def run(self, task: Task, patch: str) -> RunEvidence:
        """Returns the evidence for a patch from the archive, or from a new run, which is archived.

        Raises InputError.
        """
        key = self.key(task, patch)
        run = self.archive.get(key)
        if run is None:
            run = self.run_anew(task, patch)
            self.archive.put(key, run | {"patch": patch, "made": self.conditions(task)})
        return run

    def run_anew(self, task: Task, patch: str, allow_empty: bool = False) -> RunEvidence:
        """Runs a patch on a task in fresh sandboxes and returns the evidence. Raises InputError."""
        assert self.backend is not None, "a bench without sandboxes runs nothing"
        name = task.instance_id
        return run_patch(
            task,
            patch,
            self.store,
            self.backend,
            Limits(),
            self.checks,
            self.images.get(name),
            allow_empty,
            self.witnesses.of(name),
        )

    def solve(self, task: Task) -> SolutionRun:
        """Runs the reference solution of a task that a script judges, and returns the changes that the
        solution makes.

        Raises InputError if the task has no image. Raises SandboxError, OSError.
        """
        assert self.backend is not None, "a bench without sandboxes runs nothing"
        if (image := self.images.get(task.instance_id)) is None:
            raise InputError("its solution runs in an image", task.instance_id, "--images")
        return solve(task, self.backend, image, limits_of(Limits(), image))

    def conditions(self, task: Task) -> Record:
        """Returns the conditions of a task's runs: grader versions, sandbox backend, digests, limits of
        commands.
        """
        limits = limits_of(Limits(), self.images.get(task.instance_id))
        backend = self.backend.name if self.backend else ""
        made = {"run": versions.RUN, "grader": versions.GRADER, "backend": backend}
        return made | {"place": self.ground(task), "limits": asdict(limits)}


def grade_shard(
    tasks: list[Task],
    predictions: Mapping[str, Prediction],
    *,
    policy: str,
    subset: str,
    shard: str,
    repos_dir: Path,
    progress: Path,
    workers: int,
    images_path: Path | None = None,
    runs_dir: Path | None = None,
    max_lost: int = 0,
    witness_path: Path | None = None,
) -> Iterator[Grade]:
    """Yields the grades of the shard's tasks that have a prediction, in the order of `tasks`.

    A rollout that was lost to infrastructure is graded infra_error, as there is no patch to judge.
    images_path: the record of the images for tasks without a repository archive. runs_dir: where runs are
    stored. witness_path: the subset's witness file, which says how patches are judged. Raises InputError if a
    prediction has no task, if a task is unusable, or if another grader works on this shard. Raises ShardLost
    if more than `max_lost` gradings were lost to infrastructure.
    """
    _check_predictions(tasks, predictions, subset, sample_of(shard))
    predicted = [task for task in in_shard(tasks, shard) if task.instance_id in predictions]
    images = task_images(predicted, images_path, refuse_leaks=False)
    with (
        open_bench(repos_dir, images, runs_dir, witness_path, workers) as bench,
        Journal(progress) as journal,
    ):
        keyed = [(prediction_key(task, predictions, bench), task) for task in predicted]
        kept, judged_by = (path and path.absolute() for path in (runs_dir, witness_path))
        place = GradePlace(policy, subset, predictions, images, repos_dir.absolute(), kept, judged_by)
        yield from place.grades(keyed, bench, journal, workers, max_lost)


@contextmanager
def open_bench(
    repos_dir: Path,
    images: Mapping[str, Image],
    runs_dir: Path | None,
    witness_path: Path | None,
    workers: int,
) -> Iterator[Bench]:
    """Opens a bench for the duration of the block.

    Raises BackendMissing. Raises InputError if `witness_path` is not a witness file.
    """
    with DeferredBackend(open_backend(), most=workers) as backend, scratch_folder() as scratch:
        store, witnesses = RepoStore(repos_dir, scratch), Witnesses(witness_path)
        yield Bench(store, cast(Backend, backend), images, Archive(runs_dir), witnesses)


def _check_predictions(
    tasks: list[Task], predictions: Mapping[str, Prediction], subset: str, sample: int
) -> None:
    unknown = sorted(set(predictions) - {task.instance_id for task in tasks})
    if unknown:
        raise InputError(f"{len(unknown)} predictions match no task, such as {unknown[0]}", subset)
    for name, prediction in predictions.items():
        if prediction.get("sample", sample) != sample:
            what = f"{name} is predicted in sample {prediction.sample}"
            raise InputError(what, subset, f"sample {sample}")


@dataclass(frozen=True)
class GradePlace:
    """Grades a policy's predictions in this process or on other hosts; see `ray_workers.Place`."""

    policy: str
    subset: str
    predictions: Mapping[str, Prediction]
    images: Mapping[str, Image]
    repos_dir: Path
    runs_dir: Path | None
    witness_path: Path | None = None
    variables: tuple[str, ...] = ()

    def work(self, bench: Bench) -> Callable[[Task], Grade]:
        """Returns the function that maps a task to the grade of its prediction."""
        mark = {"policy": self.policy, "subset": self.subset}
        return lambda task: grade_prediction(task, self.predictions[task.instance_id], bench) | mark

    def grades(
        self, keyed: list[tuple[str, Task]], bench: Bench, journal: Journal, workers: int, max_lost: int
    ) -> Iterator[Grade]:
        """Yields the grades of the tasks in `keyed`, in the same order.

        keyed: (key, task) pairs. See `run_shard`.
        """
        return run_shard(
            keyed,
            lambda: nullcontext(self.work(bench)),
            journal,
            workers=workers,
            label=f"grade {self.policy} {self.subset}",
            is_lost=self.is_lost,
            is_good=lambda record: record.resolved,
            kind=Grade,
            place=self,
            losses=Losses(max_lost, lambda record: record.reason, self.policy, "grades"),
        )

    @contextmanager
    def open(self, count: int) -> Iterator[Callable[[Task], Grade]]:
        """Yields the grading function, with a bench that only this process uses."""
        given = (self.repos_dir, self.images, self.runs_dir, self.witness_path)
        with open_bench(*given, count) as bench:
            yield self.work(bench)

    def is_lost(self, record: Grade) -> bool:
        """Returns whether infrastructure lost the grading. Returns False if the rollout was already lost."""
        return record.status in LOST_GRADES and record.outcome not in LOST_ROLLOUTS

    def lost_record(self, item: Task, reason: str) -> Grade:
        """Returns the grade of a prediction whose grading was lost with its worker hosts."""
        mark = {"policy": self.policy, "subset": self.subset}
        return lost_grade(item, self.predictions[item.instance_id].outcome, reason) | mark


def prediction_key(task: Task, predictions: Mapping[str, Prediction], bench: Bench) -> str:
    """Returns the journal key of the grade of a task's prediction. Raises InputError if the task does not say
    how to test it."""
    read_spec(task)
    prediction = predictions[task.instance_id]
    ended = prediction.outcome
    if wants_own_eval(task):
        ended = f"{ended}, eval {prediction.own_eval or 'none'}"
    return grade_key(task, prediction.model_patch or "", ended, bench.ground(task))


def grade_prediction(task: Task, prediction: Prediction, bench: Bench) -> Grade:
    """Returns the grade of one prediction, with the outcome of the rollout that made it."""
    if prediction.outcome in LOST_ROLLOUTS:
        record = lost_grade(task, prediction.outcome)
    else:
        patch = prediction.model_patch or ""
        record = bench.grade_of(task, patch, bench.run(task, patch))
        record = record | ({"run": bench.key(task, patch)} if bench.archive.folder else {})
        record = with_own_eval(task, prediction, record) | {"outcome": prediction.outcome}
    check(record, Grade, f"grade of {task.instance_id}")
    return record


OWN_EVAL = "(compat.final_eval is false)"
"""The end of the reason why a repair does not count."""


def wants_own_eval(task: Task) -> bool:
    """Returns whether a repair counts only if the agent itself saw its tests pass, as in a published
    benchmark."""
    return bool(task.compat and not task.compat.final_eval)


def with_own_eval(task: Task, prediction: Prediction, grade: Grade) -> Grade:
    """Returns the grade, changed to unresolved if the agent did not see its tests pass. This applies only if
    the task's `compat.final_eval` is false. Then the agent's own last `eval` must have passed."""
    if not (grade.resolved and wants_own_eval(task)) or prediction.own_eval == "passed":
        return grade
    said = "its last eval failed" if prediction.own_eval else "it never called eval"
    reason = f"the tests pass, but the agent did not see that: {said} {OWN_EVAL}"
    return grade | {"status": GradeEnd.UNRESOLVED, "resolved": False, "reason": reason}


def lost_grade(task: Task, outcome: str, reason: str = "") -> Grade:
    """Returns the grade of a patch without a verdict, because infrastructure lost its rollout or its
    grading."""
    return Grade(
        instance_id=task.instance_id,
        status=GradeEnd.INFRA_ERROR,
        resolved=False,
        reason=reason or f"the rollout ended as {outcome}",
        outcome=outcome,
    )
