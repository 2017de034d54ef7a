"""Runs TRL's SFTTrainer in each rank: `python -m swelab.sft.train.trl_worker --config <file>`.

Data order, loss, optimizer and schedule are those of torchtune's recipe, so that both trainers give the same
loss curve. Forward passes come from the plan. The loss is a mean over the tokens of a whole step. Weight
decay applies to all weights. In bf16 the model computes and is saved in bf16, but the optimizer steps on
weights in float32: steps at a small learning rate would leave weights in bf16 as they were.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from torch.nn import functional
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils import is_flash_attn_2_available
from trl import SFTConfig, SFTTrainer

from swelab.configs.kinds.sft import Train
from swelab.records import Record, read_json, write_json
from swelab.sft.train.planned_batches import InOrder, PlannedPasses, planned_passes, trl_batch
from swelab.sft.train.schedule import trl_schedule
from swelab.sft.train.step_log import StepLog
from swelab.sft.train.token_rows import IGNORED
from swelab.sft.train.trl_bridge import TrlRun

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
RESUME, CHECKPOINTS = "resume.json", "checkpoints"


class Numbers(InOrder):
    """A batch sampler whose batches have one forward pass each. A resumed run also sets its epoch."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[number] for number in super().__iter__()])


class Passes(DataLoader[Any]):
    """The forward passes of a rank. The trainer sets the epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch."""
        numbers: Any = self.batch_sampler
        numbers.set_epoch(epoch)


class PlannedTrainer(SFTTrainer):
    """An SFTTrainer that makes the forward passes of a plan."""

    passes: PlannedPasses

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Returns a forward pass's share of the step's mean loss.

        Logits are computed only of the tokens that have a loss, and TRL's statistics of logits, which nobody
        reads, are not. A model that is spread over ranks or compiled runs as a whole, with all logits.
        """
        if self.passes.plan.ranks > 1 or self.args.torch_compile or return_outputs:
            whole: Any = super()
            return whole.compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs.pop("labels")[:, 1:]
        trained = labels != IGNORED
        with self.accelerator.autocast():
            hidden = model.model(**inputs, use_cache=False).last_hidden_state[:, :-1]
            logits = model.lm_head(hidden[trained])
        loss = functional.cross_entropy(logits.float(), labels[trained], reduction="sum")
        return loss / num_items_in_batch

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Returns the plan's forward passes unchanged, because each rank already has its own passes."""
        numbers: Any = Numbers(self.passes)
        return Passes(self.passes, batch_sampler=numbers, collate_fn=self.data_collator)

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """Returns all weights, because the recipe's AdamW applies weight decay to all of them.
        transformers would exclude biases and norms."""
        return [name for name, _ in model.named_parameters()]


class StepReporter(TrainerCallback):
    """Writes the step log, and records each complete checkpoint."""

    def __init__(self, log: StepLog, output: Path):
        self.step_log, self.output, self.start = log, output, 0.0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Starts the clock. A step's time is counted from here or from the previous step."""
        self.start = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **further: Any) -> None:
        """Logs one step. Skips the summary at the end, which has no loss."""
        if not state.is_world_process_zero or "loss" not in logs:
            return
        now = time.perf_counter()
        told = {"loss": logs["loss"], "lr": further["lr_scheduler"].get_last_lr()[0]}
        told |= {"grad_norm": logs["grad_norm"]} if "grad_norm" in logs else {}
        self.step_log.log_dict({**told, "seconds": now - self.start}, state.global_step)
        self.start = now

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Records the checkpoint for resuming after a kill."""
        if state.is_world_process_zero:
            write_json(self.output / RESUME, {"checkpoint": f"checkpoint-{state.global_step}"})


def train(run: TrlRun) -> None:
    """Trains with the settings of `run`. Writes the last epoch's folder in Hugging Face layout."""
    output, base, settings = Path(run.output), Path(run.base), Train(**run.train)
    rank = int(os.environ.get("RANK", 0))
    passes = planned_passes(run.plan, run.dataset, run.base, rank)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    trainer = PlannedTrainer(
        model=_model(run, passes),
        args=_arguments(run, settings, passes),
        train_dataset=Dataset.from_list([{"input_ids": [0], "labels": [0]}]),  # only column names are read
        data_collator=partial(trl_batch, packed=passes.plan.how == "packed", pad=tokenizer.pad_token_id or 0),
        processing_class=tokenizer,
    )
    trainer.passes = passes
    log = StepLog(str(output), run.planned) if rank == 0 else None
    if log:
        trainer.add_callback(StepReporter(log, output))
    trainer.train(resume_from_checkpoint=_resume(output))
    _save(trainer, base, output / f"epoch_{settings.epochs - 1}", DTYPES[run.dtype], rank)
    if log:
        log.close()


