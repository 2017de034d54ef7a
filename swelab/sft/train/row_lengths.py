"""Measures the rows of a training.

The preflight does this before a GPU is requested, and keeps the lengths in its report. The training reads
them there.
"""

from pathlib import Path
from typing import Any

from swelab.configs.kinds.sft import Train
from swelab.files.model_config import ModelConfig
from swelab.records import InputError, Record, check, digest, read_json, read_jsonl, sha256_file
from swelab.records.training_records import SftPair, SftRow
from swelab.sft.rows import chat_template
from swelab.sft.rows.lengths import ChatTokenizer, Length
from swelab.sft.rows.preferences import sides_of

TEXTS = (".json", ".jinja", ".txt", ".model")
"""Endings of a base model's files, besides its weights, that affect a training."""


def text_hashes(base: Path) -> dict[str, str]:
    """Maps the name of each file of a base, besides its weights, that affects a training to its hash."""
    return {
        path.name: sha256_file(path)
        for path in sorted(base.iterdir())
        if path.suffix in TEXTS and path.is_file()
    }


def marks_version(base: Path) -> list[int]:
    """Returns [version of the rule that reads the marks of the base's chat template], or [] without marks."""
    return [chat_template.MARKS_VERSION] if chat_template.is_marked(base) else []


def measure_rows(base: Path, dataset: Path, train: Train) -> list[Length]:
    """Returns the length of each conversation, two for each pair.

    Raises InputError for a malformed row, for a conversation without a turn to train on or longer than the
    model's context, and for too few rows for one optimizer step.
    """
    longest = ModelConfig.of(read_json(base / "config.json")).max_position_embeddings
    tokenizer, plain = ChatTokenizer(base), chat_template.PlainRows(base)
    lengths, kind, rows = [], SftPair if train.dpo else SftRow, 0
    for row in read_jsonl(dataset):
        rows += 1
        where = f"{dataset}, row {rows}"
        check(row, kind, where)
        for conversation in sides_of(row):
            length = tokenizer.measure(plain.of(conversation))
            if not length.assistant_tokens:
                raise InputError("has no assistant turn", where, "a turn to train on")
            if length.tokens > longest:
                raise InputError(f"{length.tokens} tokens", where, f"at most {longest}")
            lengths.append(length)
    need = train.batch_size * train.gradient_accumulation_steps
    if rows < need:
        raise InputError(f"{rows} rows", dataset, f"at least the {need} of one optimizer step")
    return lengths


def lengths_record(base: Path, dataset: Path, train: Train) -> Record:
    """Measures all rows. Returns {"key": hash of all that the lengths depend on, "tokens": [...],
    "assistant_tokens": [...]}. Raises InputError as `measure_rows`."""
    lengths = measure_rows(base, dataset, train)
    return {
        "key": _key(base, dataset, train),
        "tokens": [length.tokens for length in lengths],
        "assistant_tokens": [length.assistant_tokens for length in lengths],
    }


def lengths_of(base: Path, dataset: Path, train: Train, preflight: Path | None) -> list[Length]:
    """Returns the lengths in the report `preflight` if they belong to these rows and this base. Otherwise
    measures all rows. Raises InputError as `measure_rows`."""
    report: Any = read_json(preflight) if preflight and preflight.is_file() else None
    found = report.get("lengths") if isinstance(report, dict) else None
    if found and found["key"] == _key(base, dataset, train):
        return [Length(*counts) for counts in zip(found["tokens"], found["assistant_tokens"], strict=True)]
    return measure_rows(base, dataset, train)


def _key(base: Path, dataset: Path, train: Train) -> str:
    """Returns a hash of the rows, their kind, and the base's configuration, tokenizer and chat template."""
    step = train.batch_size * train.gradient_accumulation_steps
    return digest([sha256_file(dataset), train.dpo is not None, step, text_hashes(base), marks_version(base)])
