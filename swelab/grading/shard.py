"""The grading stage: the predictions of one shard, each graded once."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from swelab.grading.grade import grade, grade_key
from swelab.journal import Journal
from swelab.records import InputError, Record, check
from swelab.sandbox import Backend, Limits, open_backend
from swelab.shards import in_shard, run_shard
from swelab.tasks.checkout import RepoStore, scratch_folder

LOST_ROLLOUTS = ("sandbox_lost", "model_lost")


def grade_shard(
    tasks: list[Record],
    predictions: dict[str, Record],
    *,
    policy: str,
    subset: str,
    shard: str,
    repos_dir: Path,
    progress: Path,
    workers: int,
) -> Iterator[Record]:
    """Grade records of the shard's tasks that have a prediction, in the tasks' order.

    A rollout that was lost to its infrastructure is graded infra_error: there is no patch to judge.
    Raises InputError on a prediction for no task, and on unusable tasks.
    """
    unknown = sorted(set(predictions) - {task["instance_id"] for task in tasks})
    if unknown:
        raise InputError(f"{len(unknown)} predictions of no task, such as {unknown[0]}", subset)
    backend = open_backend()
    with Journal(progress) as journal, scratch_folder() as scratch:
        store = RepoStore(repos_dir, scratch)
        predicted = [task for task in in_shard(tasks, shard) if task["instance_id"] in predictions]
        keyed = [(prediction_key(task, predictions, store), task) for task in predicted]

        def work(task: Record) -> Record:
            record = grade_prediction(task, predictions[task["instance_id"]], store, backend)
            return {**record, "policy": policy, "subset": subset}

        yield from run_shard(
            keyed,
            lambda: nullcontext(work),
            journal,
            workers=workers,
            label=f"grade {policy} {subset}",
            is_lost=lambda record: (
                record["status"] == "infra_error" and record["outcome"] not in LOST_ROLLOUTS
            ),
            is_good=lambda record: record["resolved"],
        )


def prediction_key(task: Record, predictions: dict[str, Record], store: RepoStore) -> str:
    """Key of the grade of a task's prediction. Raises InputError on a task without a test command."""
    if not task.get("test_cmd"):
        raise InputError("no test_cmd", task["instance_id"], "a task with a test command")
    prediction = predictions[task["instance_id"]]
    outcome = prediction.get("outcome", "submitted")
    return grade_key(task, prediction["model_patch"] or "", outcome, store.digest(task))


def grade_prediction(task: Record, prediction: Record, store: RepoStore, backend: Backend) -> Record:
    """The grade of one prediction, with the outcome of the rollout that made it."""
    outcome = prediction.get("outcome", "submitted")
    if outcome in LOST_ROLLOUTS:
        record = lost(task, outcome)
    else:
        record = grade(task, prediction["model_patch"], store, backend, Limits())
    record["outcome"] = outcome
    check(record, "grade", f"grade of {task['instance_id']}")
    return record


def lost(task: Record, outcome: str) -> Record:
    """The grade of a rollout that ended in an infrastructure loss."""
    return {
        "instance_id": task["instance_id"],
        "status": "infra_error",
        "resolved": False,
        "reason": f"the rollout ended as {outcome}",
    }
