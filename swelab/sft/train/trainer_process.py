"""Runs a training in separate processes: starts them, shows progress, and resumes after a kill."""

import json
import os
import shutil
import time
from pathlib import Path

from swelab.configs.kinds.sft import Sft, Train
from swelab.console.terminal import Progress
from swelab.files.weights import weight_files
from swelab.jobs.child_process import ChildProcess, fault_line, torch_environment
from swelab.records import Fault, digest, sha256_file, write_json
from swelab.sft.train.device import device_of
from swelab.sft.train.ranks import ranks_of, recipe_of
from swelab.sft.train.row_lengths import marks_version, text_hashes
from swelab.sft.train.run_plan import RunPlan
from swelab.sft.train.step_log import METRICS, STEPS
from swelab.sft.train.trainer import open_trainer

POLL_SECONDS = 0.5
FINISHED = "finished.json"


class TrainingError(Fault):
    """Raised if the trainer ends without writing a checkpoint."""


def run_trainer(base: Path, dataset: Path, recipe: Sft, plan: RunPlan, work: Path) -> Path:
    """Trains in the folder `work` as planned, and returns the folder of the last epoch's files.

    A killed run resumes from its last saved step if base, dataset, settings and number of processes are the
    same. The base includes its tokenizer and chat template. Raises InputError, and TrainingError if the
    trainer ends early.
    """
    train, output, log = recipe.train, work / "output", work / "train.log"
    key = training_key(base, dataset, recipe)
    final = output / f"epoch_{train.epochs - 1}"
    if prepare(work, key, final):
        return final
    plan.write(work, recipe)
    argv = open_trainer(recipe.trainer).command(base, dataset, recipe, plan, work)
    with open(log, "ab") as stream:
        trainer = ChildProcess(lambda _: argv, env=_environment(work, train), log=stream)
    try:
        _follow(trainer, output / STEPS, train.epochs * plan.steps_per_epoch)
    finally:
        trainer.stop(grace_seconds=0)
    if trainer.poll() != 0 or not final.is_dir():
        raise TrainingError(f"the trainer ended with status {trainer.poll()}: {fault_line(log)}; log: {log}")
    write_json(work / FINISHED, key)
    return final


HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}
"""Environment variables that make malloc keep large tensors in the heap. They are used on a CPU.
By default, malloc maps new memory for each tensor. Page faults then took a tenth of the time."""


def _environment(work: Path, train: Train) -> dict[str, str]:
    return {
        **torch_environment(train.threads),
        **(HEAP if device_of(train) == "cpu" else {}),
        "PYTHONHASHSEED": "0",
        "TQDM_DISABLE": "1",
        "HF_HOME": str((work / "cache").resolve()),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def training_key(base: Path, dataset: Path, recipe: Sft) -> str:
    """Returns a hash of all that affects a training: trainer, settings, number of processes, dataset, and the
    base with its tokenizer and chat template. If the template marks what the model generates, also the
    version of the rule that reads the marks."""
    settings = [recipe.trainer, recipe_of(recipe), ranks_of(recipe).total, recipe.train.plain()]
    files = {path.name: sha256_file(path) for path in weight_files(base)} | text_hashes(base)
    return digest([*settings, sha256_file(dataset), files, *marks_version(base)])


def prepare(work: Path, key: str, final: Path) -> bool:
    """Prepares the folder `work`. Returns whether a run with the same key has already finished there, and its
    checkpoint `final` still exists.

    Removes the files of a run with another key. Keeps the saved steps and the log of a killed run.
    """
    if _read(work / "key.json") != key:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        write_json(work / "key.json", key)
    elif _read(work / FINISHED) == key and final.is_dir():
        return True
    (work / FINISHED).unlink(missing_ok=True)
    for folder in work.glob("output/epoch_*"):
        shutil.rmtree(folder)
    for name in (STEPS, METRICS):
        mend(work / "output" / name)
    return False


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def mend(log: Path) -> None:
    """Removes an incomplete last line, which a killed process may leave."""
    if log.is_file():
        text = log.read_bytes()
        os.truncate(log, text.rfind(b"\n") + 1)


def _follow(trainer: ChildProcess, steps: Path, total: int) -> None:
    """Shows progress from the trainer's step log until the trainer ends."""
    progress = Progress(total, "train")
    progress.skip(_lines(steps))
    while trainer.poll() is None:
        time.sleep(POLL_SECONDS)
        for _ in range(progress.finished, min(_lines(steps), total)):
            progress.done(True)
    progress.close()


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0
