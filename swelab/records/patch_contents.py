"""Computes what a patch makes of files that it moves, copies or has in binary form.

Their new contents are written out, so that no program that applies the patch takes a content from elsewhere:
`git apply` would read it from another file, or from its object store by a hash that the patch names.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from swelab.records.patch_names import PatchRefused
from swelab.records.patches import Change, Hunk, Patch

File = tuple[bytes, bool]
"""A file's content, and whether it is executable."""
Files = dict[str, File | None]
"""Maps a path to its file, or to None if there is none."""
MOST_BYTES = 128 << 20
"""Maximum number of bytes of the files that a patch moves, copies or has in binary form."""
FARTHEST = 1000
"""Maximum number of lines between a hunk's number and the place where it fits."""
_LENGTHS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def resolve(patch: Patch, read: Callable[[list[str]], Files]) -> Patch:
    """Returns the patch without renames, copies and binary changes: their files get whole contents.

    read: returns those of the given files that exist, as they are before the patch. It must follow no link.
    Raises PatchRefused.
    """
    drawn = [change for change in patch.changes if change.source or change.binary]
    names = sorted({name for change in drawn for name in (change.path, change.source) if name})
    if not names:
        return patch
    before, after = read(names), Files()
    targets = {change.path for change in patch.changes if change.kind != "deleted"}
    for change in (each for each in patch.changes if each.path in names):
        after |= _after(change, before, after, targets)
        if sum(len(file[0]) for file in after.values() if file) > MOST_BYTES:
            raise PatchRefused(f"the patch moves or copies more than {MOST_BYTES} bytes")
    whole = [whole_change(name, before.get(name), after[name]) for name in names if name in after]
    plain = [change for change in patch.changes if change.path not in names]
    return Patch((*plain, *(change for change in whole if not change.is_empty)))


def _after(change: Change, before: Files, after: Files, targets: set[str]) -> Files:
    """Returns the files of a change as they are after it. Raises PatchRefused."""
    file = before.get(change.source) if change.source else after.get(change.path, before.get(change.path))
    file = None if change.kind == "new" else file
    if file is None and change.kind != "new":
        raise PatchRefused(f"the patch needs the file {change.source or change.path!r}, which is not there")
    moved: Files = {change.source: None} if change.kind == "rename" and change.source not in targets else {}
    if change.kind == "deleted":
        return {change.path: None}
    content, executable = file or (b"", False)
    try:
        if change.binary:
            content = decode_binary(change.binary[0], content, MOST_BYTES)
        content = with_hunks(content, change.hunks)
    except ValueError as fault:
        raise PatchRefused(f"the change of {change.path!r} does not apply: {fault}") from None
    executable = change.new_mode.endswith("755") if change.new_mode else executable
    return moved | {change.path: (content, executable)}


def whole_change(path: str, before: File | None, after: File | None) -> Change:
    """Returns the change that replaces a file's whole content.

    A content with a NUL is in binary form, any other in lines.
    """
    kind = "edit" if before and after else "new" if after else "deleted"
    old, new = (file[0] if file else b"" for file in (before, after))
    modes = [f"100{'755' if file[1] else '644'}" if file else "" for file in (before, after)]
    modes = modes if modes[0] != modes[1] else ["", ""]
    change = Change(path, kind, old_mode=modes[0], new_mode=modes[1])
    if old == new:
        return change
    if b"\0" in old + new:
        blobs = "..".join(_blob(file[0]) if file else "0" * 40 for file in (before, after))
        return replace(change, blobs=blobs, binary=(encode_binary(new), encode_binary(old)))
    lines = [*_as_hunk("-", old), *_as_hunk("+", new)]
    return replace(change, hunks=(Hunk(int(bool(old)), int(bool(new)), "", tuple(lines)),))


