"""Metrics of a training run, step by step: loss, speed, MFU, padding, memory.

Tokens, the share of tokens with loss, padding and FLOPs are known from the plan before a step runs. The
trainer adds loss, time and memory. FLOPs are counted on real tokens, forward and backward (three times the
forward pass), without recomputation. A row of n tokens takes

    6 · P · n  +  6 · layers · heads · head_dim · n²

FLOPs. P is the number of weights that are multiplied (projections, feed-forward, output head). The second
term is attention with a causal mask. MFU is FLOPs divided by the time and by the device's peak. A GPU's peak
is the vendor's dense bf16 figure. A CPU's peak is the speed of the fastest of a few float32 matrix products,
with the same threads. MFU is null if the peak is unknown.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from swelab.files.model_config import ModelConfig
from swelab.files.text_lines import lines_of
from swelab.records import Record, write_bytes
from swelab.records.typed import TypedRecord, field
from swelab.sft.rows.lengths import Length
from swelab.sft.train.batches import Plan
from swelab.sft.train.grouping import Cost

COLUMNS = (
    *("step", "epoch", "loss", "lr", "grad_norm", "seconds", "rows", "tokens", "trained_tokens"),
    *("tokens_seen", "tokens_per_second", "trained_tokens_per_second", "trained_share", "padding_share"),
    *("mfu", "peak_memory_mib"),
)
PEAKS = {"H200": 989.5e12, "H100": 989.5e12, "B200": 2250e12, "A100": 312e12, "L40S": 362e12}
"""Dense bf16 FLOP/s of GPUs from their data sheets (SXM variant, if variants differ)."""
MATRIX, TRIES = 1024, 5
LAYER_FLOPS = {"cpu": 1e8, "cuda": 2e11}
"""Fixed cost of a layer in FLOPs: what a device could compute while it launches the layer's operations.
The launches of a forward and backward pass took 2 to 3 ms on one CPU core. For a GPU, 0.5 ms is assumed."""


class PlannedStep(TypedRecord):
    """Facts about a step that are known before the step runs."""

    step: int = field("number of the step, from 1")
    epoch: int = field("number of the epoch, from 0")
    rows: int = field("number of conversations")
    tokens: int = field("number of tokens without padding")
    trained_tokens: int = field("number of tokens with a loss weight")
    tokens_seen: int = field("number of tokens up to and including this step")
    positions: int = field("number of computed token positions, including padding")
    flops: float = field("FLOPs on real tokens, forward and backward")


class PlannedRun(TypedRecord):
    """The file planned.json: facts about the plan, for the processes that train."""

    steps: list[PlannedStep] = field("all steps of the run; empty if the trainer forms the batches itself")
    device: str = field("cpu or cuda")
    ranks: int = field("number of processes")
    wandb: str = field("project at Weights & Biases; empty for none")


def weights_multiplied(config: ModelConfig) -> int:
    """Returns the number of weights that are multiplied: P in the module's docstring.
    The model must have the layers of Qwen2. Llama and Mistral have the same layers."""
    return config.num_hidden_layers * config.layer_matrices + config.hidden_size * config.vocab_size


def row_flops(config: ModelConfig, tokens: Any) -> Any:
    """Returns the FLOPs of a forward and backward pass over a row of `tokens` tokens (number or array)."""
    attention = 6 * config.num_hidden_layers * config.query_width * tokens**2
    return 6 * weights_multiplied(config) * tokens + attention


def pass_cost(config: ModelConfig, device: str) -> Cost:
    """Returns a function that estimates the FLOPs of a forward and backward pass.
    Its arguments are the number of rows and the number of tokens to which each row is padded."""
    fixed = LAYER_FLOPS[device] * config.num_hidden_layers
    return lambda rows, tokens: fixed + rows * row_flops(config, tokens)


def planned_steps(
    plan: Plan, lengths: Sequence[Length], config: ModelConfig, fixed: bool
) -> list[PlannedStep]:
    """Returns the steps of a plan over rows of these lengths. fixed: whether packs are padded."""
    tokens = [length.tokens for length in lengths]
    flops = {count: row_flops(config, count) for count in set(tokens)}
    steps, token_count = [], 0
    for number, batches in enumerate(plan.steps()):
        rows = [row for batch in batches for row in batch]
        token_count += sum(tokens[row] for row in rows)
        steps.append(
            PlannedStep(
                step=number + 1,
                epoch=number // plan.steps_per_epoch,
                rows=len(rows),
                tokens=sum(tokens[row] for row in rows),
                trained_tokens=sum(lengths[row].assistant_tokens for row in rows),
                tokens_seen=token_count,
                positions=sum(plan.positions(batch, tokens, fixed) for batch in batches),
                flops=sum(flops[tokens[row]] for row in rows),
            )
        )
    return steps


def metrics_row(planned: PlannedStep, values: Mapping[str, float], peak: float | None) -> Record:
    """Returns the values of COLUMNS for a step.

    values: measurements of the trainer (loss, lr, grad_norm, seconds, peak_memory_mib). peak: FLOP/s of all
    devices together; None if unknown.
    """
    seconds = values["seconds"]
    row = {
        **planned,
        **values,
        "tokens_per_second": planned.tokens / seconds,
        "trained_tokens_per_second": planned.trained_tokens / seconds,
        "trained_share": planned.trained_tokens / planned.tokens,
        "padding_share": 1 - planned.tokens / planned.positions,
        "mfu": planned.flops / seconds / peak if peak else None,
    }
    return {name: row.get(name) for name in COLUMNS}


def peak_flops(device: str) -> float | None:
    """Returns the peak FLOP/s of one device, or None for a GPU that is not in PEAKS."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        return next((peak for key, peak in PEAKS.items() if key in name), None)
    matrix = torch.rand(MATRIX, MATRIX)
    best = float("inf")
    for _ in range(TRIES):
        start = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - start)
    return 2 * MATRIX**3 / best


def read_metrics(path: Path) -> list[Record]:
    """Reads the rows of a step log in order.
    If a step was repeated after a kill, only its last row is returned."""
    rows = {}
    for text in lines_of(path.read_text(encoding="utf-8")):
        try:
            row = json.loads(text)
        except ValueError:
            continue  # a killed run may leave an unfinished last line
        rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows as tab-separated values with a header. An unknown value is empty."""

    def cell(value: Any) -> str:
        return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

    lines = ["\t".join(COLUMNS)] + ["\t".join(cell(row.get(name)) for name in COLUMNS) for row in rows]
    write_bytes(path, ("\n".join(lines) + "\n").encode())
