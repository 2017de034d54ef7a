"""From our recipe and a checkpoint folder to torchtune's own trainer, and back.

torchtune 0.6 runs in processes of its own (`swelab.sft.ranks`) on a YAML file rendered here. Three of its
habits are dealt with: a `max_seq_len` on the tokenizer masks the last end-of-turn out of the loss, so there
is none; it writes `model-00001-of-00001.safetensors`, which is renamed; and `tune` on the PATH may be another
package's, so the module is run.
"""

import json
import os
import re
import shutil
import time
from pathlib import Path

import torch
import yaml

from swelab.console import Progress
from swelab.records import Fault, InputError, Record, digest, sha256_file, write_bytes, write_json
from swelab.sft.chat_template import says_more
from swelab.sft.lengths import special_tokens
from swelab.sft.ranks import Ranks, command, share
from swelab.tether import Tethered, fault_line
from swelab.weights import check_weights, weight_files

ARCHITECTURE = "Qwen2ForCausalLM"
POLL_SECONDS = 0.5
RESUME, STEPS = "resume.json", "steps.txt"
STEP = re.compile(r"^Step (\d+) \| (.*)$")
LOGGED = {
    "loss": "loss",
    "lr": "lr",
    "tokens_per_second": "tokens_per_second_per_gpu",
    "grad_norm": "grad_norm",
}


class TrainingError(Fault):
    """The trainer ended without a checkpoint."""


def torchtune_config(base: Path, dataset: Path, output: Path, train: Record, resume: Record) -> Record:
    """torchtune's full configuration for a base model and a dataset of `sft_row`s.

    `resume` is {} or {"epoch": n, "files": [...]}, the epoch in `output` to go on from.
    Raises InputError when the base model's architecture is not one that is mapped here.
    """
    config = check_weights(base)
    if config["architectures"] != [ARCHITECTURE]:
        raise InputError(f"architecture {config['architectures']}", base / "config.json", ARCHITECTURE)
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    device = auto if train["device"] == "auto" else train["device"]
    dtype = {"cpu": "fp32", "cuda": "bf16"}[device] if train["dtype"] == "auto" else train["dtype"]
    return {
        "output_dir": str(output),
        "model": _model(config),
        "checkpointer": {
            "_component_": "swelab.sft.checkpointer.LastEpochCheckpointer",
            "checkpoint_dir": str(base),
            "checkpoint_files": resume.get("files") or [path.name for path in weight_files(base)],
            "recipe_checkpoint": None,
            "output_dir": str(output),
            "model_type": "QWEN2",
        },
        "resume_from_checkpoint": bool(resume),
        **_data(base, dataset),
        **_training(train),
        "device": device,
        "dtype": dtype,
        "metric_logger": {
            "_component_": "torchtune.training.metric_logging.DiskLogger",
            "log_dir": str(output),
            "filename": STEPS,
        },
        "log_every_n_steps": 1,
        "log_peak_memory_stats": False,
    }


def _model(config: Record) -> Record:
    rope = config.get("rope_parameters") or config
    return {
        "_component_": "torchtune.models.qwen2.qwen2",
        "vocab_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "num_kv_heads": config["num_key_value_heads"],
        "embed_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "max_seq_len": config["max_position_embeddings"],
        "attn_dropout": config.get("attention_dropout", 0.0),
        "norm_eps": config["rms_norm_eps"],
        "rope_base": rope.get("rope_theta", 1_000_000.0),
        "tie_word_embeddings": config["tie_word_embeddings"],
    }


def _data(base: Path, dataset: Path) -> Record:
    return {
        "tokenizer": {
            "_component_": "torchtune.models.qwen2.Qwen2Tokenizer",
            "path": str(base / "vocab.json"),
            "merges_file": str(base / "merges.txt"),
            "special_tokens": special_tokens(base),
            "max_seq_len": None,
        },
        "dataset": _rows(base, dataset),
    }


def _rows(base: Path, dataset: Path) -> Record:
    """torchtune's own chat dataset, or ours where rows say more than it reads."""
    if dataset.is_file() and says_more(dataset):
        own = "swelab.sft.weighted.chat_dataset"
        return {"_component_": own, "data_files": str(dataset), "base": str(base), "packed": False}
    return {
        "_component_": "torchtune.datasets.chat_dataset",
        "source": "json",
        "data_files": str(dataset),
        "conversation_column": "messages",
        "conversation_style": "openai",
        "train_on_input": False,
        "packed": False,
        "split": "train",
    }


