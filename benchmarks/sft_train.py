"""Compares useful training tokens per second of the shipped setting (not packed, batch 1) and of ours.

    .venv/bin/python -m benchmarks.sft_train [--model small] [--rows 320] [--repeats 3] [--threads 2]
    .venv/bin/python -m benchmarks.sft_train --base results/models/tiny --dataset ROWS.jsonl
    .venv/bin/python -m benchmarks.sft_train --device cuda --model qwen2.5-7b --longest 8000 --repeats 1

Both settings train with torchtune. On a CPU, ours is `group_by_length` without activation checkpointing. It
has as many ranks of one thread as the shipped setting has threads, and each rank holds all weights
(`sharded: false`). Each step has the same conversations, grouped into forward passes by length. The losses
of all steps are compared. The shipped setting runs with checkpointing, as it is, and also without.

On a GPU, ours is `packed`, with packs of `--max-seq-len` tokens. A step has as many packs as hold the tokens
of a shipped step. Losses are compared at equal numbers of tokens seen.

Models have random weights in the named shape, and conversations are random with a long tail of lengths.
Alternatively, both come from an experiment. A shipped step has eight conversations. Each training is a
process of its own, on the same rows. Settings take turns. The first steps are not timed, and of every other
step the fastest run counts.

Prints a table, then loss_difference=..., ratio_vs_shipped_total=... (all tokens per second) and
ratio_vs_shipped=... (tokens with loss). On a CPU, also prints ratio_without_checkpointing=..., and for the 7B
tokens_per_second=... . Exit code 1 if the losses differ.
"""

import argparse
import os
import random
import shutil
import tempfile
from pathlib import Path

from benchmarks.random_weights import write_config, write_weights
from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.configs.kinds.sft import Sft
from swelab.console.terminal import run_script
from swelab.records import Record, read_jsonl, write_jsonl
from swelab.sft.rows.lengths import ChatTokenizer
from swelab.sft.train.metrics import read_metrics
from swelab.sft.train.step_log import METRICS
from swelab.sft.train.trainer_process import run_trainer
from swelab.sft.train.training import check_inputs, plan_run
from tests.toy_checkpoint import make_checkpoint

SHAPES = {
    # The demo's model.
    "small": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "vocab_size": 704}
    | {"num_attention_heads": 8, "num_key_value_heads": 4, "rope_theta": 500.0, "tie_word_embeddings": True},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 320}
    | {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 500.0, "tie_word_embeddings": True},
    "qwen2.5-7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28}
    | {"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064}
    | {"rope_theta": 1_000_000.0, "tie_word_embeddings": False},
}
MARKS = {"cpu": 1.5, "cuda": 2.5}
STEP = 8
"""Number of conversations per step."""
WARM_UP = 4
"""Number of steps at the start that are not timed."""
MARK_7B = 9000
ALIKE, ALIKE_PACKED = 1e-3, 0.1
"""Largest accepted relative difference of losses.

Steps with packs hold other tokens, so theirs may differ more.
"""
ROW = "{:<22} {:>7} {:>9} {:>12} {:>14} {:>9} {:>7} {:>12}"


class Side:
    """One setting, and the metrics of its runs."""

    def __init__(self, name: str, recipe: Sft):
        self.name, self.recipe, self.runs = name, recipe, list[list[Record]]()

    def run(self, folder: Path) -> None:
        """Trains once, with the model and the rows in `folder`."""
        model, rows = folder / "model", folder / "data.jsonl"
        with tempfile.TemporaryDirectory(dir=folder) as work:
            plan = plan_run(model, self.recipe, check_inputs(model, rows, self.recipe.train))
            run_trainer(model, rows, self.recipe, plan, Path(work) / "run")
            self.runs.append(read_metrics(Path(work) / "run" / "output" / METRICS))

    def rate(self, column: str) -> float:
        """Returns the sum of a column per second. The seconds of a step are those of its fastest run."""
        seconds = sum(min(row["seconds"] for row in step) for step in list(zip(*self.runs))[WARM_UP:])
        return sum(row[column] for row in self.runs[0][WARM_UP:]) / seconds

    def show(self) -> None:
        """Prints the setting's line of the table."""
        rows = self.runs[0]
        tokens, trained = self.rate("tokens"), self.rate("trained_tokens")
        waste = 1 - sum(row["tokens"] for row in rows) / sum(
            row["tokens"] / (1 - row["padding_share"]) for row in rows
        )
        timed = [row for rows in self.runs for row in rows[WARM_UP:] if row["mfu"] is not None]
        seconds = sum(row["seconds"] for row in timed)
        mfu = f"{sum(row['mfu'] * row['seconds'] for row in timed) / seconds:.1%}" if timed else "-"
        memory = f"{max(row['peak_memory_mib'] for row in rows):,.0f} MiB"
        times = f"{sum(row['seconds'] for row in rows):.1f} s"
        cells = (len(rows), times, f"{tokens:,.0f}", f"{trained:,.0f}", f"{waste:.1%}", mfu, memory)
        print(ROW.format(self.name, *cells), flush=True)


