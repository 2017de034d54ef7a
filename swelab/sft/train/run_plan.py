"""The plan of a training run, with facts about steps that are known before they run."""

from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.sft import Sft
from swelab.records import Record, write_json
from swelab.sft.train.batches import Plan, write_plan
from swelab.sft.train.device import device_of
from swelab.sft.train.metrics import PlannedRun, PlannedStep
from swelab.sft.train.ranks import ranks_of

PLAN, PLANNED = "plan.json", "planned.json"


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run. With DPO, `batches` is None and `steps` is empty.
    In that case the trainer's own loader makes the batches of pairs."""

    batches: Plan | None
    steps: list[PlannedStep]
    steps_per_epoch: int

    def write(self, work: Path, recipe: Sft) -> None:
        """Writes plan.json and planned.json, for the processes that train."""
        if self.batches:
            write_plan(work / PLAN, self.batches)
        ranks = ranks_of(recipe).total
        told = PlannedRun(steps=self.steps, device=device_of(recipe.train), ranks=ranks, wandb=recipe.wandb)
        write_json(work / PLANNED, told)

    def facts(self) -> Record:
        """Returns the manifest's fields about the plan."""
        if not self.batches:
            return {}
        positions = sum(step.positions for step in self.steps)
        return {
            "batches": self.batches.how,
            "steps_per_epoch": self.steps_per_epoch,
            "rows_left_out_of_each_epoch": self.batches.left_out(),
            "forward_passes_of_a_step": self.batches.passes * self.batches.ranks,
            "padding_share": round(1 - sum(step.tokens for step in self.steps) / positions, 6),
        }
