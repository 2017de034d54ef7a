"""The records that flow between stages, and how they are read, checked and written.

Every record is a plain JSON object; its shape is a JSON Schema under `configs/schemas/`. Readers
stream and name file, line and field of what is wrong; writers are atomic (temporary file in the
same folder, fsync, rename), so that a reader never meets half a file.
"""

import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jsonschema

SCHEMAS = Path(__file__).resolve().parent.parent / "configs" / "schemas"

Record = dict[str, Any]
LOST_ROLLOUTS = ("sandbox_lost", "model_lost", "not_recorded")
"""Outcomes that count as neither solved nor unsolved: what a rollout ran on was lost, or its record was."""


class Fault(Exception):
    """An exception whose text is one line written for a user; scripts print it and exit with 2."""


class InputError(Fault):
    """Something a user gave is wrong. Its text is one line: what, where, what was expected."""

    def __init__(self, what: str, where: str | Path = "", expected: str = ""):
        parts = [f"{where}: {what}" if where else what]
        if expected:
            parts.append(f"expected {expected}")
        super().__init__(" ".join("; ".join(parts).split()))


@cache
def validator(kind: str) -> "jsonschema.protocols.Validator":
    """The JSON Schema validator of `configs/schemas/<kind>.json`."""
    from jsonschema.validators import validator_for  # a fifth of a second, which few programs need to spend

    schema = json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8"))
    return validator_for(schema)(schema)


@cache
def _accepts(kind: str) -> Callable[[Any], object]:
    """The schema of `kind` as compiled code: many times as fast, but it does not say well what is wrong."""
    import fastjsonschema

    return fastjsonschema.compile(dict(validator(kind).schema), use_default=False)


def check(record: Any, kind: str, where: str | Path, schema: Record | None = None) -> None:
    """Raises InputError naming the first field in which `record` departs from its schema.

    `schema` narrows the schema of `kind` to one branch of it.
    """
    if schema is None and _is_accepted(record, kind):
        return
    import jsonschema
    from jsonschema.validators import validator_for

    checker = validator(kind) if schema is None else validator_for(schema)(schema)
    error = jsonschema.exceptions.best_match(checker.iter_errors(record))
    if error is not None:
        field = ".".join(str(part) for part in error.absolute_path) or "(top level)"
        raise InputError(f"field {field}: {shorten(error.message)}", where, f"a valid {kind}")


def _is_accepted(record: Any, kind: str) -> bool:
    import fastjsonschema

    try:
        _accepts(kind)(record)
        return True
    except fastjsonschema.JsonSchemaException:
        return False


def shorten(text: str, limit: int = 200) -> str:
    """`text` on one line, its middle cut out beyond `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


def read_text(path: str | Path) -> str:
    """A UTF-8 text file. Raises InputError when it is missing, unreadable or not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("no such file", path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", path) from None


def read_json(path: str | Path) -> Any:
    """One JSON document. Raises InputError with the line of the first fault."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", f"{path}, line {error.lineno}") from None


def read_jsonl(path: str | Path) -> Iterator[Record]:
    """The objects of a JSON Lines file, one at a time. Raises InputError with the line of a fault."""
    try:
        stream = open(path, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path) from None
    with stream:
        lines = enumerate(stream, 1)
        while True:
            try:
                number, line = next(lines)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise InputError(f"not UTF-8: {error.reason}", path) from None
            if line.strip():
                yield parse_line(line, f"{path}, line {number}")


def read_checked(paths: Iterable[str | Path], kind: str) -> Iterator[tuple[str | Path, Record]]:
    """(path, record) of JSON Lines files, one at a time, each checked against the schema of `kind`."""
    for path in paths:
        for record in read_jsonl(path):
            check(record, kind, path)
            yield path, record


def parse_line(line: str, where: str) -> Record:
    """One line of JSON Lines as an object. Raises InputError."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        cut = "" if line.endswith("\n") else " (the line is cut short)"
        raise InputError(f"not JSON: {error.msg}{cut}", where, "one JSON object a line") from None
    if not isinstance(record, dict):
        raise InputError(f"a {type(record).__name__}", where, "one JSON object a line")
    return record


@contextmanager
def atomic(path: str | Path, durable: bool = True) -> Iterator[IO[bytes]]:
    """A binary stream whose content becomes `path` only when the block ends without an exception.

    A path has one writer at a time: parts that a killed one left are removed. Without `durable` nothing waits
    for the disk: for files whose reader takes a damaged one for an absent one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        stale.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_bytes(path: str | Path, data: bytes, durable: bool = True) -> None:
    """Writes `data` to `path`, atomically."""
    with atomic(path, durable) as stream:
        stream.write(data)


def write_json(path: str | Path, record: Any) -> None:
    """Writes `record` as indented JSON, atomically."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def line(record: Mapping[str, Any]) -> bytes:
    """`record` as one line of JSON Lines; a lone surrogate becomes its JSON escape."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def write_jsonl(path: str | Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Writes `records` one a line, streaming and atomically; returns how many."""
    count = 0
    with atomic(path) as stream:
        for record in records:
            stream.write(line(record))
            count += 1
    return count


def digest(record: Any) -> str:
    """SHA-256 (hex) of a record's canonical JSON: key order and white space do not count."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_file(path: str | Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
