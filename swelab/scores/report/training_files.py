"""Reads the files of a training: figures of each step, and lengths of conversations."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swelab.records import InputError, Record, read_jsonl

STEP_COLUMNS = ("step", "loss", "lr", "grad_norm", "tokens_per_second")
"""Figures of a training step that the page draws."""


def read_steps(losses: Path) -> list[Record]:
    """Reads the figures of each training step.

    The source is `metrics.tsv` next to the losses if that file exists, otherwise the losses. Values are
    numbers, or absent. Raises InputError if a row has no step or no loss.
    """
    metrics = losses.with_name("metrics.tsv")
    if losses.name == "loss.jsonl" and metrics.is_file():
        rows: Iterable[Record] = read_table(metrics)
    else:
        rows, metrics = read_jsonl(losses), losses
    known = ({name: as_number(row.get(name)) for name in STEP_COLUMNS} for row in rows)
    found = [{name: value for name, value in row.items() if value is not None} for row in known]
    if any("step" not in row or "loss" not in row for row in found):
        raise InputError("a row without a step or a loss", metrics, "numbers")
    return found


def read_lengths(path: Path) -> list[int]:
    """Reads token counts of the kept conversations from a table with the columns tokens and fate.
    Raises InputError if a row has no number of tokens."""
    try:
        return [int(row["tokens"]) for row in read_table(path) if row.get("fate", "kept") == "kept"]
    except (KeyError, TypeError, ValueError):
        raise InputError("a row without a number of tokens", path, "a table with a column 'tokens'") from None


def read_table(path: Path) -> list[dict[str, str]]:
    """Yields the rows of a tab-separated file."""
    with open(path, encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def as_number(value: Any) -> float | None:
    """Returns `value` as a number if it is a number or a number's text, otherwise None."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
