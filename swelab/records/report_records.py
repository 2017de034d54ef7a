"""A policy's report on a subset: counts of its grades, in the format of SWE-bench's own harness."""

from swelab.records.attempt_records import FinalEnd, Verdict
from swelab.records.typed import ClosedRecord, Count, TypedRecord, field
from swelab.records.witness_records import Witnessed


class Validation(ClosedRecord):
    """Counts of the subset's tasks by the result of their validation."""

    gold_runs: Count = field("number of runs of each gold patch; 0 if no task has a gold patch")
    gold_tasks: Count = field("number of tasks whose gold patch was run")
    gold_resolved_each_time: Count = field("number of tasks whose gold patch was resolved in every run")
    gold_runs_resolved: Count = field(
        "number of gold runs that resolved their task, of gold_runs * gold_tasks"
    )
    kept: int = field(
        "number of tasks to attempt: tasks that passed, and tasks with private answers", minimum=1
    )
    flaky: Count = field("number of tasks whose gold patch was resolved in some runs only")
    null_tasks: int = field(
        "number of tasks without a known repair, in addition to gold_tasks; only their "
        "unchanged code was run",
        default=0,
        minimum=1,
    )
    null_kept: Count = field(
        "number of kept tasks without a known repair: the same tests failed in every run of "
        "the unchanged code",
        default=0,
    )
    private: int = field(
        "number of kept tasks with private answers, in addition to gold_tasks; nothing was run",
        default=0,
        minimum=1,
    )
    broken: Count = field("number of tasks that cannot be graded correctly")
    unjudged: int = field(
        "number of tasks for which the grader itself failed; absent if there are none", default=0, minimum=1
    )


class ReportValidation(Validation):
    """Counts of the subset's tasks by the result of their validation, and the ids of excluded tasks."""

    is_open = True
    gold_runs: Count = field("number of runs of each gold patch")
    kept: Count = field("number of tasks to attempt: tasks that passed, and tasks with private answers")
    flaky_ids: list[str] = field(
        "ids of excluded tasks: the gold patch was resolved in some runs only", default=()
    )
    broken_ids: list[str] = field("ids of excluded tasks: they cannot be graded correctly", default=())


class ReportedInstance(TypedRecord):
    """The verdict on one task, and how the attempt at it ended."""

    status: Verdict = field("the verdict")
    outcome: FinalEnd = field("how the rollout ended", default="submitted")
    witness: Witnessed | None = field(
        "for a resolved task: strength of the witness evidence; absent if no witness questions were run",
        default=None,
    )
    reason: str = field("for a suspect patch: the part of its code that could forge the result", default="")


class Report(TypedRecord):
    """A policy's grades on a subset, in SWE-bench's report schema 2 with additional fields."""

    total_instances: Count = field("count")
    submitted_instances: Count = field("count")
    completed_instances: Count = field("count")
    resolved_instances: Count = field("count")
    unresolved_instances: Count = field("count")
    empty_patch_instances: Count = field("count")
    error_instances: Count = field("count")
    infra_failure_instances: Count = field("count")
    submitted_ids: list[str] = field("instance ids")
    completed_ids: list[str] = field("instance ids")
    incomplete_ids: list[str] = field("instance ids")
    empty_patch_ids: list[str] = field("instance ids")
    resolved_ids: list[str] = field("instance ids")
    unresolved_ids: list[str] = field("instance ids")
    error_ids: list[str] = field("instance ids")
    infra_failure_ids: list[str] = field("instance ids")
    tampered_ids: list[str] = field(
        "ids of unresolved tasks whose patch interfered with its own grading", default=()
    )
    suspect_ids: list[str] = field(
        "ids of unresolved tasks whose tests pass, but whose patch has code that could forge "
        "the result, without other confirmation",
        default=(),
    )
    schema_version: int = field("version of SWE-bench's report schema", const=2)
    policy: str = field("name of the policy")
    subset: str = field("name of the subset")
    sample: Count = field("number of the attempt at each task; 0 if absent", default=0)
    tasks_digest: str = field("hash of the subset's rows", default="")
    statuses: dict[str, Count] = field("number of instances by status")
    outcomes: dict[str, Count] = field("number of instances by outcome of the rollout", default=None)
    witness: dict[str, Count] = field(
        "number of resolved tasks by strength of the witness evidence; absent if no witness "
        "questions were run",
        default=None,
    )
    instances: dict[str, ReportedInstance] = field("maps each instance id to its status and outcome")
    validation: ReportValidation | None = field("the validation of the tasks", default=None, type="object")
