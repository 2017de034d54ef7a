"""Reads the text of a patch strictly, into changes of files.

The text of a patch comes from outside, and `git apply` and GNU patch obey more of it than its hunks: they
copy and move files, look up contents by their hash, and squash `//` in names. So a text is read here, once,
and what is applied is the text that `Patch` writes from what was read.
"""

import re
from dataclasses import replace
from typing import Any, NoReturn

from swelab.records.patch_names import PatchRefused, path_of, unquote
from swelab.records.patches import LINK, Change, Hunk, Patch

HUNK = re.compile(r"@@ -(\d{1,18}+)(?:,(\d{1,18}+))? \+(\d{1,18}+)(?:,(\d{1,18}+))? @@(.*)", re.S)
LOST_LINES = 3
"""Maximum number of blank context lines that may be missing at the end of a text."""
_SUBMODULE = "160000"
_NOTHING = "/dev/null"
_BLOBS = re.compile(r"[0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: ([0-7]{6}))?")
_BINARY = re.compile(r"(?:literal|delta) \d{1,10}")
_EPOCH = re.compile(r"\t(?:1970-01-01|1969-12-31) ")
_MODES = {
    "old mode ": "old_mode",
    "new mode ": "new_mode",
    "deleted file mode ": "old_mode",
    "new file mode ": "new_mode",
}
_SOURCES = {"rename from ": "rename", "rename old ": "rename", "copy from ": "copy"}
_TARGETS = {"rename to ": "rename", "rename new ": "rename", "copy to ": "copy"}


def read_patch(text: str) -> Patch:
    """Reads a unified diff, with or without headers of git. Other lines between its parts are passed over.

    The first folder of a name (`a/`, `b/`) is left out, as by `git apply`. Raises PatchRefused.
    """
    reader = _Reader(text)
    while reader.place < len(reader.lines):
        reader.step()
    reader.finish()
    if text.strip() and not reader.changes:
        raise PatchRefused("the patch changes no file: expected a unified diff")
    return Patch(tuple(reader.changes))


def readable(text: str) -> Patch:
    """Returns the patch in a text, or a patch without changes if the text is refused."""
    try:
        return read_patch(text)
    except PatchRefused:
        return Patch()


def touched_paths(patch: str) -> list[str]:
    """Returns the paths that a patch reads or writes, or none if the patch is refused."""
    return readable(patch).paths


