"""Reads and writes JSON lists and objects that do not fit into memory, one element at a time.

Files that swelab writes have one element per line. A reader can skip elements in such a file without parsing
them. Any other layout can be read too.
"""

import hashlib
import json
import os
import re
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from swelab.records import InputError, Kind, Record, atomic, decoder, line, not_json, not_text

Row = TypeVar("Row", bound=Mapping[str, Any])
CHUNK = 1 << 20
"""Number of characters to read at once. Longer elements are read in growing pieces."""

KeyFilter = Callable[[str], bool]
"""A function that returns whether to read the element with the given key or instance id."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NAMED = re.compile(r'\{"instance_id": ("(?:[^"\\]|\\.)*")[,}]')
_SEVERAL = re.compile(r"\}\s*,")


class _Text:
    """A JSON document that is being read. Holds the text that was read but is not yet parsed."""

    def __init__(self, path: str | Path):
        self.path, self.text, self.at, self.line, self.ended = path, "", 0, 1, False
        self._decode = decoder.raw_decode
        try:
            self._stream = open(path, encoding="utf-8-sig")
        except FileNotFoundError:
            raise InputError("no such file", path) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path) from None

    def __enter__(self) -> "_Text":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _more(self) -> bool:
        self.line += self.text.count("\n", 0, self.at)
        rest = self.text[self.at :]
        try:
            read = self._stream.read(max(CHUNK, len(rest)))
        except UnicodeDecodeError as error:
            raise not_text(self.path, error) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", self.path) from None
        self.text, self.at, self.ended = rest + read, 0, not read
        return bool(read)

    def fault(self, what: str, at: int | None = None) -> InputError:
        number = self.line + self.text.count("\n", 0, self.at if at is None else at)
        return InputError(what, f"{self.path}, line {number}")

    def peek(self) -> str:
        """Returns the next character that is not white space, or "" at the end of the document."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or not self._more():
                return self.text[self.at : self.at + 1]

    def take(self, characters: str, what: str) -> str:
        """Consumes and returns the next character. Raises InputError if the character is not in
        `characters`."""
        found = self.peek()
        if not found or found not in characters:
            raise self.fault(f"not JSON: expected {what}")
        self.at += 1
        return found

    def value(self) -> Any:
        """Parses and returns the next JSON value."""
        self.peek()
        while True:
            try:
                element, end = self._decode(self.text, self.at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos + 16 > len(self.text)
                fault = self.fault(not_json(error), error.pos)
                if not cut or not self._more():
                    raise fault from None
                continue
            except (ValueError, RecursionError) as error:
                raise self.fault(not_json(error)) from None
            if end < len(self.text) or not self._more():
                self.at = end
                return element

    def rest_of_line(self) -> str:
        """Returns the rest of the current line."""
        while (end := self.text.find("\n", self.at)) < 0:
            if not self._more():
                return self.text[self.at :]
        return self.text[self.at : end]

    def skip(self) -> bool:
        """Skips the next object without parsing it, if it certainly fills the rest of the line. Returns
        whether the object was skipped."""
        body = self.rest_of_line().rstrip().removesuffix(",")
        plain = body.endswith("}") and not _SEVERAL.search(body) and body.count("{") == body.count("}")
        self.at += len(body) if plain else 0
        return plain


def _elements(text: _Text, brackets: str, kind: str) -> Iterator[int]:
    """Yields the index of each element of a list or object. Whenever an index is yielded, `text` is at the
    start of that element."""
    begin, end = brackets[0], brackets[1]
    if text.peek() != begin:
        found = f"a {type(text.value()).__name__}" if text.peek() else "an empty file"
        raise InputError(found, text.path, f"a JSON {kind}")
    text.at += 1
    number = 0
    while text.peek() != end:
        if number:
            text.take(",", f"',' or '{end}'")
            text.peek()
        yield number
        number += 1
    text.at += 1
    if text.peek():
        raise text.fault("not JSON: extra data")


def list_items(path: str | Path, key_filter: KeyFilter | None = None) -> Iterator[tuple[int, Any]]:
    """Yields (index, element) for each element of a JSON list. key_filter: returns whether to read the object
    with the given `instance_id`. Raises InputError with the line of an error, or if the document is not a
    list."""
    with _Text(path) as text:
        for number in _elements(text, "[]", "list"):
            if not (key_filter and _is_unwanted(text, key_filter) and text.skip()):
                element = text.value()
                named = isinstance(element, dict) and isinstance(element.get("instance_id"), str)
                if not key_filter or not named or key_filter(element["instance_id"]):
                    yield number, element


def _is_unwanted(text: _Text, key_filter: KeyFilter) -> bool:
    text.peek()
    text.rest_of_line()
    named = _NAMED.match(text.text, text.at)
    return named is not None and not key_filter(json.loads(named[1]))


def object_items(path: str | Path, key_filter: KeyFilter | None = None) -> Iterator[tuple[str, Any]]:
    """Yields (key, value) for each key of a JSON object. key_filter: returns whether to read the given key.
    Raises InputError with the line of an error, or if the document is not an object."""
    with _Text(path) as text:
        for _ in _elements(text, "{}", "object"):
            if text.peek() != '"':
                raise text.fault("not JSON: expected a key")
            key = text.value()
            text.take(":", "':'")
            text.peek()
            if key_filter is None or key_filter(key):
                yield key, text.value()
            elif not text.skip():
                text.value()


def write_list(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Writes `rows` to a JSON list, as a stream and atomically, one row per line. Each row begins with its
    instance id. Returns the number of rows."""
    ordered = ({"instance_id": row["instance_id"], **row} if "instance_id" in row else row for row in rows)
    return _write(path, b"[]", (line(row).rstrip(b"\n") for row in ordered))


def write_object(path: str | Path, items: Iterable[tuple[str, Any]]) -> int:
    """Writes `items` to a JSON object, as a stream and atomically, one key per line. Returns the number of
    keys."""
    return _write(path, b"{}", (line({key: value}).rstrip(b"\n")[1:-1] for key, value in items))


def _write(path: str | Path, brackets: bytes, elements: Iterable[bytes]) -> int:
    count = 0
    with atomic(path) as stream:
        stream.write(brackets[:1])
        for element in elements:
            stream.write((b",\n" if count else b"\n") + element)
            count += 1
        stream.write(b"\n" + brackets[1:] + b"\n")
    return count


def write_with_list(path: str | Path, facts: Record, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a JSON object, as a stream and atomically. The object has the fields of `facts`, then a field
    `name` with the list `rows`, one row per line."""
    with atomic(path) as stream:
        stream.write(json.dumps(facts, indent=2).removesuffix("\n}").encode())
        stream.write(f',\n  "{name}": ['.encode())
        for number, row in enumerate(rows):
            stream.write((b",\n" if number else b"\n") + line(row).rstrip(b"\n"))
        stream.write(b"\n  ]\n}\n")


class Spool:
    """Stores rows in an unnamed file on disk. Rows are numbered in the order in which they are added.
    Thread-safe."""

    def __init__(self, folder: str | Path | None = None):
        self._stream = tempfile.TemporaryFile(dir=folder)
        self._offsets = array("q")
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, row: Record) -> int:
        """Stores a row and returns its number."""
        with self._lock:
            self._offsets.append(self._stream.seek(0, os.SEEK_END))
            self._stream.write(line(row))
            return len(self._offsets) - 1

    def get(self, number: int) -> Record:
        """Returns the row with this number. Raises IndexError."""
        with self._lock:
            self._stream.seek(self._offsets[number])
            text = self._stream.readline()
        return dict(json.loads(text))


class RowSelection(Sequence[Kind]):
    """The rows of a spool that have the given numbers, as a sequence of records. Each access reads from
    disk."""

    def __init__(self, spool: Spool, numbers: Sequence[int], kind: type[Kind]):
        self._spool, self._numbers, self._kind = spool, numbers, kind

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        found = self._numbers[index]
        if isinstance(index, slice):
            return RowSelection(self._spool, found, self._kind)
        return self._kind.of(self._spool.get(found))


@dataclass
class Outline:
    """A summary of rows: their ids in order, and the digest of all rows. The rows themselves are not kept."""

    ids: list[str] = field(default_factory=list)
    _hash: Any = field(default_factory=lambda: hashlib.sha256(b"["))

    def add(self, row: Row) -> Row:
        """Adds a row to the summary. Returns the row."""
        text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        self._hash.update((("," if self.ids else "") + text).encode())
        self.ids.append(row["instance_id"])
        return row

    @property
    def digest(self) -> str:
        """The hash of all rows, which equals `records.digest` of the list of rows."""
        whole = self._hash.copy()
        whole.update(b"]")
        return str(whole.hexdigest())

    @classmethod
    def of(cls, rows: Iterable[Record]) -> "Outline":
        """Returns the outline of `rows`, which are read one at a time."""
        outline = cls()
        for row in rows:
            outline.add(row)
        return outline
