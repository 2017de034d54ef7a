"""Completes a checkpoint that lacks configuration, tokenizer or chat template with files of its base model.

Some trainers do not save these files. The missing files are added in a view: a temporary folder of links that
exists while the model is served. The checkpoint itself is never changed.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swelab.files.weights import check_shapes
from swelab.records import InputError, Record, read_json, write_bytes

TOKENIZER = "tokenizer.json"
TOKENIZER_FILES = (
    TOKENIZER,
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
)
VOCABULARY = ("vocab.json", "merges.txt")
TEMPLATE = "chat_template.jinja"


@contextmanager
def complete_folder(checkpoint: str | Path, base: str | Path | None) -> Iterator[Path]:
    """Yields the folder to serve: `checkpoint` if it is complete, otherwise a view completed from `base`.

    Prints which files were taken from `base`. Raises InputError if both lack a file, if the base model has
    another size or vocabulary, or if there is no chat template.
    """
    folder = Path(checkpoint).absolute()
    if not folder.is_dir():
        raise InputError("no such folder", checkpoint, "a checkpoint in Hugging Face layout")
    if base and not Path(base).is_dir():
        raise InputError("no such folder", base, "the base model's folder")
    added = missing(folder, Path(base).absolute() if base else None)
    if not added:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="swelab-view-") as scratch:
        view = Path(scratch)
        for path in folder.iterdir():
            if path.name not in added:
                (view / path.name).symlink_to(path)
        for name, data in added.items():
            write_bytes(view / name, data)
        names = ", ".join(sorted(added))
        print(f"{checkpoint} lacks {names}: served with those of {base}", file=sys.stderr, flush=True)
        yield view


def missing(folder: Path, base: Path | None) -> dict[str, bytes]:
    """Returns the base model's contents of the files that a checkpoint lacks, keyed by file name.

    Raises InputError as `complete_folder` does. Without a base model, only a missing file that serving needs
    is an error.
    """
    files: dict[str, bytes] = {}
    for name in ("config.json", "generation_config.json"):
        if not (folder / name).is_file() and base and (base / name).is_file():
            files[name] = (base / name).read_bytes()
    if "config.json" in files and base:
        check_shapes(folder, read_json(base / "config.json"), base / "config.json")
    files |= _tokenizer(folder, base)
    for name in ("config.json", TOKENIZER):
        if name not in files and not (folder / name).is_file():
            also = f", nor in {base}" if base else ""
            raise InputError(f"no such file{also}", folder / name, "it, or a base model that has it")
    if not _template(folder):
        template = _template(base) if base else ""
        if not template:
            also = f", nor has {base}" if base else ""
            raise InputError(f"no chat template{also}", folder, f"{TEMPLATE}, or a base model that has one")
        files[TEMPLATE] = template.encode()
    return files


def _tokenizer(folder: Path, base: Path | None) -> dict[str, bytes]:
    """Returns the base model's tokenizer files that a checkpoint lacks, or {} if its tokenizer is
    complete."""
    config = "tokenizer_config.json"
    if base is None or ((folder / TOKENIZER).is_file() and (folder / config).is_file()):
        return {}
    names = TOKENIZER_FILES if not (folder / TOKENIZER).is_file() else (config,)
    for name in (TOKENIZER, *VOCABULARY):
        mine, theirs = folder / name, base / name
        if mine.is_file() and theirs.is_file() and mine.read_bytes() != theirs.read_bytes():
            raise InputError(f"another vocabulary than that of {base}", mine, "the checkpoint's base model")
    return {
        name: (base / name).read_bytes()
        for name in names
        if not (folder / name).is_file() and (base / name).is_file()
    }


def _template(folder: Path) -> str:
    """Returns the chat template of a folder, from any file that may contain it, or ''."""
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            found: Record = read_json(folder / name)
            template = found.get("chat_template") if isinstance(found, dict) else None
            if template:
                return template if isinstance(template, str) else _default(template, folder / name)
    return ""


def _default(templates: Any, where: Path) -> str:
    """Returns the template named `default` in a list of named templates."""
    try:
        return str(next(each["template"] for each in templates if each["name"] == "default"))
    except (StopIteration, KeyError, TypeError):
        raise InputError("no template named default", where, json.dumps([{"name": "default"}])) from None


def longest_context(checkpoint: Path, base: Path | None, wish: int) -> int:
    """Returns the smaller of `wish` and the model's own context length, in tokens. Raises InputError if there
    is no config.json."""
    longest: int = _config(checkpoint, base)[0].get("max_position_embeddings", wish)
    return min(wish, longest)


def vocabulary(checkpoint: Path, base: str | Path | None) -> int:
    """Returns the number of rows of the embedding. Token ids are smaller than this number. Raises InputError
    if there is no usable config.json."""
    config, path = _config(checkpoint, base)
    inner = config.get("text_config")
    rows = config.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
    if type(rows) is not int or rows < 1:
        raise InputError(f"vocab_size is {rows!r}", path, "how many tokens the model knows")
    return rows


def _config(checkpoint: Path, base: str | Path | None) -> tuple[Record, Path]:
    """Returns the checkpoint's config.json, or else its base model's, and the path of the file. Raises
    InputError."""
    path = Path(checkpoint, "config.json")
    if base and not path.is_file():
        path = Path(base, "config.json")
    config = read_json(path)
    return (config if isinstance(config, dict) else {}), path