class _Reader:
    """A place in the lines of a patch, and the change that is being read there."""

    def __init__(self, text: str):
        self.lines = text.removesuffix("\n").split("\n")
        self.place = 0
        self.changes: list[Change] = []
        self.draft: Change | None = None
        self.hunks: list[Hunk] = []
        self.in_header = self.has_returns = False

    def step(self) -> None:
        """Reads a line, or a hunk, or a binary part."""
        line = self.lines[self.place].removesuffix("\r")
        if line.startswith("diff --git "):
            self.finish()
            self.draft, self.in_header = Change(_common_name(line)), True
        elif line.startswith("--- ") and self._line(1).startswith("+++ "):
            self._names(line, self._line(1))
        elif match := HUNK.match(self.lines[self.place]):
            self._hunk(match)
            return
        elif line == "GIT binary patch" and self.draft:
            self._binary()
            return
        elif not (self.in_header and self._header(line)):
            self.in_header = False
        self.place += 1

    def finish(self) -> None:
        """Ends the change that is being read."""
        change, hunks = self.draft, tuple(self.hunks)
        self.draft, self.hunks, self.in_header = None, [], False
        if not change or (change := replace(change, hunks=hunks)).is_empty:
            return
        if not change.path or (change.kind in ("rename", "copy")) != bool(change.source):
            self._fail("the header does not say which file it is of")
        if change.blobs and (match := _BLOBS.fullmatch(change.blobs)) and match[1] == _SUBMODULE:
            raise PatchRefused(f"the patch changes a submodule: {change.path!r}", hostile=True)
        self.changes.append(change)

    def _line(self, ahead: int) -> str:
        place = self.place + ahead
        return self.lines[place].removesuffix("\r") if place < len(self.lines) else ""

    def _fail(self, why: str) -> NoReturn:
        raise PatchRefused(f"line {self.place + 1} of the patch: {why}")

    def _names(self, old_line: str, new_line: str) -> None:
        """Reads a line `--- name` and the line `+++ name` after it."""
        draft = self.draft
        if draft is None or not self.in_header:
            self.finish()
            draft = Change("", is_git=False)
        self.has_returns = self.lines[self.place + 1].endswith("\r")
        old, new = (_NOTHING if _EPOCH.search(each) else _name(each[4:]) for each in (old_line, new_line))
        if _NOTHING == old == new:
            self._fail("two names of no file")
        kind = "new" if old == _NOTHING else "deleted" if new == _NOTHING else draft.kind
        paths = [_NOTHING if name == _NOTHING else path_of(name, strip=True) for name in (old, new)]
        if not draft.source:
            draft = replace(draft, path=paths[0] if new == _NOTHING else paths[1], kind=kind)
        elif paths != [draft.source, draft.path]:
            self._fail("the names are not those of the header above")
        self.draft, self.in_header = draft, False
        self.place += 1

    def _header(self, line: str) -> bool:
        """Reads a line of git's header. Returns whether it was one. Raises PatchRefused."""
        draft = self.draft
        assert draft is not None, "a header belongs to a change"
        for start, name in _MODES.items():
            if line.startswith(start):
                word = {"n": "new", "d": "deleted"}.get(line[0], "edit") if " file " in start else draft.kind
                mode: dict[str, Any] = {name: _mode(line[len(start) :], draft.path)}
                self.draft = replace(draft, kind=word, **mode)
                return True
        for starts, name in ((_SOURCES, "source"), (_TARGETS, "path")):
            for start, kind in starts.items():
                if line.startswith(start):
                    path: dict[str, Any] = {name: path_of(unquote(line[len(start) :].rstrip()), strip=False)}
                    self.draft = replace(draft, kind=kind, **path)
                    return True
        if line.startswith("index "):
            self.draft = replace(draft, blobs=line[6:] if _BLOBS.fullmatch(line[6:]) else "")
        return line.startswith(("index ", "similarity index ", "dissimilarity index "))

    def _hunk(self, match: re.Match[str]) -> None:
        """Reads a hunk. At the end of the text, blank lines of context may be missing."""
        if self.draft is None:
            self._fail("a hunk without a file")
        self.in_header = False
        old, new = (int(count) if count else 1 for count in (match[2], match[4]))
        lines: list[str] = []
        self.place += 1
        while old > 0 or new > 0 or self._line(0).startswith("\\"):
            line = self.lines[self.place] if self.place < len(self.lines) else None
            if line is None and old == new <= LOST_LINES:
                line = ""
            if line is None or line[:1] not in ("-", "+", " ", "", "\\", "\r"):
                self._fail("a hunk with fewer lines than it says")
            line = line.removesuffix("\r") if self.has_returns or line == "\r" else line
            line = line or " "
            old, new = old - (line[0] in "- "), new - (line[0] in "+ ")
            if min(old, new) < 0:
                self._fail("a hunk with more lines than it says")
            lines.append(line)
            self.place += 1
        heading = match[5].removesuffix("\r")
        self.hunks.append(Hunk(int(match[1]), int(match[3]), heading, tuple(lines)))

    def _binary(self) -> None:
        """Reads the forward part of a binary change, and the reverse part if there is one."""
        assert self.draft is not None, "a binary part belongs to a change"
        self.place += 1
        parts: list[tuple[str, ...]] = []
        while len(parts) < 2 and _BINARY.fullmatch(self._line(0)):
            end = self.place + 1
            while end < len(self.lines) and self.lines[end].removesuffix("\r"):
                end += 1
            parts.append(tuple(line.removesuffix("\r") for line in self.lines[self.place : end]))
            self.place = end + 1
        if not parts:
            self._fail("a binary part without content")
        self.draft = replace(self.draft, binary=tuple(parts))


def _mode(word: str, path: str) -> str:
    """Returns a mode as git keeps it. Raises PatchRefused."""
    if not re.fullmatch(r"[0-7]{5,7}", word):
        raise PatchRefused(f"the mode {word!r} of {path!r} is none: expected 100644 or 100755")
    kind = int(word, 8) >> 12
    if kind == 0o16:
        raise PatchRefused(f"the patch adds a submodule: {path!r}", hostile=True)
    if kind not in (0o10, 0o12):
        raise PatchRefused(f"the mode {word!r} of {path!r} is none of a file: expected 100644 or 100755")
    return LINK if kind == 0o12 else "100755" if int(word, 8) & 0o100 else "100644"


def _common_name(line: str) -> str:
    """Returns the name in a line `diff --git a/name b/name`, or "" if the line has two names."""
    rest = line[len("diff --git ") :]
    # An unclosed quotation runs to the end of the line. All of it is skipped in one step, for linear time.
    quoted = [name for name in re.findall(r'("[^"\\]*+(?:\\.[^"\\]*+)*")|".*', rest) if name]
    names = [unquote(name) for name in quoted]
    if rest and not quoted and len(rest) % 2 and rest[len(rest) // 2] == " ":
        names = [rest[: len(rest) // 2], rest[len(rest) // 2 + 1 :]]
    elif len(names) == 1:
        names.append(rest.replace(quoted[0], "", 1).strip())
    if len(names) != 2 or names[0].partition("/")[2] != names[1].partition("/")[2]:
        return ""
    return path_of(names[1], strip=True)


def _name(rest: str) -> str:
    """Returns the name in a line `--- name` or `+++ name`, without the time after it."""
    return unquote(rest.split("\t")[0].rstrip())