def make_model(folder: Path, shape: str, context: int, device: str) -> Path:
    """Makes a checkpoint of random weights in a shape of SHAPES: float32 for a CPU, bfloat16 for a GPU."""
    make_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    dtype = {"cpu": "float32", "cuda": "bfloat16"}[device]
    changed = {**SHAPES[shape], "max_position_embeddings": context, "torch_dtype": dtype}
    write_weights(folder, write_config(folder, changed))
    return folder


def rows_of(count: int, longest: int) -> list[Record]:
    """Makes conversations of log-normal length. The median is a sixth of `longest` tokens."""
    chance = random.Random(0)
    rows = []
    for number in range(count):
        left = min(longest, int(chance.lognormvariate(0, 0.7) * longest / 6))
        messages = [{"role": "system", "content": "Fix the bug. Answer with one bash block."}]
        while left > 0:
            question, answer = chance.randint(20, 120), chance.randint(10, 60)
            left -= question + answer + 30
            messages.append({"role": "user", "content": "exit 0\n" + words(chance, question)})
            messages.append({"role": "assistant", "content": f"```bash\n{words(chance, answer)}\n```"})
        row = {"messages": messages, "instance_id": f"toy__a.{number:05d}", "policy": "made"}
        rows.append({**row, "resolved": True})
    return rows


def words(chance: random.Random, count: int) -> str:
    """Returns random digits that have about `count` tokens."""
    return "".join(chance.choice("0123456789") for _ in range(count))


def settings_of(args: argparse.Namespace, tokens: float) -> list[Side]:
    """Returns the settings to compare: ours, the shipped one, and on a CPU the latter without checkpointing.

    tokens: mean number of tokens per row.
    """
    both: Record = {"device": args.device, "epochs": args.epochs, "lr": args.lr}
    shipped = {**both, "threads": args.threads, "batch_size": 1, "gradient_accumulation_steps": STEP}
    common = {"activation_checkpointing": True}
    if args.device == "cuda":
        common |= {"compile": True, "clip_grad_norm": None}
    if args.packed:
        packs = max(1, round(STEP * tokens / args.max_seq_len))
        packed = {"packed": True, "max_seq_len": args.max_seq_len, "gradient_accumulation_steps": packs}
        ours = {**both, **common, **packed, "threads": args.threads}
        return [side("ours: packed", ours), side("shipped: batch 1", {**shipped, **common})]
    grouped = {"group_by_length": True, "max_batch_tokens": args.max_batch_tokens}
    alone = {"threads": 1, "sharded": False}
    return [
        side("ours: grouped", {**both, "batch_size": STEP, **grouped, **alone}, args.threads),
        side("shipped: batch 1", {**shipped, **common}),
        side("the same, all kept", shipped),
    ]


def side(name: str, train: Record, ranks: int = 1) -> Side:
    """Returns a side with these `train` settings."""
    settings = {"base": "made", "train": train, "job": {"ranks": ranks}}
    return Side(name, recipes.complete(SFT, settings, "benchmark"))


