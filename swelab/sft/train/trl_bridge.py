"""Configures TRL's trainer (`swelab.sft.train.trl_worker`) for an SFT recipe and a checkpoint folder."""

from pathlib import Path
from typing import Any

from swelab.configs.kinds.sft import Sft, Train
from swelab.files.model_config import ModelConfig
from swelab.records import Record, write_json
from swelab.records.typed import TypedRecord, field
from swelab.sft.train.device import device_of, dtype_of
from swelab.sft.train.ranks import launch, ranks_of
from swelab.sft.train.run_plan import PLAN, PLANNED, RunPlan

PROCESS = "swelab.sft.train.trl_worker"


class TrlRun(TypedRecord):
    """The settings of TRL's processes, as the file config.json has them."""

    output: str = field("output folder of the run")
    base: str = field("folder of the base model")
    dataset: str = field("path of the file of rows")
    plan: str = field("path of the plan")
    planned: str = field("path of the file with facts about the planned steps")
    train: dict[str, Any] = field("settings `train` of the SFT recipe")
    device: str = field("cpu or cuda")
    dtype: str = field("fp32 or bf16")
    every: int = field("number of optimizer steps between two saves; 0 saves at the end of each epoch")


class Trl:
    """Trains with TRL, see `trainer.Trainer`."""

    architectures = ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM")
    lacks = ("dpo", "lora", "optimizer_in_bwd")
    fills_packs = replicates = False
    masters = True

    def check_config(self, config: ModelConfig, where: Path) -> None:
        """Accepts every setting, because TRL trains transformers' own model."""

    def command(self, base: Path, dataset: Path, recipe: Sft, plan: RunPlan, work: Path) -> list[str]:
        """Writes TRL's configuration, and returns its command line. Raises InputError, SlurmError."""
        train, ranks = recipe.train, ranks_of(recipe)
        run = TrlRun(
            output=str(work / "output"),
            base=str(base),
            dataset=str(dataset),
            plan=str(work / PLAN),
            planned=str(work / PLANNED),
            train=train.plain(),
            device=device_of(train),
            dtype=dtype_of(train),
            every=recipe.job.save_every_n_steps,
        )
        write_json(work / "config.json", run)
        return launch(ranks, ["-m", PROCESS, "--config", str(work / "config.json")], ranks.total == 1)

    def settings(self, base: Path, dataset: Path, output: Path, train: Train) -> Record:
        """Returns {}: transformers needs no settings to read the checkpoint."""
        return {}
