"""A policy's report on a subset: counts of its grades, in the format of SWE-bench's own harness."""

from swelab.records.attempt_records import FinalEnd, Verdict
from swelab.records.typed import ClosedRecord, Count, TypedRecord, field
from swelab.records.witness_records import Witnessed


class Validation(ClosedRecord):
    """How many tasks of the subset passed validation."""

    gold_runs: Count = field("runs of each gold patch; 0 where no task has one")
    gold_tasks: Count = field("tasks whose gold patch was run")
    gold_resolved_each_time: Count = field("tasks whose gold patch was resolved in every run")
    gold_runs_resolved: Count = field("gold runs that resolved their task, of gold_runs * gold_tasks")
    kept: int = field("tasks to attempt: those that passed, and those whose answers are private", minimum=1)
    flaky: Count = field("gold patches resolved in some runs only")
    null_tasks: int = field(
        "tasks beside the gold tasks: no repair is known, the code as it is was run alone",
        default=0,
        minimum=1,
    )
    null_kept: Count = field(
        "of the kept tasks those validated by the null run only: the same tests failed every time", default=0
    )
    private: int = field(
        "kept tasks beside the gold tasks: their answers are private, nothing was run", default=0, minimum=1
    )
    broken: Count = field("tasks that cannot be graded rightly")
    unjudged: int = field(
        "tasks with which the grader itself failed; absent where there are none", default=0, minimum=1
    )


class ReportValidation(Validation):
    """How many tasks of the subset passed validation, and which tasks were excluded."""

    is_open = True
    gold_runs: Count = field("runs of each gold patch")
    kept: Count = field("tasks to attempt: those that passed, and those whose answers are private")
    flaky_ids: list[str] = field("tasks that were left out", default=())
    broken_ids: list[str] = field("tasks that were left out", default=())


class ReportedInstance(TypedRecord):
    """How the attempt at a task ended."""

    status: Verdict = field("the verdict")
    outcome: FinalEnd = field("how the rollout ended", default="submitted")
    witness: Witnessed | None = field(
        "of a resolved task: how well its patch is witnessed; absent where nobody asked",
        default=None,
    )
    reason: str = field("of a suspect patch: what its code could forge the result by", default="")


class Report(TypedRecord):
    """A policy's grades on a subset, in SWE-bench's report schema 2, with further fields of swelab."""

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
        "ids of the unresolved whose patch would have decided how it is judged", default=()
    )
    suspect_ids: list[str] = field(
        "ids of the unresolved whose tests pass by code that could forge it, as nothing else confirms",
        default=(),
    )
    schema_version: int = field("SWE-bench's report schema", const=2)
    policy: str = field("who acted")
    subset: str = field("the subset")
    sample: Count = field("which of the policy's attempts at each task; 0 when not there", default=0)
    tasks_digest: str = field("hash of the subset's rows", default="")
    statuses: dict[str, Count] = field("count by status")
    outcomes: dict[str, Count] = field("count by outcome of the rollout", default=None)
    witness: dict[str, Count] = field(
        "count of the resolved by how well they are witnessed; absent where nobody asked", default=None
    )
    instances: dict[str, ReportedInstance] = field("status and outcome by instance id")
    validation: ReportValidation | None = field("the gate that the tasks passed", default=None, type="object")