def _model(run: TrlRun, passes: PlannedPasses) -> Any:
    flash = passes.plan.how == "packed" and run.device == "cuda" and is_flash_attn_2_available()
    load: Any = AutoModelForCausalLM.from_pretrained
    attention = "flash_attention_2" if flash else "sdpa"
    return load(run.base, dtype=torch.float32, attn_implementation=attention)


def _arguments(run: TrlRun, train: Train, passes: PlannedPasses) -> SFTConfig:
    ranks: Record = {"fsdp": True, "fsdp_config": {"version": 2}} if passes.plan.ranks > 1 else {}
    return SFTConfig(
        output_dir=str(Path(run.output, CHECKPOINTS)),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=passes.plan.passes,
        num_train_epochs=train.epochs,
        learning_rate=train.lr,
        adam_beta1=train.betas[0],
        adam_beta2=train.betas[1],
        weight_decay=train.weight_decay,
        optim="adamw_torch_fused",
        **trl_schedule(train),
        max_grad_norm=train.clip_grad_norm or 0,
        seed=train.seed,
        use_cpu=run.device == "cpu",
        bf16=run.dtype == "bf16",
        activation_checkpointing=train.activation_checkpointing,
        torch_compile=train.compile,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        remove_unused_columns=False,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps" if run.every else "epoch",
        save_steps=run.every or 1,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        **ranks,
    )


def _resume(output: Path) -> str | None:
    """Returns the checkpoint from which to resume, or None if no checkpoint is complete."""
    note = output / RESUME
    if not note.is_file():
        return None
    folder = output / CHECKPOINTS / json.loads(note.read_text())["checkpoint"]
    return str(folder) if folder.is_dir() else None


def _is_weights(path: Path) -> bool:
    return path.name.endswith((".safetensors", ".safetensors.index.json"))


def _save(trainer: SFTTrainer, base: Path, folder: Path, dtype: torch.dtype, rank: int) -> None:
    """Writes the trained weights in `dtype` and all other files of the base model to `folder` atomically."""
    part = folder.with_name(folder.name + ".part")
    trainer.save_model(str(part))
    if rank:
        return
    for path in part.iterdir():
        if not _is_weights(path):
            path.unlink() if path.is_file() else shutil.rmtree(path)
    if dtype != torch.float32:
        convert(part, dtype)
    for path in base.iterdir():
        if path.is_file() and not _is_weights(path):
            shutil.copyfile(path, part / path.name)
    os.replace(part, folder)


def convert(folder: Path, dtype: torch.dtype) -> None:
    """Writes the weights in a folder again, in `dtype`."""
    size = 0
    for path in folder.glob("*.safetensors"):
        weights = {name: weight.to(dtype) for name, weight in load_file(path).items()}
        size += sum(weight.nbytes for weight in weights.values())
        save_file(weights, path, metadata={"format": "pt"})
    for path in folder.glob("*.safetensors.index.json"):
        index = read_json(path)
        write_json(path, {**index, "metadata": {**index.get("metadata", {}), "total_size": size}})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="JSON file from swelab.sft.train.trl_bridge")
    train(TrlRun.of(read_json(parser.parse_args().config)))
