"""Checkpoint folders in Hugging Face layout: what must be there before anything is started on them."""

import json
import struct
from pathlib import Path
from typing import Any

from swelab.records import InputError, Record, digest, read_json, sha256_file

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def check_weights(folder: str | Path) -> dict[str, Any]:
    """The folder's config.json, after its files were found whole (headers are read, not tensors).

    Raises InputError: no folder, no config.json or architecture, no tokenizer, no or cut-off weights.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("no such folder", folder, "a checkpoint in Hugging Face layout")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not config.get("architectures"):
        raise InputError("names no architecture", folder / "config.json", "a model's config.json")
    for name in TOKENIZER_FILES:
        read_json(folder / name)
    for path in weight_files(folder):
        check_safetensors(path)
    return config


def weight_files(folder: Path) -> list[Path]:
    """The checkpoint's safetensors files, sorted. Raises InputError when one is missing or none is there."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(read_json(index).get("weight_map", {}).values()))
        found = [folder / name for name in names]
        for path in found:
            if not path.is_file():
                raise InputError("no such file", path, f"the weights that {index.name} lists")
    else:
        found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise InputError("no weights (*.safetensors)", folder, "a checkpoint in Hugging Face layout")
    return found


def check_safetensors(path: Path) -> None:
    """Raises InputError when a safetensors file's header is not readable or its tensors are cut off."""
    size = path.stat().st_size
    try:
        with open(path, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > size:
                raise ValueError("its header is cut off")
            header = json.loads(stream.read(length))
        end = max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__")
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not a safetensors file: {error}", path) from None
    if 8 + length + end != size:
        raise InputError(f"{size} bytes of {8 + length + end}", path, "a whole safetensors file")


def identity(checkpoint: Path) -> Record:
    """{"digest", "files"}: hashes of a checkpoint's weights, and of everything in its folder."""
    files = {path.name: sha256_file(path) for path in sorted(checkpoint.iterdir()) if path.is_file()}
    return {"digest": weight_digest(checkpoint, files), "files": files}


def weight_digest(checkpoint: Path, files: dict[str, str]) -> str:
    """One hash for a checkpoint's weights, from the hashes of its files by name."""
    return digest({path.name: files[path.name] for path in weight_files(checkpoint)})