def loss_difference(one: list[Record], other: list[Record]) -> float:
    """Returns the largest relative difference of losses at the same number of tokens seen.

    If the steps of both runs have the same tokens, compares each step. Otherwise compares the means of ten
    equal sections of the runs.
    """
    if [row["tokens_seen"] for row in one] == [row["tokens_seen"] for row in other]:
        pairs = [(mine["loss"], theirs["loss"]) for mine, theirs in zip(one, other)]
    else:
        end = min(one[-1]["tokens_seen"], other[-1]["tokens_seen"])
        pairs = list(zip(stretches(one, end), stretches(other, end)))
    return max(abs(mine - theirs) / theirs for mine, theirs in pairs)


def stretches(rows: list[Record], end: int, count: int = 10) -> list[float]:
    """Divides the tokens seen up to `end` into equal sections, and returns the loss per token of each."""
    sums = [[0.0, 0.0] for _ in range(count)]
    for row in rows:
        at = min(count - 1, int(count * (row["tokens_seen"] - row["tokens"] / 2) / end))
        sums[at][0] += row["loss"] * row["trained_tokens"]
        sums[at][1] += row["trained_tokens"]
    return [total / weight for total, weight in sums if weight]


def compare(args: argparse.Namespace, folder: Path) -> int:
    """Runs all sides in turn and prints their figures. Returns 1 if the losses differ."""
    inputs(args, folder)
    rows = list(read_jsonl(folder / "data.jsonl"))
    measure = ChatTokenizer(folder / "model").measure
    tokens = [measure(row["messages"]).tokens for row in rows]
    sizes = f"{len(rows)} rows of {min(tokens)} to {max(tokens)} tokens, {sum(tokens)} together"
    load = os.getloadavg()[0]
    print(f"{args.base or args.model} on {args.device}: {sizes}; {STEP} rows a step; load {load:.1f}")
    print(ROW.format("", "steps", "seconds", "tokens/s", "with loss/s", "padding", "MFU", "peak memory"))
    sides = settings_of(args, sum(tokens) / len(tokens))
    for _ in range(args.repeats):
        for each in sides:
            each.run(folder)
    for each in sides:
        each.show()
    ours, shipped, *others = sides
    difference = max(loss_difference(ours.runs[0], other.runs[0]) for other in sides[1:])
    ratios = [ours.rate(column) / shipped.rate(column) for column in ("tokens", "trained_tokens")]
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    print(f"loss_difference={difference:.2e}")
    print(f"ratio_vs_shipped_total={ratios[0]:.2f}")
    print(f"ratio_vs_shipped={ratios[1]:.2f}  (mark: {MARKS[args.device]})")
    for other in others:
        print(f"ratio_without_checkpointing={ours.rate('tokens') / other.rate('tokens'):.2f}")
    if args.model == "qwen2.5-7b":
        print(f"tokens_per_second={ours.rate('tokens'):.0f}  (mark: {MARK_7B})")
    return int(difference > (ALIKE_PACKED if args.packed else ALIKE))


def inputs(args: argparse.Namespace, folder: Path) -> None:
    """Writes the inputs `model` and `data.jsonl` into `folder`: copies of given ones, or random ones."""
    if args.base:
        shutil.copytree(args.base, folder / "model")
        shutil.copyfile(args.dataset, folder / "data.jsonl")
        return
    make_model(folder / "model", args.model, 4 * args.longest, args.device)
    write_jsonl(folder / "data.jsonl", rows_of(args.rows, args.longest))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", choices=tuple(SHAPES), default="small")
    parser.add_argument("--base", type=Path, help="a model's folder, in place of a made one")
    parser.add_argument("--dataset", type=Path, help="rows for it")
    parser.add_argument("--rows", type=int, default=320, help="conversations")
    parser.add_argument("--longest", type=int, default=1024, help="tokens of the longest, about")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--max-batch-tokens", type=int, default=2048, help="tokens of a forward pass, grouped"
    )
    parser.add_argument("--max-seq-len", type=int, default=8192, help="tokens of a pack")
    parser.add_argument("--packed", action="store_true", help="packs; on a GPU this is what is measured")
    args = parser.parse_args()
    args.packed = args.packed or args.device == "cuda"
    if bool(args.base) != bool(args.dataset):
        parser.error("--base and --dataset go together")
    with tempfile.TemporaryDirectory() as name:
        return compare(args, Path(name))


if __name__ == "__main__":
    run_script(main)
