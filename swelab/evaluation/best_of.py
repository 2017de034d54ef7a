"""Chooses the best of several attempts at a task, based on tests that the agent could see. Verdicts are not
used."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext

from swelab.evaluation.attempt_result import AttemptResult
from swelab.evaluation.evaluation_plan import Plan
from swelab.grading.grading_stage import open_bench
from swelab.grading.visible_tests import VisibleRun, run_visible, visible_key
from swelab.jobs.journal import Journal
from swelab.jobs.resumable_run import run_shard
from swelab.outcomes import RolloutEnd
from swelab.records import Record
from swelab.records.task_records import Task
from swelab.sandbox import Image
from swelab.scores.score import rate

RULE = (
    "the attempt whose patch passes most visible tests; of equal ones the patch that most attempts left, "
    "word for word; then one that was submitted; then the earliest. A lost attempt or an empty patch is "
    "chosen only where there is no other"
)
VisibleRuns = Mapping[tuple[str, str], VisibleRun]
"""Maps (instance id, patch) to the result of the visible tests."""


def by_task(done: Iterable[AttemptResult]) -> dict[str, list[AttemptResult]]:
    """Groups attempts by task. The attempts at a task are in the order of samples."""
    found: dict[str, list[AttemptResult]] = {}
    for each in sorted(done, key=lambda each: each.sample):
        found.setdefault(each.instance_id, []).append(each)
    return found


def patches_of(attempts: Iterable[AttemptResult]) -> list[str]:
    """Returns the distinct patches of the attempts. Empty patches are excluded."""
    return list(dict.fromkeys(each.model_patch for each in attempts if each.model_patch.strip()))


def visible_runs(
    plan: Plan, tasks: Sequence[Task], images: Mapping[str, Image], done: Sequence[AttemptResult]
) -> dict[tuple[str, str], VisibleRun]:
    """Runs the visible tests for each task whose attempts have different patches. Results are written to a
    journal. Raises BackendMissing, and InputError if a task is unusable."""
    attempts = by_task(done)
    several = {name: found for name, row in attempts.items() if len(found := patches_of(row)) > 1}
    pairs = [(task, patch) for task in tasks for patch in several.get(task.instance_id, ())]
    if not pairs:
        return {}
    with (
        open_bench(plan.repos, images, None, None, plan.workers) as bench,
        Journal(plan.progress / "visible.jsonl") as journal,
    ):
        runs = run_shard(
            [(visible_key(task, patch, bench), (task, patch)) for task, patch in pairs],
            lambda: nullcontext(lambda item: run_visible(item[0], item[1], bench)),
            journal,
            workers=plan.workers,
            label=f"visible tests {plan.policy_name}",
            kind=VisibleRun,
            is_lost=lambda run: run.is_lost,
            is_good=lambda run: not run.failed,
        )
        return {(task.instance_id, patch): run for (task, patch), run in zip(pairs, runs, strict=True)}


def choose(attempts: Sequence[AttemptResult], runs: VisibleRuns) -> AttemptResult:
    """Chooses an attempt according to RULE, without grades."""
    counts = Counter(each.model_patch for each in attempts)

    def rank(each: AttemptResult) -> tuple[bool, int, int, bool, int]:
        run = runs.get((each.instance_id, each.model_patch))
        is_patch, passed = bool(each.model_patch.strip()), run.passed if run else 0
        is_submitted = each.outcome == RolloutEnd.SUBMITTED
        return is_patch, passed, counts[each.model_patch], is_submitted, -each.sample

    return max(attempts, key=rank)


def decided_by(attempts: Sequence[AttemptResult], runs: VisibleRuns) -> str:
    """Returns how the choice among a task's attempts was made: one_patch, no_visible_test, visible_tests or
    tie."""
    found = patches_of(attempts)
    if len(found) < 2:
        return "one_patch"
    passed = [run.passed for patch in found if (run := runs.get((attempts[0].instance_id, patch)))]
    if not any(passed):
        return "no_visible_test"
    return "visible_tests" if passed.count(max(passed)) == 1 else "tie"


def best_of(done: Sequence[AttemptResult], runs: VisibleRuns, samples: int) -> Record:
    """Returns the number and rate of tasks that the chosen attempts resolve, with a confidence interval.

    In the result, "decided" maps each result of `decided_by` to a number of tasks. "repair_tests_seen" is the
    number of tasks whose visible tests include tests to repair. For such tasks, the choice uses a part of the
    verdict.
    """
    attempts = by_task(done)
    picked = {name: choose(row, runs) for name, row in attempts.items()}
    resolved = sum(bool(each.grade and each.grade.resolved) for each in picked.values())
    return {
        "of": samples,
        **rate(resolved, len(picked)),
        "rule": RULE,
        "decided": dict(Counter(decided_by(row, runs) for row in attempts.values()).most_common()),
        "repair_tests_seen": len({name for (name, _), run in runs.items() if run.repairs}),
        "runs_lost": sum(run.is_lost for run in runs.values()),
        "chosen": {name: each.sample for name, each in picked.items()},
    }