def with_hunks(content: bytes, hunks: Iterable[Hunk]) -> bytes:
    """Returns a file's content with hunks applied.

    A hunk fits where all its lines are, nearest to its number. Raises ValueError if it fits nowhere.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", content.decode("utf-8", "surrogateescape"))
    moved = 0
    for hunk in hunks:
        first = hunk.old
        old, new = (_side(hunk.lines, marks) for marks in ("- ", "+ "))
        place = first - bool(old) + moved
        fit = next(
            (n for n in _places(place) if 0 <= n <= len(lines) and lines[n : n + len(old)] == old), None
        )
        if fit is None:
            raise ValueError(f"no lines as in its hunk at line {first}")
        lines[fit : fit + len(old)] = new
        moved = fit - first + bool(old) + len(new) - len(old)
    return "".join(lines).encode("utf-8", "surrogateescape")


def _places(place: int) -> Iterator[int]:
    yield place
    for away in range(1, FARTHEST):
        yield from (place - away, place + away)


def _side(lines: Sequence[str], marks: str) -> list[str]:
    """Returns the lines of one side of a hunk, with their line ends."""
    side = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line[0] in marks:
            side.append(line[1:] + ("" if following.startswith("\\") else "\n"))
    return side


def decode_binary(part: Sequence[str], old: bytes, most: int) -> bytes:
    """Returns the content that a part of a binary change makes of `old`.

    Raises ValueError if the part cannot be read, or if the content has more than `most` bytes.
    """
    kind, _, size = part[0].partition(" ")
    packed = bytearray()
    for line in part[1:]:
        length = _LENGTHS.find(line[0]) + 1
        if not length:
            raise ValueError("a line of its binary part has no length")
        packed += base64.b85decode(line[1:])[:length]
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(bytes(packed), min(int(size), most) + 1)
    except zlib.error as error:
        raise ValueError(f"its binary part is damaged ({error})") from None
    if len(data) != int(size):
        raise ValueError("its binary part has not the size that it says")
    return data if kind == "literal" else _delta(data, old, most)


def _delta(delta: bytes, old: bytes, most: int) -> bytes:
    """Returns what git's delta makes of `old`. Raises ValueError."""
    place, sizes = 0, []
    try:
        for _ in range(2):
            size = shift = 0
            while True:
                byte, place = delta[place], place + 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            sizes.append(size)
        if sizes[0] != len(old) or sizes[1] > most:
            raise ValueError("its binary part is of another content")
        new = bytearray()
        while place < len(delta) and len(new) <= sizes[1]:
            byte, place = delta[place], place + 1
            if byte < 0x80:
                new += delta[place : place + byte]
                place += byte
                continue
            numbers = []
            for bits in ((0, 1, 2, 3), (4, 5, 6)):
                number = 0
                for shift, bit in enumerate(bits):
                    if byte >> bit & 1:
                        number |= delta[place] << 8 * shift
                        place += 1
                numbers.append(number)
            new += old[numbers[0] : numbers[0] + (numbers[1] or 0x10000)]
    except IndexError:
        raise ValueError("its binary part ends early") from None
    if len(new) != sizes[1]:
        raise ValueError("its binary part has not the size that it says")
    return bytes(new)


def encode_binary(data: bytes) -> tuple[str, ...]:
    """Returns the lines of a part of a binary change that gives a file this content."""
    packed = zlib.compress(data, 9)
    chunks = [packed[n : n + 52] for n in range(0, len(packed), 52)]
    lines = [_LENGTHS[len(chunk) - 1] + base64.b85encode(chunk, pad=True).decode() for chunk in chunks]
    return (f"literal {len(data)}", *lines)


def _as_hunk(mark: str, data: bytes) -> list[str]:
    """Returns the lines of a content, as they stand in a hunk."""
    text = data.decode("utf-8", "surrogateescape")
    lines = [mark + line for line in text.removesuffix("\n").split("\n")] if text else []
    return lines if text.endswith("\n") or not text else [*lines, "\\ No newline at end of file"]


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
