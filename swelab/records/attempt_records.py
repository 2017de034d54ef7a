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
"""How strong the witness evidence for a resolved patch is, from strong to none."""
_SAMPLE = "which of the policy's attempts at the task; 0 when not there"


class Message(TypedRecord):
    """One message of a trajectory, in the format of the scaffold that wrote the trajectory."""

    role: Literal["system", "user", "assistant", "tool", "exit"] = field("who speaks")
    content: Any = field("what is said: a text, or the parts of it", default=None)


def is_refusal(message: Mapping[str, Any]) -> bool:
    """Returns whether `message` tells the policy that its last turn was malformed, for example without a
    command."""
    return (message.get("extra") or {}).get("interrupt_type") == "FormatError"


class Rollout(TypedRecord):
    """The result of one attempt at a task."""

    instance_id: str = field("the task", minLength=1)
    outcome: Annotated[str, one_of("RolloutEnd")] = field(
        "how the rollout ended; *_lost are infrastructure losses, budget_spent waits for a higher budget (in "
        "journals only), not_recorded is a task that a recorded policy has no usable trajectory of: none of "
        "these is an unsolved task"
    )
    model_patch: str = field("the diff that the sandbox held at the end, against the task's base commit")
    messages: list[Message] = field("the conversation")
    info: dict[str, Any] = field("mini-swe-agent's info: exit_status, submission, model_stats, mini_version")
    trajectory_format: Literal["mini-swe-agent-1", "mini-swe-agent-1.1", "swe-agent", "swe-agent-text"] = (
        field("version of the format")
    )


class Trajectory(Rollout):
    """One rollout with further fields of swelab, in mini-swe-agent's format. A recorded SWE-agent rollout is
    in SWE-agent's format."""

    policy: str = field("who acted")
    subset: str = field("the task's subset")
    sample: Count = field(_SAMPLE, default=0)
    key: str = field("hash of all that the rollout depends on", default="")


class Prediction(TypedRecord):
    """One prediction in SWE-bench's format."""

    instance_id: str = field("the task", minLength=1)
    model_name_or_path: str = field("the policy")
    sample: Count = field(_SAMPLE, default=0)
    outcome: FinalEnd = field("how the rollout ended; submitted when not there", default=RolloutEnd.SUBMITTED)
    model_patch: str | None = field("unified diff; empty or null when there is none")
    own_eval: Literal["passed", "failed", ""] = field(
        "what the agent's last call of its tool `eval` said; absent where it called none",
        default="",
        enum=["passed", "failed"],
    )


class Usage(ClosedRecord):
    """Calls, tokens and dollars that one trajectory used. An unknown number is null, not 0."""

    calls: Count = field("answers of the model")
    prompt_tokens: int | None = field("tokens sent, summed over all calls; cached ones count", minimum=0)
    completion_tokens: int | None = field("tokens that the model wrote", minimum=0)
    cost: float | None = field("dollars that the service charges", minimum=0)


class ListedTests(ClosedRecord):
    """Which tests of a list passed, and which did not."""

    success: list[str] = field("tests that passed")
    failure: list[str] = field("tests that did not")


class TestVerdicts(ClosedRecord):
    """Which tests of FAIL_TO_PASS and PASS_TO_PASS passed, and which did not."""

    FAIL_TO_PASS: ListedTests = field("of the tests that the fix must make pass", default=None)
    PASS_TO_PASS: ListedTests = field("of the tests that must go on passing", default=None)


class GradeWitness(ClosedRecord):
    """Verdict of the witness questions (tests without their expected values) on a patch. See
    docs/grading.md."""

    standing: Witnessed = field("what the patch's values make of it")
    reason: str = field("why it is not witnessed", default="")
    bits: float = field("how hard the confirmed values are to guess", default=0.0, minimum=0)


class Grade(TypedRecord):
    """The verdict on one prediction."""

    instance_id: str = field("the task", minLength=1)
    policy: str = field("who acted", default="")
    subset: str = field("the task's subset", default="")
    sample: Count = field(_SAMPLE, default=0)
    status: Verdict = field("the verdict; infra_error says nothing about the patch")
    resolved: bool = field("all FAIL_TO_PASS and all PASS_TO_PASS pass, or the reward is 1")
    reward: float | None = field(
        "what the script of a task gave that is judged by one; absent where it left none that can be read",
        default=None,
        type="number",
        minimum=0,
        maximum=1,
    )
    outcome: FinalEnd = field("how the rollout ended", default=RolloutEnd.SUBMITTED)
    reason: str = field("one line on why, where the status leaves a question", default="")
    tests_status: TestVerdicts | None = field("per test", default=None, type="object")
    witness: GradeWitness | None = field(
        "of a patch whose tests pass: whether its values are gold's; absent where nobody asked",
        default=None,
        type="object",
    )
    patch_sha256: str = field("hash of the patch that was graded", default="")
    seconds: float = field("wall time of the grading", default=0.0, minimum=0)
    run: str = field(
        "what the test log and the evidence are kept under (results/progress/runs/; `python -m "
        "scripts.show`)",
        default="",
        pattern="^[0-9a-f]{64}$",
    )
    key: str = field("hash of all that the grade depends on", default="")

    @property
    def evidence(self) -> str:
        """How strong the witness evidence for a resolved patch is. The value is not_witnessed if no witness
        question ran."""
        return self.witness.standing if self.witness else UNASKED
