"""Checks LoRA adapters and the names of served models."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from swelab.files.weights import check_safetensors
from swelab.records import InputError, read_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
VENDORS = re.compile(
    r"(?:(?:openai|anthropic|google|xai|vertex_ai|gemini|azure)/)?"
    r"(?:(?:chat)?gpt-?[3-9]|chatgpt|o[134](?:-|$)|claude|gemini|grok|(?:text-)?davinci|codex)",
    re.IGNORECASE,
)


def check_name(name: str) -> None:
    """Raises InputError if a served name does not match NAME, or is the name of a vendor's model.

    Clients derive prices and limits from the name. For example, they would bill any model called `gpt-4o` at
    the price of gpt-4o.
    """
    if not NAME.fullmatch(name):
        raise InputError("not a model name", repr(name), "letters, digits and . _ - /")
    if VENDORS.match(name):
        what = f"the served name {name!r} is a vendor's: clients would price and limit the model as that one"
        raise InputError(what, expected="a name of your own (requests may give any name; docs/serving.md)")


def check_adapters(adapters: Mapping[str, str]) -> None:
    """Raises InputError if a folder contains no adapter or truncated weights. adapters: maps names to
    folders."""
    for name, folder in adapters.items():
        if not NAME.fullmatch(name):
            raise InputError("not an adapter name", repr(name), "letters, digits and . _ - /")
        if not isinstance(rank := read_json(Path(folder, CONFIG)).get("r"), int):
            raise InputError(f"rank r is {rank!r}", Path(folder, CONFIG), "a LoRA adapter in PEFT's layout")
        if not Path(folder, WEIGHTS).is_file():
            raise InputError("no such file", Path(folder, WEIGHTS), "a LoRA adapter in PEFT's layout")
        check_safetensors(Path(folder, WEIGHTS))


def named_adapters(texts: Sequence[str]) -> dict[str, str]:
    """Returns {name: folder} from command-line values `name=folder`. Raises InputError."""
    folders: dict[str, str] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not equals or not folder or name in folders:
            raise InputError(
                "given twice" if name in folders else "no folder", f"--lora {text}", "name=folder"
            )
        folders[name] = folder
    return folders
