"""Records about attempts: trajectories of rollouts, predictions, usage and grades."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from swelab.outcomes import RolloutEnd
from swelab.records.typed import ClosedRecord, Count, TypedRecord, field, one_of
from swelab.records.witness_records import Witnessed

Verdict = Annotated[str, one_of("GradeEnd")]
FinalEnd = Annotated[str, one_of("FINAL_ROLLOUTS")]
UNASKED: Witnessed = "not_witnessed"
RESOLVED_BY: tuple[Witnessed, ...] = ("witnessed", "weakly_witnessed", UNASKED)
"""Levels of witness evidence for a resolved patch, from strong to none (docs/grading.md)."""
_SAMPLE = "which of the policy's attempts at the task; 0 when not there"


class Message(TypedRecord):
    """One message of a trajectory, in the format of the scaffold that wrote the trajectory."""

    role: Literal["system", "user", "assistant", "tool", "exit"] = field("role of the sender")
    content: Any = field("the text, or a list of parts", default=None)


def is_refusal(message: Mapping[str, Any]) -> bool:
    """Returns whether `message` tells the policy that its last turn was malformed, for example without a
    command."""
    return (message.get("extra") or {}).get("interrupt_type") == "FormatError"


class Rollout(TypedRecord):
    """The result of one attempt at a task."""

    instance_id: str = field("id of the task", minLength=1)
    outcome: Annotated[str, one_of("RolloutEnd")] = field(
        "how the rollout ended; *_lost: infrastructure lost it; budget_spent: waits for a "
        "higher budget (in journals only); not_recorded: the recorded policy has no usable "
        "trajectory of the task; none of these counts as an unsolved task"
    )
    model_patch: str = field("diff between the task's base commit and the sandbox at the end")
    messages: list[Message] = field("messages of the conversation")
    info: dict[str, Any] = field("mini-swe-agent's info: exit_status, submission, model_stats, mini_version")
    trajectory_format: Literal[
        "mini-swe-agent-1", "mini-swe-agent-1.1", "swe-agent", "swe-agent-text", "atif"
    ] = field("version of the trajectory format")
    seconds: float | None = field(
        "wall time of the attempt from its sandbox's start, in seconds; absent for scripted and recorded "
        "attempts",
        default=None,
        type="number",
        minimum=0,
    )


class Trajectory(Rollout):
    """One rollout in mini-swe-agent's format, with additional fields. A recorded SWE-agent rollout has
    SWE-agent's format."""

    policy: str = field("name of the policy")
    subset: str = field("name of the subset")
    sample: Count = field(_SAMPLE, default=0)
    key: str = field("hash of everything that the rollout depends on", default="")


class Prediction(TypedRecord):
    """One prediction in SWE-bench's format."""

    instance_id: str = field("id of the task", minLength=1)
    model_name_or_path: str = field("name of the policy")
    sample: Count = field(_SAMPLE, default=0)
    outcome: FinalEnd = field("how the rollout ended; submitted if absent", default=RolloutEnd.SUBMITTED)
    model_patch: str | None = field("unified diff; empty or null if there is none")
    own_eval: Literal["passed", "failed", ""] = field(
        "result of the agent's last call of its tool `eval`; absent if it never called the tool",
        default="",
        enum=["passed", "failed"],
    )


class Usage(ClosedRecord):
    """Calls, tokens, dollars and time that one trajectory used. An unknown number is null, not 0."""

    calls: Count = field("number of model calls")
    prompt_tokens: int | None = field(
        "number of prompt tokens over all calls, cached ones included", minimum=0
    )
    completion_tokens: int | None = field("number of tokens that the model generated", minimum=0)
    reasoning_tokens: int | None = field(
        "number of generated tokens that are thoughts; absent if no call reported it",
        default=None,
        type="integer",
        minimum=0,
    )
    cost: float | None = field("cost in dollars, as the service charges it", minimum=0)
    seconds: float | None = field(
        "wall time of the attempt, in seconds; absent if it was not recorded",
        default=None,
        type="number",
        minimum=0,
    )


class ListedTests(ClosedRecord):
    """The tests of one list that passed, and those that did not pass."""

    success: list[str] = field("ids of the tests that passed")
    failure: list[str] = field("ids of the tests that did not pass")


class TestVerdicts(ClosedRecord):
    """The results of the tests in FAIL_TO_PASS and in PASS_TO_PASS."""

    FAIL_TO_PASS: ListedTests = field("tests that the fix must make pass", default=None)
    PASS_TO_PASS: ListedTests = field("tests that must still pass", default=None)


class GradeWitness(ClosedRecord):
    """The witness evidence for a patch, from witness questions (tests without their expected values). See
    docs/grading.md."""

    standing: Witnessed = field("strength of the witness evidence for the patch")
    reason: str = field("why the patch is not witnessed", default="")
    bits: float = field(
        "number of bits that a guess of the confirmed values would need", default=0.0, minimum=0
    )


class Grade(TypedRecord):
    """The verdict on one prediction."""

    instance_id: str = field("id of the task", minLength=1)
    policy: str = field("name of the policy", default="")
    subset: str = field("name of the subset", default="")
    sample: Count = field(_SAMPLE, default=0)
    status: Verdict = field("the verdict; infra_error means that the patch was not judged")
    resolved: bool = field("whether all FAIL_TO_PASS and all PASS_TO_PASS tests pass, or the reward is 1")
    reward: float | None = field(
        "reward of a task that a script judges; absent if the script wrote no readable reward",
        default=None,
        type="number",
        minimum=0,
        maximum=1,
    )
    outcome: FinalEnd = field("how the rollout ended", default=RolloutEnd.SUBMITTED)
    reason: str = field("reason of the verdict in one line, if the status does not explain it", default="")
    tests_status: TestVerdicts | None = field("result of each listed test", default=None, type="object")
    witness: GradeWitness | None = field(
        "for a patch whose tests pass: witness evidence; absent if no witness questions were run",
        default=None,
        type="object",
    )
    doubt: str = field(
        "for an unresolved patch: why it could have forged the tests that pass; rewards for single tests pay "
        "nothing then",
        default="",
    )
    patch_sha256: str = field("hash of the patch that was graded", default="")
    seconds: float = field("wall time of the grading, in seconds", default=0.0, minimum=0)
    run: str = field(
        "key under which the test log and the evidence are stored (results/progress/runs/; "
        "`python -m scripts.show`)",
        default="",
        pattern="^[0-9a-f]{64}$",
    )
    key: str = field("hash of everything that the grade depends on", default="")

    @property
    def evidence(self) -> str:
        """The strength of the witness evidence for the patch, or not_witnessed if no witness question ran."""
        return self.witness.standing if self.witness else UNASKED
