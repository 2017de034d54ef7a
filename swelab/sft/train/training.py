"""Fine-tunes a model: checks inputs, trains, checks the result, and moves it into place atomically."""

import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from swelab.configs.kinds.sft import Sft, Train
from swelab.files.model_config import ModelConfig
from swelab.files.weights import check_weights, identity
from swelab.jobs.provenance import packages
from swelab.records import Record, read_json, sha256_file, write_json
from swelab.records.training_records import LossRow
from swelab.sft.rows.lengths import Length
from swelab.sft.rows.preferences import conversations
from swelab.sft.train.base_reading import SAMPLE_ROWS, compare_rows, compare_shapes
from swelab.sft.train.batches import plan_batches
from swelab.sft.train.check_settings import check_settings
from swelab.sft.train.device import device_of, dtype_of
from swelab.sft.train.metrics import pass_cost, planned_steps
from swelab.sft.train.peft_export import write_adapter
from swelab.sft.train.ranks import ranks_of, recipe_of, share
from swelab.sft.train.row_lengths import lengths_of
from swelab.sft.train.run_log import keep_log
from swelab.sft.train.run_plan import RunPlan
from swelab.sft.train.step_log import STEPS, step_rows
from swelab.sft.train.torchtune_bridge import model_settings, write_config
from swelab.sft.train.trainer import check_trainer, open_trainer
from swelab.sft.train.trainer_process import run_trainer, training_key

MAKERS = ("torch", "torchtune", "trl", "accelerate", "transformers", "tokenizers", "datasets")
"""Packages whose versions a checkpoint depends on."""
RESULT = "result.json"
"""The file in a training's working folder that tells what the finished training made."""


def fine_tune(
    base: Path, dataset: Path, recipe: Sft, work: Path, checkpoint: Path, preflight: Path | None = None
) -> tuple[Record, list[LossRow]]:
    """Fine-tunes the model in `base` on `dataset`, and writes it to `checkpoint` in Hugging Face layout.

    Works in `work`, where a killed run can be resumed. If the same training has made `checkpoint` already,
    keeps it. preflight: report whose lengths of the rows are used if they belong to this base and dataset.
    Returns the checkpoint's manifest and the rows of the loss curve. Two equal runs have the same
    manifest. Raises InputError before training, TrainingError, ParityError.
    """
    train = recipe.train
    recipe_of(recipe), share(train, ranks_of(recipe))
    lengths = check_inputs(base, dataset, train, recipe.trainer, preflight)
    plan = plan_run(base, recipe, lengths)
    compare_shapes(base)
    compare_rows(base, islice(conversations(dataset), SAMPLE_ROWS))
    key = training_key(base, dataset, recipe)
    result = earlier_result(work, key, checkpoint)
    if result is None:
        result = {"key": key, **_train(base, dataset, recipe, plan, work, checkpoint)}
        write_json(work / RESULT, result)
    loss = [LossRow.of(row) for row in result["loss"]]
    manifest = {
        **result["checkpoint"],
        "base": {"name": base.name, "digest": identity(base).digest},
        "dataset_sha256": sha256_file(dataset),
        "recipe": {name: value for name, value in recipe.plain().items() if name not in ("job", "wandb")},
        "device": result["device"],
        "dtype": result["dtype"],
        "epochs": train.epochs,
        "steps": loss[-1].step,
        "final_loss": loss[-1].loss,
        **facts(lengths, train),
        **plan.facts(),
        "packages": result["packages"],
        "parity": result["parity"],
    }
    return manifest, loss


def _train(base: Path, dataset: Path, recipe: Sft, plan: RunPlan, work: Path, checkpoint: Path) -> Record:
    """Trains, checks the result and moves it into place. Returns facts about the run, for its manifest."""
    from swelab.sft.train.checkpoint_parity import check_parity

    train = recipe.train
    epoch = run_trainer(base, dataset, recipe, plan, work)
    loss = step_rows(work / "output" / STEPS)
    staged = stage(epoch, work / "checkpoint")
    config = model_settings(base)
    if config:
        trained = open_trainer(recipe.trainer).settings(base, dataset, work / "output", train)
        write_config(staged / "config.yaml", trained | config)
    parity = check_parity(staged, config or None, dataset)
    put_in_place(staged, checkpoint, work / "replaced")
    keep_log(work)
    for folder in ("output", "cache", "steps"):
        shutil.rmtree(work / folder, ignore_errors=True)
    return {
        "checkpoint": identity(checkpoint),
        "loss": loss,
        "device": device_of(train),
        "dtype": dtype_of(train),
        "packages": {name: version for name, version in packages().items() if name in MAKERS},
        "parity": parity,
    }


def earlier_result(work: Path, key: str, checkpoint: Path) -> Record | None:
    """Returns facts about the training with this key if it has made the files that are in `checkpoint` now.
    Otherwise returns None."""
    if not (work / RESULT).is_file() or not checkpoint.is_dir():
        return None
    result: Record = read_json(work / RESULT)
    same = result["key"] == key and result["checkpoint"] == identity(checkpoint)
    return result if same else None


def put_in_place(staged: Path, checkpoint: Path, aside: Path) -> None:
    """Moves a new checkpoint into place. The earlier one is removed only after that."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(aside, ignore_errors=True)
    if checkpoint.exists():
        shutil.move(checkpoint, aside)
    shutil.move(staged, checkpoint)
    shutil.rmtree(aside, ignore_errors=True)


def check_inputs(
    base: Path, dataset: Path, train: Train, trainer: str = "torchtune", preflight: Path | None = None
) -> list[Length]:
    """Checks base model and dataset. Returns the length of each conversation, two for each pair. preflight:
    the preflight's report.

    Raises InputError for unreadable or truncated weights, for an architecture that the trainer does not
    support, and for unfit rows (`measure_rows`).
    """
    config = check_weights(base)
    check_trainer(config, base / "config.json", trainer)
    return lengths_of(base, dataset, train, preflight)


def plan_run(base: Path, recipe: Sft, lengths: Sequence[Length]) -> RunPlan:
    """Plans the run of an SFT recipe.

    lengths: the result of `check_inputs`, with two lengths for each pair. Raises InputError if the run cannot
    be planned (`plan_batches`, `check_settings`).
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


def facts(lengths: Sequence[Length], train: Train) -> Record:
    """Returns the manifest's counts of rows, steps and tokens. lengths: result of `check_inputs`."""
    rows = len(lengths) // (2 if train.dpo else 1)
    need = train.batch_size * train.gradient_accumulation_steps
    return {
        "rows": rows,
        "rows_left_out_of_each_epoch": rows % need,
        "steps_per_epoch": rows // need,
        "tokens": train.epochs * sum(length.tokens for length in lengths),
        "assistant_tokens": train.epochs * sum(length.assistant_tokens for length in lengths),
    }


def stage(epoch: Path, folder: Path) -> Path:
    """Copies the trainer's epoch folder to `folder` as a clean checkpoint.

    A single file of weights becomes model.safetensors. torchtune merges a LoRA adapter into the weights; the
    adapter is also kept in `adapter/`.
    """
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(epoch, folder, ignore=shutil.ignore_patterns("adapter_*"))
    if (epoch / "adapter_model.pt").is_file():
        write_adapter(epoch, folder / "adapter")
    weights = sorted(folder.glob("*.safetensors"))
    if len(weights) == 1:
        os.replace(weights[0], folder / "model.safetensors")
        (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    check_weights(folder)
    return folder