def _training(train: Record) -> Record:
    return {
        "seed": train["seed"],
        "shuffle": True,
        "epochs": train["epochs"],
        "max_steps_per_epoch": None,
        "batch_size": train["batch_size"],
        "gradient_accumulation_steps": train["gradient_accumulation_steps"],
        "optimizer": {
            "_component_": "torch.optim.AdamW",
            "fused": True,
            "lr": train["lr"],
            "betas": train["betas"],
            "weight_decay": train["weight_decay"],
        },
        "lr_scheduler": {
            "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
            "num_warmup_steps": train["warmup_steps"],
        },
        "optimizer_in_bwd": False,
        "clip_grad_norm": train["clip_grad_norm"],
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "enable_activation_checkpointing": train["activation_checkpointing"],
        "enable_activation_offloading": False,
        "compile": train["compile"],
    }


def run_torchtune(base: Path, dataset: Path, train: Record, steps: int, work: Path, ranks: Ranks) -> Path:
    """Trains in the folder `work`, `steps` a pass, and returns the folder of the last epoch's files.

    A run that was killed goes on from its last whole epoch when base, dataset and settings are the
    same. Raises TrainingError when the trainer ends early.
    """
    output, log, last = work / "output", work / "train.log", train["epochs"] - 1
    made_from = [train, sha256_file(dataset), [sha256_file(path) for path in weight_files(base)]]
    key = digest(made_from + ["distributed"] * (ranks.total > 1))
    resume = prepare(work, key)
    final = output / f"epoch_{last}"
    if resume.get("epoch") == last:
        return final
    config = torchtune_config(base, dataset, output, train, resume)
    # No steps beyond the recipe's: ranks would fill an odd last one up with rows that they had.
    config |= {**share(train, ranks), "max_steps_per_epoch": steps if ranks.total > 1 else None}
    write_config(work / "config.yaml", config)
    argv = command(ranks, work / "config.yaml")
    with open(log, "ab") as stream:
        trainer = Tethered(lambda _: argv, env=_environment(work, train), log=stream)
    try:
        _follow(trainer, output / STEPS, train["epochs"] * steps)
    finally:
        trainer.stop(grace_seconds=0)
    if trainer.poll() != 0 or not final.is_dir():
        raise TrainingError(f"the trainer ended with status {trainer.poll()}: {fault_line(log)}; log: {log}")
    return final


def write_config(path: Path, config: Record) -> None:
    """torchtune's configuration as the YAML that `tune run` reads."""
    write_bytes(path, yaml.safe_dump(config, sort_keys=False).encode())


def _environment(work: Path, train: Record) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")])),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(train["threads"]),
        "GOMP_SPINCOUNT": "3000",  # longer spins (the default) are tenfold slower where cores are shared
        "MKL_NUM_THREADS": str(train["threads"]),
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
        "HF_HOME": str((work / "cache").resolve()),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def prepare(work: Path, key: str) -> Record:
    """{"epoch", "files"} of the last whole epoch of a run with the same key; else {} and an empty folder."""
    output = work / "output"
    try:
        same = json.loads((work / "key.json").read_text(encoding="utf-8")) == key
        epoch = json.loads((output / RESUME).read_text(encoding="utf-8"))["epoch"]
        files = sorted(str(path.relative_to(output)) for path in output.glob(f"epoch_{epoch}/*.safetensors"))
    except (OSError, ValueError, KeyError):
        same, files = False, []
    if same and files:
        return {"epoch": epoch, "files": files}
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    write_json(work / "key.json", key)
    return {}


def _follow(trainer: Tethered, steps: Path, total: int) -> None:
    """Shows progress by the trainer's own step log until it ends."""
    progress = Progress(total, "train")
    progress.skip(_lines(steps))
    while trainer.poll() is None:
        time.sleep(POLL_SECONDS)
        for _ in range(progress.finished, min(_lines(steps), total)):
            progress.done(True)
    progress.close()


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def step_rows(path: Path) -> list[Record]:
    """torchtune's DiskLogger file as {"step", "loss", "lr", "tokens_per_second", "grad_norm"} rows.

    Tokens are those with a loss. A step that was run again after a kill appears once, as it was last.
    """
    rows: dict[int, Record] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        match = STEP.match(text)
        if match:
            values = dict(part.split(":", 1) for part in match[2].split() if ":" in part)
            row = {name: _number(values[theirs]) for name, theirs in LOGGED.items() if theirs in values}
            rows[int(match[1])] = {"step": int(match[1]), **row}
    return [rows[step] for step in sorted(rows)]


def _number(text: str) -> float:
    """A float, from `1.5` or `tensor(1.5)`."""
    return float(text.removeprefix("tensor(").rstrip(",)"))
