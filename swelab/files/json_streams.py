"""Reads and writes JSON lists and objects, too long for memory, one element at a time.

Our own files have one element a line, so that a reader who wants few elements can skip the others without
parsing them. Any other layout of the same JSON can be read too.
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
"""Characters to read at once; longer elements are read in growing pieces."""

KeyFilter = Callable[[str], bool]
"""Whether to read the element with this key or instance id."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NAMED = re.compile(r'\{"instance_id": ("(?:[^"\\]|\\.)*")[,}]')
_SEVERAL = re.compile(r"\}\s*,")


class _Text:
    """A JSON document that is being read. Holds the text that was read but is not yet consumed."""

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
        """The next character that is not white space; "" at the end."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or not self._more():
                return self.text[self.at : self.at + 1]

    def take(self, characters: str, what: str) -> str:
        """The next character, which must be one of `characters`."""
        found = self.peek()
        if not found or found not in characters:
            raise self.fault(f"not JSON: expected {what}")
        self.at += 1
        return found

    def value(self) -> Any:
        """The next JSON value."""
        self.peek()
        while True:
            try:
                found, end = self._decode(self.text, self.at)
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
                return found

    def rest_of_line(self) -> str:
        """The rest of this line."""
        while (end := self.text.find("\n", self.at)) < 0:
            if not self._more():
                return self.text[self.at :]
        return self.text[self.at : end]

    def skip(self) -> bool:
        """Skips an object that ends with its line, if the line certainly holds nothing else. Otherwise
        returns False."""
        body = self.rest_of_line().rstrip().removesuffix(",")
        plain = body.endswith("}") and not _SEVERAL.search(body) and body.count("{") == body.count("}")
        self.at += len(body) if plain else 0
        return plain


def _elements(text: _Text, brackets: str, kind: str) -> Iterator[int]:
    """Yields the number of each element of a list or object, with `text` at the element's start."""
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
    """Yields (number, element) of a JSON list; with `key_filter`, skips objects whose `instance_id` it
    rejects.

    Raises InputError with the line of a fault, or if the document is no list.
    """
    with _Text(path) as text:
        for number in _elements(text, "[]", "list"):
            if not (key_filter and _unwanted(text, key_filter) and text.skip()):
                element = text.value()
                named = isinstance(element, dict) and isinstance(element.get("instance_id"), str)
                if not key_filter or not named or key_filter(element["instance_id"]):
                    yield number, element


def _unwanted(text: _Text, key_filter: KeyFilter) -> bool:
    text.peek()
    text.rest_of_line()
    named = _NAMED.match(text.text, text.at)
    return named is not None and not key_filter(json.loads(named[1]))


def object_items(path: str | Path, key_filter: KeyFilter | None = None) -> Iterator[tuple[str, Any]]:
    """Yields (key, value) of a JSON object; with `key_filter`, only keys that it accepts.

    Raises InputError with the line of a fault, or if the document is no object.
    """
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
    """Writes a JSON list, one row a line, instance id first; atomic and streaming. Returns how many rows."""
    ordered = ({"instance_id": row["instance_id"], **row} if "instance_id" in row else row for row in rows)
    return _write(path, b"[]", (line(row).rstrip(b"\n") for row in ordered))


def write_object(path: str | Path, items: Iterable[tuple[str, Any]]) -> int:
    """Writes a JSON object, one key a line; atomic and streaming. Returns the number of keys."""
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
    """Writes an object of `facts` and, last, the list `name`, one row a line; atomic and streaming."""
    with atomic(path) as stream:
        stream.write(json.dumps(facts, indent=2).removesuffix("\n}").encode())
        stream.write(f',\n  "{name}": ['.encode())
        for number, row in enumerate(rows):
            stream.write((b",\n" if number else b"\n") + line(row).rstrip(b"\n"))
        stream.write(b"\n  ]\n}\n")


class Spool:
    """Stores rows in an unnamed file on disk, by numbers in order of addition. Thread-safe."""

    def __init__(self, folder: str | Path | None = None):
        self._stream = tempfile.TemporaryFile(dir=folder)
        self._offsets = array("q")
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, row: Record) -> int:
        """Stores a row; returns its number."""
        with self._lock:
            self._offsets.append(self._stream.seek(0, os.SEEK_END))
            self._stream.write(line(row))
            return len(self._offsets) - 1

    def get(self, number: int) -> Record:
        """The row with this number. Raises IndexError."""
        with self._lock:
            self._stream.seek(self._offsets[number])
            text = self._stream.readline()
        return dict(json.loads(text))


class Picked(Sequence[Kind]):
    """Some rows of a spool, in any order, as records of one kind."""

    def __init__(self, spool: Spool, numbers: Sequence[int], kind: type[Kind]):
        self._spool, self._numbers, self._kind = spool, numbers, kind

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        found = self._numbers[index]
        if isinstance(index, slice):
            return Picked(self._spool, found, self._kind)
        return self._kind.of(self._spool.get(found))


@dataclass
class Outline:
    """A summary of rows, without the rows: their ids in order, and the digest of all rows."""

    ids: list[str] = field(default_factory=list)
    _hash: Any = field(default_factory=lambda: hashlib.sha256(b"["))

    def add(self, row: Row) -> Row:
        """Adds a row to the summary, and returns the row."""
        text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        self._hash.update((("," if self.ids else "") + text).encode())
        self.ids.append(row["instance_id"])
        return row

    @property
    def digest(self) -> str:
        """Equal to `records.digest` of the list of all rows."""
        whole = self._hash.copy()
        whole.update(b"]")
        return str(whole.hexdigest())

    @classmethod
    def of(cls, rows: Iterable[Record]) -> "Outline":
        """The outline of some rows, which are read one at a time."""
        outline = cls()
        for row in rows:
            outline.add(row)
        return outline
