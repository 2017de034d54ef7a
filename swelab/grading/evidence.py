"""Records of the evidence from a run of a patch, and journal rows of task validation."""

from typing import Any

from swelab.records.attempt_records import GradeWitness
from swelab.records.typed import TypedRecord, field


class ObserverReport(TypedRecord):
    """The report of the observer, which runs in the test runner's process (`inside.observer`)."""

    exit: int = field("exit code of pytest")
    outcomes: dict[str, Any] = field("pytest's outcome keyed by test id; the worst outcome that was reported")
    raised: dict[str, str] = field(
        "exception name, keyed by test id, that the test function itself raised; empty if it raised nothing"
    )
    skippers: dict[str, str] = field(
        "file, keyed by test id, whose code skipped the test; absent if a mark did", default={}
    )
    marked: list[str] = field("tests that are marked as expected failures")
    changed: list[str] = field("parts of the test runner that changed during the run")
    powers: list[str] = field("restricted functions that patched code used")
    junit: str | None = field(
        "pytest's JUnit file; empty if it is missing, null if pytest writes none", default=None
    )
    faults: list[dict[str, str]] = field("errors of the guard: error, traceback, patched", default=())


class RunEvidence(TypedRecord):
    """All facts from which a verdict is computed.

    The fields after `seconds` are set only if the tests ran.
    """

    ended: str = field("ran, not_applied, or the GradeEnd of a run that ended before its tests")
    reason: str = field("why the run ended so")
    findings: list[str] = field("findings of the audit of the patch's code")
    dynamic: list[str] = field("parts of the patch that make a second run necessary")
    echo: str = field("evidence against the patch from the second run, with spoiled tests")
    seconds: float = field("wall time in seconds")
    guarded: bool = field("whether the tests ran under guard")
    code_is_runners: bool = field("whether the exit code is the test runner's own", default=True)
    timed_out: bool = field("whether the tests exceeded their time limit")
    limit: str = field("the limit that the tests exceeded", default="")
    log: str = field("output of the tests", default="")
    code: int | None = field("exit code of the tests")
    sealed: str = field("state of the observer's record: a key of `observer_record.STATES`")
    observed: ObserverReport | None = field("the observer's record", default=None)
    guard_fault: str = field("first error of the guard's own code", default="")
    said: str | None = field(
        "base64 of the values that the patch's code emitted in the witness question", default=None
    )
    said_ended: str = field("why the run of the witness question did not end by itself", default="")
    rewards: dict[str, str] = field(
        "maps each reward file that the task's script wrote to its text", default={}
    )
    reward_fault: str = field("why a reward file could not be read", default="")
    tests_changed: str = field("first file of the task's verifier that changed during the run", default="")
    reference: bool = field("whether the run is judged as by the reference harness", default=False)
    patch: str | None = field("the patch, in stored runs", default=None)
    made: dict[str, Any] | None = field(
        "versions, backend and limits of the run, in stored runs", default=None
    )


class GateRun(TypedRecord):
    """The journal row of one validation run."""

    status: str = field("a GradeEnd, or ran if the run has no verdict")
    reason: str = field("reason in one line")
    passed: list[str] = field("listed tests that passed")
    seconds: float = field("wall time in seconds")
    lost: str = field("why the run was lost to infrastructure, or an empty text", default="")
    unjudged: str = field("why another run would not give a verdict either, or an empty text", default="")
    run_kind: str = field("kind of the run: gold, base or reversed", alias="kind", default="")
    instances: list[str] = field("ids of the tasks in the run", default=())
    instance_id: str = field("id of the requested task", default="")
    key: str = field("key of the stored evidence", default="")


class WitnessRun(TypedRecord):
    """The journal row of a group of runs that make the witnesses of tasks."""

    lost: str = field("why the runs were lost to infrastructure, or an empty text", default="")
    seconds: float = field("wall time in seconds", default=0.0)
    standings: dict[str, GradeWitness] = field(
        "strength of the witness evidence for each gold patch, keyed by task", default={}
    )
    packed: dict[str, str] = field("base64 of the compressed witness, keyed by task", default={})


def ended_run(status: str, reason: str = "") -> RunEvidence:
    """Returns the evidence of a run that ended before its tests."""
    return RunEvidence.of({"ended": status, "reason": reason})
