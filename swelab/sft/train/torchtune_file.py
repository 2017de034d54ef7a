"""Checks a user's torchtune configuration before anything starts, then runs it unchanged.

Checks the same files as SWE-smith's launcher: tokenizer, checkpoint, every shard, data. Also finds
placeholders without values, truncated shards, and sizes that belong to another model.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from swelab.files.weights import check_safetensors
from swelab.jobs.child_process import ChildProcess
from swelab.records import Fault, InputError, Record
from swelab.sft.train.ranks import Ranks, command
from swelab.sft.train.torchtune_sizes import size_faults

PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_ -]*>")
PATHS = (
    ("tokenizer", "path"),
    ("tokenizer", "merges_file"),
    ("checkpointer", "checkpoint_dir"),
    ("dataset", "data_files"),
)


class TrainerEnded(Fault):
    """Raised if the trainer ends without success."""


def read_torchtune(path: Path) -> Record:
    """Reads a torchtune YAML file and resolves its `${...}`.
    Raises InputError if the file does not exist or is not YAML."""
    if not path.is_file():
        raise InputError("no such file", path, "a torchtune configuration")
    try:
        config = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", path, "a torchtune configuration") from None
    except Exception as error:  # PyYAML and OmegaConf raise exceptions without a common base class
        raise InputError(f"not YAML: {error}", path, "a torchtune configuration") from None
    if not isinstance(config, dict):
        raise InputError(f"a {type(config).__name__}", path, "a torchtune configuration")
    return {str(key): value for key, value in config.items()}


def faults(config: Record) -> list[str]:
    """Returns the faults of a configuration, one line each. This check needs no GPU."""
    if lines := placeholders(config):
        return lines
    for section, key in PATHS:
        for path in _paths(config, section, key):
            if isinstance(path, str) and path and not Path(path).exists():
                lines.append(f"{section}.{key}: no such file: {path}")
            elif not isinstance(path, str) or not path:
                lines.append(f"{section}.{key}: {path!r}; expected a path")
    lines += _shards(config)
    return lines or list(size_faults(config))


def placeholders(config: Record) -> list[str]:
    """Returns one line for each placeholder such as <MODEL_DIR> that is still in a configuration."""
    return [f"{key}: {text} was never filled in" for key, text in _texts(config) if PLACEHOLDER.search(text)]


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in pairs:
            yield from _texts(item, f"{key}.{name}" if key else str(name))


def _paths(config: Record, section: str, key: str) -> list[Any]:
    part = config.get(section)
    value = part.get(key) if isinstance(part, dict) else None
    return value if isinstance(value, list) and value else [value]


def _shards(config: Record) -> Iterator[str]:
    part = config.get("checkpointer")
    part = part if isinstance(part, dict) else {}
    folder, files = part.get("checkpoint_dir"), part.get("checkpoint_files")
    if isinstance(files, dict):
        files = _file_names(files)
    if not isinstance(files, list) or not files:
        yield f"checkpointer.checkpoint_files: {files!r}; expected a list of files"
        return
    if not isinstance(folder, str) or not Path(folder).is_dir():
        return
    for name in files:
        path = Path(folder, str(name))
        try:
            if not path.is_file():
                raise InputError("no such file", path)
            if path.suffix == ".safetensors":
                check_safetensors(path)
        except InputError as error:
            yield f"checkpointer.checkpoint_files: {error}"


def _file_names(files: Record) -> list[str]:
    """Returns the files that torchtune's {"filename_format", "max_filename"} describes."""
    try:
        last = files["max_filename"]
        names = range(1, int(last) + 1)
        return [files["filename_format"].format(str(n).zfill(len(last)), last) for n in names]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return []


def data_file(config: Record) -> Path:
    """Returns the configuration's file of rows. Raises InputError if the configuration names several."""
    paths = _paths(config, "dataset", "data_files")
    if len(paths) != 1:
        raise InputError(
            f"{len(paths)} data_files", "dataset.data_files", "one file, to compare with the statistics"
        )
    return Path(paths[0])


def tune_command(config: Record, path: Path, processes: int) -> list[str]:
    """Returns the command that runs a configuration with torchtune's `full_finetune_distributed`.

    That recipe does not run on a CPU. There, one process runs the single-device recipe, and several processes
    run our wrapper of the distributed recipe.
    """
    tune = [sys.executable, "-m", "torchtune._cli.tune", "run"]
    where = ["--nnodes", "1", "--nproc_per_node", str(processes)]
    if config.get("device") != "cpu":
        return [*tune, *where, "full_finetune_distributed", "--config", str(path)]
    if processes == 1:
        return [*tune, "full_finetune_single_device", "--config", str(path)]
    return command(Ranks(1, processes, 0, 1), "full_finetune_distributed", ["--config", str(path)])


def run_torchtune_file(config: Record, path: Path, processes: int, environment: dict[str, str]) -> None:
    """Runs torchtune until it ends, and writes its output to our stdout. Raises TrainerEnded."""
    with open(sys.stdout.fileno(), "wb", closefd=False) as output:
        argv = tune_command(config, path, processes)
        trainer = ChildProcess(lambda _: argv, env=environment, log=output)
        try:
            status = trainer.process.wait()
        finally:
            trainer.stop(grace_seconds=0)
    if status:
        raise TrainerEnded(f"the trainer ended with status {status}; its output is above")
