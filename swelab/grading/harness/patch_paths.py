"""Finds the files that a patch touches, and whether the patch touches a file that no patch may touch.

The text is read by the rules of both `git apply` and GNU patch. A name counts if either program could write
to that file.
"""

import re
from collections.abc import Iterable, Iterator

from swelab.files.text_lines import lines_of
from swelab.tasks.patch_text import HUNK

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NAME_LINES = ("rename to ", "rename from ", "copy to ", "copy from ", "Index: ")
_SUBMODULE_MODES = ("new file mode 160000", "new mode 160000")


def header_lines(patch: str) -> Iterator[str]:
    """Yields the lines of a patch outside its hunks.

    Removes carriage returns, as GNU patch does.
    """
    before = after = 0
    for line in lines_of(patch):
        if before > 0 or after > 0:
            mark = line[:1]
            if mark in ("-", " ", ""):
                before -= 1
            if mark in ("+", " ", ""):
                after -= 1
            if mark in ("-", "+", " ", "", "\\"):
                continue
            before = after = 0
        if found := HUNK.match(line):
            before, after = (int(count) if count else 1 for count in found.groups())
            continue
        yield line.removesuffix("\r")


def touched_paths(patch: str) -> list[str]:
    """Returns the paths that a patch reads or writes, relative to the repository's root, without `a/` and
    `b/`.
    """
    return sorted({_strip(name) for name in _names(header_lines(patch))} - {"dev/null"})


def refusal(patch: str) -> str:
    """Returns why a patch is refused, or "".

    A patch is refused if it would write outside the repository or into .git, or if it adds a submodule.
    """
    headers = list(header_lines(patch))
    for name in _names(headers):
        parts = name.split("/")
        if name == "/dev/null":
            continue
        if name.startswith(("/", "~")) or ".." in parts:
            return f"the patch leaves the repository: {name!r}"
        if any(part.lower() in (".git", "git~1") for part in parts):
            return f"the patch writes into the repository's metadata: {name!r}"
        if any(ord(char) < 32 or ord(char) == 127 for char in name):
            return f"the patch names a path with a control character: {name!r}"
    if any(line.startswith(_SUBMODULE_MODES) for line in headers):
        return "the patch adds a submodule"
    return ""


def only(patch: str, paths: set[str]) -> str:
    """Returns the parts of a git patch whose file is among `paths`."""
    parts = re.split(r"(?m)^(?=diff --git )", patch)
    return "".join(part for part in parts if set(touched_paths(part)) & paths)


def without(patch: str, paths: set[str]) -> str:
    """Returns a git patch without the parts whose file is among `paths`."""
    parts = re.split(r"(?m)^(?=diff --git )", patch)
    return "".join(part for part in parts if not set(touched_paths(part)) & paths)


def _names(headers: Iterable[str]) -> Iterator[str]:
    for line in headers:
        if line.startswith(("--- ", "+++ ")):
            yield _unquote(line[4:].split("\t")[0].rstrip())
        elif line.startswith("diff --git "):
            yield from _git_names(line[len("diff --git ") :])
        else:
            for start in _NAME_LINES:
                if line.startswith(start):
                    yield "a/" + _unquote(line[len(start) :].rstrip()).lstrip()


def _git_names(rest: str) -> Iterator[str]:
    # An unclosed quotation runs to the end of the line. All of it is skipped in one step, for linear time.
    quoted = [name for name in re.findall(r'("[^"\\]*+(?:\\.[^"\\]*+)*")|".*', rest) if name]
    if quoted:
        yield from map(_unquote, quoted)
    names, cut, other = rest.partition(" b/")
    if cut and not quoted:
        yield names
        yield "b/" + other


def _strip(name: str) -> str:
    return name.partition("/")[2] or name


def _unquote(name: str) -> str:
    """Decodes a name as git writes it: in double quotes with C escapes if the name has unusual bytes."""
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name
    out = bytearray()
    for octal, escape, char in re.findall(r"\\([0-7]{3})|\\(.)|([^\\])", name[1:-1]):
        if octal:
            out.append(int(octal, 8) & 0xFF)
        else:
            out += (_ESCAPES.get(escape, escape) if escape else char).encode("utf-8", "surrogateescape")
    return out.decode("utf-8", "surrogateescape")
