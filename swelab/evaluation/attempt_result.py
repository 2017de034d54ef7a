"""The record of one attempt at a task: how the attempt ended, the patch, the grade and the model usage."""

from swelab.outcomes import LOST_ROLLOUTS, WAITING_ROLLOUTS, GradeEnd, RolloutEnd
from swelab.records import Record
from swelab.records.attempt_records import Grade, Prediction, Trajectory, Usage
from swelab.records.typed import Count, TypedRecord, field
from swelab.rollouts.token_usage import usage_of


class AttemptResult(TypedRecord):
    """An attempt with its verdict, or with the reason why there is no verdict."""

    instance_id: str = field("id of the task")
    sample: Count = field("number of the attempt at the task", default=0)
    outcome: str = field("how the rollout ended")
    exit_status: str = field("how the rollout ended, in the scaffold's words", default="")
    model_patch: str = field("submitted patch")
    grade: Grade | None = field("the grade; null for an attempt that waits for a higher budget")
    usage: Usage = field("calls, tokens and cost in dollars")
    reason: str = field("why the attempt was lost or cannot be judged", default="")
    is_final: bool = field("whether later runs skip the attempt", default=False)
    run_dir: str = field("folder of the attempt; empty if the attempt did not start", default="")
    elapsed: float = field("seconds from the start of the rollout to the verdict", default=0.0)

    @property
    def is_paused(self) -> bool:
        """Whether the attempt waits for a higher budget."""
        return self.outcome in WAITING_ROLLOUTS

    @property
    def is_refused(self) -> bool:
        """Whether the model's service does not answer this task, so that no later run retries the attempt."""
        return self.outcome == RolloutEnd.MODEL_REFUSED

    @property
    def is_lost(self) -> bool:
        """Whether the attempt was lost to infrastructure and will be retried by the next run."""
        final = self.is_final or self.is_paused or self.is_refused
        return not final and self.status == GradeEnd.INFRA_ERROR

    @property
    def status(self) -> str:
        """The status of the grade. infra_error if there is no grade."""
        return self.grade.status if self.grade else GradeEnd.INFRA_ERROR

    def row(self) -> Record:
        """Returns the attempt's line of results.jsonl: first the fields of the SWE-RL scripts, then swelab's
        own fields."""
        lost = self.status == GradeEnd.INFRA_ERROR
        return {
            "instance_id": self.instance_id,
            "resolved": bool(self.grade and self.grade.resolved),
            "exit_status": self.outcome,
            "patch_source": "submitted" if self.model_patch else None,
            "n_steps": self.usage.calls,
            "error": (self.reason or "lost to infrastructure") if lost else None,
            "elapsed": self.elapsed,
            "run_dir": self.run_dir,
            **({"sample": self.sample} if self.sample else {}),
            "status": self.status,
            **({"reward": self.grade.reward} if self.grade and "reward" in self.grade else {}),
            "infrastructure": lost,
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            **({"reasoning_tokens": thoughts} if (thoughts := self.usage.reasoning_tokens) else {}),
            "cost": self.usage.cost,
        }

    def prediction(self, policy: str) -> Prediction:
        """Returns the attempt's patch in SWE-bench's format of predictions."""
        prediction = Prediction(
            instance_id=self.instance_id,
            model_name_or_path=policy,
            model_patch=self.model_patch,
            outcome=self.outcome,
        )
        return prediction | {"sample": self.sample} if self.sample else prediction


def attempt_result(
    trajectory: Trajectory,
    sample: int,
    grade: Grade | None,
    run_dir: str,
    elapsed: float,
    final: bool = False,
) -> AttemptResult:
    """Returns the record of a rollout with its grade."""
    info = trajectory.info
    reason = str(info.get("reason") or "") if trajectory.outcome in LOST_ROLLOUTS else ""
    reason = reason or (grade.reason if grade and grade.status == GradeEnd.INFRA_ERROR else "")
    return AttemptResult(
        instance_id=trajectory.instance_id,
        sample=sample,
        outcome=trajectory.outcome,
        exit_status=str(info.get("exit_status") or ""),
        model_patch=trajectory.model_patch,
        grade=grade,
        usage=usage_of(trajectory),
        reason=reason,
        is_final=final,
        run_dir=run_dir,
        elapsed=round(elapsed, 1),
    )
