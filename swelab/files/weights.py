"""Checks that a checkpoint folder in Hugging Face layout is complete, before a run uses it."""

import json
import re
import struct
from pathlib import Path
from typing import Any

from swelab.files.model_config import ModelConfig
from swelab.records import InputError, Record, digest, read_json, sha256_file
from swelab.records.typed import TypedRecord, field

LAYER = re.compile(r"\.layers\.(\d+)\.")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def check_weights(folder: str | Path) -> ModelConfig:
    """Checks that all files in a checkpoint folder are complete, and returns its config.json.

    Reads the headers of weight files, not the tensors. Raises InputError if the folder, config.json, the
    architecture, a tokenizer file or a weight file is missing, or if weights are truncated.
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
    return ModelConfig.of(config)


def weight_files(folder: Path) -> list[Path]:
    """Returns the checkpoint's safetensors files, sorted. Raises InputError if a listed file is missing or
    there are none."""
    found, index = weight_paths(folder)
    for path in found:
        if not path.is_file():
            raise InputError("no such file", path, "the weights that the index lists")
    return found


def weight_paths(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Returns (sorted paths of the weight files, index). The index maps each tensor to the name of its file.

    Without an index file, returns the existing weight files and {}. Raises InputError if there are no weight
    files.
    """
    listing = folder / "model.safetensors.index.json"
    index: dict[str, str] = {}
    if listing.is_file():
        found: Any = read_json(listing)
        index = found.get("weight_map", {}) if isinstance(found, dict) else {}
        if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
            raise InputError("no weight_map", listing, "an index of weights")
    paths = [folder / name for name in sorted(set(index.values()))] or sorted(folder.glob("*.safetensors"))
    if not paths:
        raise InputError("no weights (*.safetensors)", folder, "a checkpoint in Hugging Face layout")
    return paths, index


def check_safetensors(path: Path) -> None:
    """Raises InputError if a safetensors file's header is unreadable, or if its tensors are truncated."""
    header(path)


def header(path: Path) -> Record:
    """Reads the header of a safetensors file. Maps each tensor's name to {"dtype", "shape", "data_offsets"}.
    Raises InputError if the file is missing, its header is unreadable, or its tensors are truncated."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > size:
                raise ValueError("its header is cut off")
            tensors: Record = json.loads(stream.read(length))
        tensors.pop("__metadata__", None)
        end = max(tensor["data_offsets"][1] for tensor in tensors.values())
    except FileNotFoundError:
        raise InputError("no such file", path, "the weights that the index lists") from None
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not a safetensors file: {error}", path) from None
    if 8 + length + end != size:
        raise InputError(f"{size} bytes of {8 + length + end}", path, "a whole safetensors file")
    return tensors


def check_shapes(folder: Path, config: Record, where: Path) -> None:
    """Raises InputError if the sizes in `config` differ from the shapes of the weights in `folder`. where:
    path of the config.json."""
    found = {name: tensor["shape"] for path in weight_files(folder) for name, tensor in header(path).items()}
    layers = {int(number) for name in found for number in LAYER.findall(name)[:1]}
    told = {"num_hidden_layers": len(layers)} if layers else {}
    if shape := found.get("model.embed_tokens.weight"):
        told |= dict(zip(("vocab_size", "hidden_size"), shape))
    for name, size in told.items():
        if config.get(name) != size:
            raise InputError(f"{name} is {config.get(name)}", where, f"{size}, as in the weights of {folder}")


class Checkpoint(TypedRecord):
    """The hash of a checkpoint's weights, and the hashes of all files in its folder."""

    digest: str = field("one hash over all weights")
    files: dict[str, str] = field("hash of each file, keyed by name")


def identity(checkpoint: Path) -> Checkpoint:
    """Computes the hashes of a checkpoint folder."""
    files = {path.name: sha256_file(path) for path in sorted(checkpoint.iterdir()) if path.is_file()}
    return Checkpoint(digest=weight_digest(checkpoint, files), files=files)


def manifest_digest(path: Path) -> str:
    """Returns the digest of the weights from a checkpoint's manifest. Raises InputError if the manifest has
    no digest."""
    found = read_json(path)
    told = found.get("digest") if isinstance(found, dict) else None
    if not isinstance(told, str):
        raise InputError("names no digest", path, "the manifest of a checkpoint, which its stage wrote")
    return told


def weight_digest(checkpoint: Path, files: dict[str, str]) -> str:
    """Computes one hash of a checkpoint's weights. files: maps file names to hashes."""
    return digest({path.name: files[path.name] for path in weight_files(checkpoint)})


def folder_facts(folder: Path) -> Record:
    """Returns {"digest": hash of the weights, "files": hash of each file, "bytes": size of each file} of a
    model's folder."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    files = {path.name: sha256_file(path) for path in paths}
    sizes = {path.name: path.stat().st_size for path in paths}
    return {"digest": weight_digest(folder, files), "files": files, "bytes": sizes}
