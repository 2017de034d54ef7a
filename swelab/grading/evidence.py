"""Records of the evidence from a run of a patch, and journal rows of task validation."""

from typing import Any

from swelab.records.attempt_records import GradeWitness
from swelab.records.typed import TypedRecord, field


class Observed(TypedRecord):
    """The report of the observer, which runs in the test runner's process (`inside.observer`)."""

    exit: int = field("exit code of pytest")
    outcomes: dict[str, Any] = field("pytest's word by test id: the worst that was reported of it")
    raised: dict[str, str] = field("name of what a test function itself raised, or an empty text, by test id")
    marked: list[str] = field("tests that are marked as expected failures")
    changed: list[str] = field("parts of the test runner that were changed while it ran")
    powers: list[str] = field("reserved powers that patched code used")
    junit: str | None = field(
        "pytest's JUnit file; empty: it is missing; null: pytest writes none", default=None
    )
    faults: list[dict[str, str]] = field("errors of the guard: error, traceback, patched", default=())


class RunEvidence(TypedRecord):
    """All facts from which a verdict is computed.

    The fields after `seconds` are set only if the tests ran.
    """

    ended: str = field("ran, not_applied, or the GradeEnd that the run ended with before its tests")
    reason: str = field("why it ended so")
    findings: list[str] = field("of the audit of the patch's code")
    dynamic: list[str] = field("what in the patch asks for a second run")
    echo: str = field("what the second run, with spoiled tests, says against the patch")
    seconds: float = field("wall time")
    guarded: bool = field("the tests ran under guard")
    code_is_runners: bool = field("the exit code is the test runner's own", default=True)
    timed_out: bool = field("the tests met their time limit")
    limit: str = field("the limit that the tests met", default="")
    log: str = field("output of the tests", default="")
    code: int | None = field("exit code of the tests")
    sealed: str = field("the observer's record: a word of `observer_record.STATES`")
    observed: Observed | None = field("the observer's record", default=None)
    guard_fault: str = field("first error of the guard's own code", default="")
    said: str | None = field(
        "base64 of the values that the patch's code emitted in the question", default=None
    )
    said_ended: str = field("why the question's run came to no end of its own", default="")
    rewards: dict[str, str] = field("text of each reward file that the task's script wrote", default={})
    reward_fault: str = field("why a reward file could not be read", default="")
    tests_changed: str = field("first file of the task's verifier that the run changed", default="")
    reference: bool = field("run and judged as the reference harness does", default=False)
    patch: str | None = field("the patch, in kept runs", default=None)
    made: dict[str, Any] | None = field("versions, backend and limits of the run, in kept runs", default=None)


class GateRun(TypedRecord):
    """The journal row of one validation run."""

    status: str = field("a GradeEnd, or ran")
    reason: str = field("one line")
    passed: list[str] = field("listed tests that passed")
    seconds: float = field("wall time")
    lost: str = field("why the run was lost to infrastructure, or an empty text", default="")
    unjudged: str = field("why nothing could be said even if it were run again", default="")
    run_kind: str = field("gold, base or reversed", alias="kind", default="")
    instances: list[str] = field("the tasks that it tells about", default=())
    instance_id: str = field("the one of them that is asked for", default="")
    key: str = field("what its evidence is kept under", default="")


class WitnessRun(TypedRecord):
    """The journal row of the validation runs that make the witnesses of tasks."""

    lost: str = field("why the runs were lost to infrastructure, or an empty text", default="")
    seconds: float = field("wall time", default=0.0)
    standings: dict[str, GradeWitness] = field("how well the gold patch is witnessed, by task", default={})
    packed: dict[str, str] = field("base64 of the compressed witness, by task", default={})


def ended(status: str, reason: str = "") -> RunEvidence:
    """Returns the evidence of a run that ended before its tests."""
    return RunEvidence.of({"ended": status, "reason": reason})
