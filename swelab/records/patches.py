"""A patch as data: which file gets which change. `patch_reader` reads it from a text."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from swelab.records.patch_names import is_git_folder, quote

LINK = "120000"
"""The mode of a symbolic link."""
_NOTHING = "/dev/null"


@dataclass(frozen=True)
class Hunk:
    """A hunk. old, new: numbers of its first line. lines: each with its mark."""

    old: int
    new: int
    heading: str
    lines: tuple[str, ...]

    def text(self) -> str:
        """Returns the hunk as it stands in a patch."""
        sides = (sum(line[0] in marks for line in self.lines) for marks in ("- ", "+ "))
        old, new = ("" if count == 1 else f",{count}" for count in sides)
        return "\n".join((f"@@ -{self.old}{old} +{self.new}{new} @@{self.heading}", *self.lines, ""))

    def reverse(self) -> "Hunk":
        """Returns the hunk that takes this one back."""
        marks = {"-": "+", "+": "-"}
        lines = tuple(marks.get(line[0], line[0]) + line[1:] for line in self.lines)
        return Hunk(self.new, self.old, self.heading, lines)


@dataclass(frozen=True)
class Change:
    """The change of one file. Paths are relative to the repository and in normal form.

    kind: edit, new, deleted, rename or copy. source: the file that is moved or copied. binary: the lines of
    the forward and of the reverse part of a binary change. blobs: the hashes of the file before and after.
    is_git: whether a header of git says what kind the change is; without one, a file may be new or not.
    """

    path: str
    kind: str = "edit"
    source: str = ""
    old_mode: str = ""
    new_mode: str = ""
    hunks: tuple[Hunk, ...] = ()
    binary: tuple[tuple[str, ...], ...] = ()
    blobs: str = ""
    is_git: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said of the file but its name, or that a binary file of unknown content
        differs."""
        return not (self.hunks or self.binary or self.source or self.old_mode or self.new_mode)

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The lines of all hunks as (mark, text)."""
        return [(line[0], line[1:]) for hunk in self.hunks for line in hunk.lines if line[0] != "\\"]

    @property
    def size(self) -> int:
        """The number of added and removed lines."""
        return sum(mark != " " for mark, _ in self.lines)

    def text(self) -> str:
        """Returns the change in git's form, with plain names."""
        old, new = quote("a/" + (self.source or self.path)), quote("b/" + self.path)
        lines = []
        if self.is_git:
            lines.append(f"diff --git {old} {new}")
            if self.kind in ("new", "deleted"):
                mode = (self.new_mode if self.kind == "new" else self.old_mode) or "100644"
                lines.append(f"{self.kind} file mode {mode}")
            elif self.old_mode and self.new_mode:
                lines += [f"old mode {self.old_mode}", f"new mode {self.new_mode}"]
            if self.source:
                lines += [f"{self.kind} from {quote(self.source)}", f"{self.kind} to {quote(self.path)}"]
            lines += [f"index {self.blobs}"] * bool(self.blobs)
        if self.binary:
            lines += ["GIT binary patch", *(line for part in self.binary for line in (*part, ""))]
        if self.hunks:
            lines.append("--- " + (_NOTHING if self.kind == "new" else _with_end(old)))
            lines.append("+++ " + (_NOTHING if self.kind == "deleted" else _with_end(new)))
        return "\n".join([*lines, *(hunk.text().removesuffix("\n") for hunk in self.hunks), ""])

    def reverse(self) -> "Change":
        """Returns the change that takes this one back. Raises ValueError if the text does not say how."""
        if self.kind == "copy" or len(self.binary) == 1:
            raise ValueError("a patch that copies a file, or has one direction of a binary change only")
        blobs = re.sub(r"^(\w+)\.\.(\w+)", r"\2..\1", self.blobs)
        return replace(
            self,
            kind={"new": "deleted", "deleted": "new"}.get(self.kind, self.kind),
            path=self.source or self.path,
            source=self.path if self.source else "",
            old_mode=self.new_mode,
            new_mode=self.old_mode,
            binary=self.binary[::-1],
            hunks=tuple(hunk.reverse() for hunk in self.hunks),
            blobs=blobs,
        )


@dataclass(frozen=True)
class Patch:
    """The changes of a patch, in the order of its text."""

    changes: tuple[Change, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The paths that the patch reads or writes, sorted."""
        return sorted({name for change in self.changes for name in (change.path, change.source) if name})

    @property
    def text(self) -> str:
        """The patch in git's form."""
        return "".join(change.text() for change in self.changes)

    def only(self, belongs: Callable[[Change], bool]) -> "Patch":
        """Returns a patch with the changes that belong to it."""
        return Patch(tuple(change for change in self.changes if belongs(change)))

    def reverse(self) -> "Patch":
        """Returns the patch that takes this one back. Raises ValueError if the text does not say how."""
        return Patch(tuple(change.reverse() for change in self.changes))


def _with_end(name: str) -> str:
    """Ends a name with a tab if it has spaces, as git does, since GNU patch reads up to the first space."""
    return name + "\t" * (" " in name)


def outside_links(changes: Iterable[Change]) -> list[str]:
    """Returns the paths of new symbolic links that lead out of the repository."""
    return [change.path for change in changes if change.new_mode == LINK and _leads_out(change)]


def _leads_out(change: Change) -> bool:
    target = "".join(line[1:] for hunk in change.hunks for line in hunk.lines if line[0] == "+")
    depth = change.path.count("/")
    for part in target.split("/"):
        depth += (part not in ("", ".")) - 2 * (part == "..")
        if depth < 0 or is_git_folder(part):
            return True
    return target.startswith("/") or not target
