"""Combines files of rows into one, with a limited number of rows per instance.

A seed decides which rows are drawn and how they are shuffled. The same files, seed and limit give the same
rows in the same order as swesmith's combine_trajs. That program asks for the files interactively; here they
are arguments.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from swelab.records import InputError, Record, atomic, parse_line
from swelab.sft.rows.styles import style_of_row


class Place(NamedTuple):
    """Location of a row: (index of its file, offset of its first byte)."""

    file: int
    offset: int


def combine(
    files: Sequence[Path], output: Path, per_instance: int, seed: int, resolved_only: bool = False
) -> Record:
    """Writes the chosen rows to `output`. Returns the metadata that combine_trajs writes.

    The additional field "dropped" has the number of omitted rows for each reason. Only the locations of rows
    are held in memory. Raises InputError if a file is unreadable or a row is malformed. Raises InputError if
    two rows differ in style, or if no row is left.
    """
    places, unresolved = _places(files, resolved_only)
    draw = random.Random(seed)
    chosen: list[Place] = []
    bugs: Counter[str] = Counter()
    repos: Counter[str] = Counter()
    for name, found in places.items():
        size = min(len(found), per_instance)
        chosen += draw.sample(found, size)
        bugs[_bug_type(name)] += size
        repos[name.rsplit(".", 1)[0]] += size
    if not chosen:
        why = f"{unresolved} rows, none of them resolved" if unresolved else "no row"
        raise InputError(why, ", ".join(map(str, files)), "rows to train on")
    draw.shuffle(chosen)
    _write(files, chosen, output)
    return {
        "output_file": str(output),
        "num_files": len(files),
        "num_trajs": len(chosen),
        "max_per_inst": per_instance,
        "bug_types_dist": dict(bugs),
        "seed": seed,
        "files": [str(path) for path in files],
        "repo_count": [f"{repo} | {count}" for repo, count in repos.most_common()],
        "dropped": {
            "over_per_instance": sum(map(len, places.values())) - len(chosen),
            "unresolved": unresolved,
        },
    }


def _bug_type(name: str) -> str:
    kind = name.rsplit(".", 1)[-1].rsplit("_", 1)[0]
    return "func_pm" if kind.startswith("func_pm") else kind


def _open(path: Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path) from None


def _places(files: Sequence[Path], resolved_only: bool) -> tuple[dict[str, list[Place]], int]:
    """Returns (locations of the rows of each instance, number of excluded unresolved rows)."""
    places: dict[str, list[Place]] = {}
    styles: dict[str, str] = {}
    unresolved = 0
    for file, path in enumerate(files):
        offset = 0
        with _open(path) as stream:
            for number, text in enumerate(stream, 1):
                where = f"{path}, line {number}"
                row = _row(text, where)
                if row and resolved_only and row.get("resolved") is not True:
                    unresolved += 1
                elif row:
                    if not isinstance(row.get("instance_id"), str):
                        raise InputError("no text instance_id", where, "a training row")
                    places.setdefault(row["instance_id"], []).append(Place(file, offset))
                    styles.setdefault(style_of_row(row.get("messages") or []), where)
                    if len(styles) > 1:
                        one, other = styles.items()
                        mixed = f"{one[0]} ({one[1]}) and {other[0]} ({other[1]})"
                        raise InputError(f"actions are written as {mixed}", path, "rows of one style")
                offset += len(text)
    return places, unresolved


def _row(text: bytes, where: str) -> Record:
    """Returns the row in a line, or {} for a blank line."""
    try:
        return parse_line(text.decode(), where) if text.strip() else {}
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: {error.reason}", where) from None


def _write(files: Sequence[Path], chosen: Sequence[Place], output: Path) -> None:
    streams = [_open(path) for path in files]
    try:
        with atomic(output) as out:
            for place in chosen:
                streams[place.file].seek(place.offset)
                out.write(json.dumps(json.loads(streams[place.file].readline())).encode() + b"\n")
    finally:
        for stream in streams:
            stream.close()
