"""Converts verl's checkpoints to ours: weights in Hugging Face layout, in the dtype that the training
used."""

import os
import re
import shutil
from pathlib import Path

from safetensors import safe_open

from swelab.records import InputError, read_json, write_json

STEP = re.compile(r"global_step_([0-9]+)")
NEWEST = "latest_checkpointed_iteration.txt"
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def newest_step(folder: Path) -> int:
    """Returns the step of verl's newest complete checkpoint, or 0 if there is none."""
    try:
        return int((folder / NEWEST).read_text())
    except (OSError, ValueError):
        return 0


def export(folder: Path, start: Path, target: Path) -> None:
    """Converts the verl checkpoint in `folder` (global_step_N) and writes it to `target`.

    Only the weights come from verl. The configuration, tokenizer and chat template come from `start`. The
    dtype in the configuration is set to the dtype of the weights. Raises InputError if verl's folder has no
    weights in Hugging Face layout.
    """
    source = folder / "actor" / "huggingface"
    weights = sorted(source.glob("*.safetensors"))
    if not weights:
        raise InputError(
            "no weights in Hugging Face layout", source, "hf_model among checkpoint.save_contents"
        )
    staged = target.with_name(f".{target.name}.part")
    shutil.rmtree(staged, ignore_errors=True)
    shutil.copytree(start, staged, ignore=shutil.ignore_patterns("*.safetensors*", "learner.pt"))
    for path in (*weights, *source.glob("*.safetensors.index.json")):
        shutil.copy(path, staged / path.name)
    config = read_json(staged / "config.json")
    name = "torch_dtype" if "torch_dtype" in config else "dtype"
    write_json(staged / "config.json", {**config, name: dtype_of(weights[0])})
    shutil.rmtree(target, ignore_errors=True)
    os.replace(staged, target)


def dtype_of(path: Path) -> str:
    """Returns torch's name for the dtype of the weights in a file. Raises InputError if the dtype is unknown
    or differs between weights."""
    with safe_open(path, "pt") as weights:
        names = {weights.get_slice(key).get_dtype() for key in weights.keys()}  # noqa: SIM118
    known = {DTYPES.get(name, "") for name in names}
    if len(known) != 1 or "" in known:
        raise InputError(f"weights of types {sorted(names)}", path, "one type of " + ", ".join(DTYPES))
    return known.pop()
