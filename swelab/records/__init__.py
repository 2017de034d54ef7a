"""Reads, checks and writes the records that stages exchange.

Every record is a JSON object. `task_records` and the modules next to it contain a class for each kind of
record, against which records are checked. Readers stream files. Their errors state the file, the line and the
field. Writers (`whole_files`) are atomic, so that a reader never sees an incomplete file.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from swelab.records.typed import TypedRecord, schema
from swelab.records.whole_files import atomic as atomic
from swelab.records.whole_files import folder_for as folder_for
from swelab.records.whole_files import line as line
from swelab.records.whole_files import share_with_group as share_with_group
from swelab.records.whole_files import write_bytes as write_bytes
from swelab.records.whole_files import write_json as write_json
from swelab.records.whole_files import write_jsonl as write_jsonl

SHIPPED_CONFIGS = Path(__file__).resolve().parents[2] / "configs"
"""The folder `configs` of the clone that contains this code, whatever the working folder is."""

Record = dict[str, Any]
Kind = TypeVar("Kind", bound=TypedRecord)


class Fault(Exception):
    """An error that a user can fix. The error's text is one line. Scripts print this line and exit with 2."""


class InputError(Fault):
    """A user's input is wrong. The message is one line: the place, the error, and the expected input."""

    def __init__(self, what: str, where: str | Path = "", expected: str = ""):
        parts = [f"{where}: {what}" if where else what]
        if expected:
            parts.append(f"expected {expected}")
        super().__init__(" ".join("; ".join(parts).split()))


@cache
def _accepts(kind: type[TypedRecord]) -> Callable[[Any], object]:
    """Returns a compiled validator for a record's schema. The validator is fast, but its error messages are
    imprecise."""
    import fastjsonschema

    return fastjsonschema.compile(schema(kind), use_default=False)


def check(record: Any, kind: type[TypedRecord], where: str | Path) -> None:
    """Raises InputError with the first field of a JSON value that does not match the schema of `kind`."""
    fault = _fault(record, kind)
    if not fault:
        return
    import jsonschema  # a slow import (0.2 s), needed only for errors
    from jsonschema.validators import validator_for

    document = schema(kind)
    error = jsonschema.exceptions.best_match(validator_for(document)(document).iter_errors(record))
    if error is not None:
        field = ".".join(str(part) for part in error.absolute_path) or "(top level)"
        raise InputError(f"field {field}: {shorten(error.message)}", where, f"a valid {kind.kind()}")
    # For jsonschema, unlike for JSON Schema, `$` in a pattern also stands before a line end.
    raise InputError(shorten(fault), where, f"a valid {kind.kind()}")


def check_text(record: Mapping[str, Any], where: str | Path) -> None:
    """Raises InputError with the first field whose text cannot be written to a file.

    The lone surrogates U+DC80 to U+DCFF are allowed: they represent the bytes of a patch that are not UTF-8.
    Other lone surrogates represent no byte.
    """
    for name, value in record.items():
        try:
            value.encode("utf-8", "surrogateescape") if isinstance(value, str) else None
        except UnicodeEncodeError as error:
            what = f"field {name} holds half a character, \\u{ord(value[error.start]):04x}, at {error.start}"
            raise InputError(what, where, "text that can be written as UTF-8") from None


def _fault(record: Any, kind: type[TypedRecord]) -> str:
    """Returns an error of a record in the words of the fast validator, or ""."""
    import fastjsonschema

    try:
        _accepts(kind)(record)
        return ""
    except fastjsonschema.JsonSchemaException as error:
        return str(error)


def shorten(text: str, limit: int = 200) -> str:
    """Returns `text` on one line. If the text is longer than `limit` characters, its middle is replaced by "
    ... "."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


def not_text(path: str | Path, error: UnicodeDecodeError) -> InputError:
    """Returns the exception for a file that is not UTF-8. The message names the format if it is a known
    binary format."""
    with open(path, "rb") as stream:
        start = stream.read(8)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")
    what = f"not UTF-8 text but {kind}" if kind else f"not UTF-8: {error.reason} at byte {error.start}"
    return InputError(what, path, "UTF-8 text; unpack it first" if "compressed" in kind else "UTF-8 text")


_MAGIC = {
    b"\x1f\x8b": "a gzip-compressed file",
    b"\x28\xb5\x2f\xfd": "a zstd-compressed file",
    b"PK\x03\x04": "a zip-compressed file",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def read_text(path: str | Path) -> str:
    """Reads a UTF-8 text file, and removes its byte order mark. Raises InputError if the file is missing,
    unreadable or not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError("no such file", path) from None
    except UnicodeDecodeError as error:
        raise not_text(path, error) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path) from None


def _refuse_constant(word: str) -> None:
    raise ValueError(f"the constant {word}")


decoder = json.JSONDecoder(parse_constant=_refuse_constant)
"""Decodes standard JSON. NaN and Infinity are errors, although Python's own decoder accepts them."""


def not_json(error: ValueError | RecursionError) -> str:
    """Converts an exception of `decoder` to a message."""
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg}"
    if isinstance(error, RecursionError):
        return "not usable JSON: brackets nested too deeply (beyond about 1,000)"
    if "digits" in str(error):
        return "not usable JSON: an integer of more than 4,300 digits"
    return f"not JSON: {error}"


def read_json(path: str | Path) -> Any:
    """Reads one JSON document. Raises InputError with the line of the first error."""
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", path, "a JSON document")
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(not_json(error), f"{path}{line}") from None


def read_jsonl(path: str | Path) -> Iterator[Record]:
    """Yields the objects of a JSON Lines file. Raises InputError with the line of an error."""
    return (row for _, row in numbered_jsonl(path))


def numbered_jsonl(path: str | Path) -> Iterator[tuple[int, Record]]:
    """Yields (line number, object) for each line of a JSON Lines file. Line numbers begin at 1. Raises
    InputError."""
    try:
        stream = open(path, encoding="utf-8-sig")
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
                raise not_text(path, error) from None
            if line.strip():
                yield number, parse_line(line, f"{path}, line {number}")


def as_record(row: Any, kind: type[Kind], where: str | Path) -> Kind:
    """Checks a JSON value and converts it to a record. Raises InputError with the field that does not match
    the schema."""
    check(row, kind, where)
    return kind.of(row)


def read_record(path: str | Path, kind: type[Kind]) -> Kind:
    """Reads a record from a JSON file. Raises InputError."""
    return as_record(read_json(path), kind, path)


def read_records(paths: Iterable[str | Path], kind: type[Kind]) -> Iterator[tuple[str | Path, Kind]]:
    """Yields (path, record) for each record in the JSON Lines files `paths`. Raises InputError."""
    for path in paths:
        for row in read_jsonl(path):
            yield path, as_record(row, kind, path)


def parse_line(line: str, where: str) -> Record:
    """Parses one line of JSON Lines as an object. Raises InputError."""
    try:
        record = decoder.decode(line)
    except (ValueError, RecursionError) as error:
        cut = "" if line.endswith("\n") else " (the line is cut short)"
        raise InputError(f"{not_json(error)}{cut}", where, "one JSON object a line") from None
    if not isinstance(record, dict):
        raise InputError(f"a {type(record).__name__}", where, "one JSON object a line")
    return record


def digest(record: Any) -> str:
    """Returns the SHA-256 (hex) of a record's canonical JSON. Key order and white space do not affect the
    hash."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_file(path: str | Path) -> str:
    """Returns the SHA-256 (hex) of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
