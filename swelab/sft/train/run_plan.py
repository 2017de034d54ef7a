"""The plan of a training run with what is known of its steps before they run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.sft import Sft
from swelab.files.model_config import ModelConfig
from swelab.records import Record, read_json, write_json
from swelab.sft.rows.lengths import Length
from swelab.sft.train.batches import Plan, plan_batches, write_plan
from swelab.sft.train.check_settings import check_settings
from swelab.sft.train.device import device_of
from swelab.sft.train.metrics import PlannedRun, PlannedStep, pass_cost, planned_steps
from swelab.sft.train.ranks import ranks_of
from swelab.sft.train.trainer import open_trainer

PLAN, PLANNED = "plan.json", "planned.json"


@dataclass(frozen=True)
class RunPlan:
    """`batches` is None where the trainer's own loader deals pairs (DPO): nothing is known of its steps."""

    batches: Plan | None
    steps: list[PlannedStep]
    steps_per_epoch: int

    def write(self, work: Path, recipe: Sft) -> None:
        """plan.json and planned.json, for the processes that train."""
        if self.batches:
            write_plan(work / PLAN, self.batches)
        ranks = ranks_of(recipe).total
        told = PlannedRun(steps=self.steps, device=device_of(recipe.train), ranks=ranks, wandb=recipe.wandb)
        write_json(work / PLANNED, told)

    def facts(self) -> Record:
        """The manifest's fields about the plan."""
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


def plan_run(base: Path, recipe: Sft, lengths: Sequence[Length]) -> RunPlan:
    """The plan of an sft recipe's run on conversations of these lengths (`check_inputs`), two of each pair.

    Raises InputError for what cannot be planned (`plan_batches`, `check_settings`).
    """
    train, ranks = recipe.train, ranks_of(recipe)
    check_settings(recipe)
    if train.dpo:
        pairs = len(lengths) // 2
        return RunPlan(None, [], pairs // (train.batch_size * train.gradient_accumulation_steps))
    config = ModelConfig.of(read_json(base / "config.json"))
    cost = pass_cost(config, device_of(train))
    plan = plan_batches([length.tokens for length in lengths], train, ranks, cost)
    steps = planned_steps(plan, lengths, config, fixed=open_trainer(recipe.trainer).fills_packs)
    return RunPlan(plan, steps, plan.steps_per_epoch)
