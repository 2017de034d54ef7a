"""What a patch's text says it touches, and what it may never touch.

The text is read with the rules of `git apply` and of GNU patch at once: a name counts when either program
could take it for a file to write.
"""

import re
from collections.abc import Iterator

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NAME_LINES = ("rename to ", "rename from ", "copy to ", "copy from ", "Index: ")
_LINK_MODES = ("new file mode 120000", "new mode 120000")
_SUBMODULE_MODES = ("new file mode 160000", "new mode 160000")


def header_lines(patch: str) -> Iterator[str]:
    """The lines of a patch that are not inside a hunk."""
    before = after = 0
    for line in patch.splitlines():
        if before > 0 or after > 0:
            mark = line[:1]
            if mark in ("-", " ", ""):
                before -= 1
            if mark in ("+", " ", ""):
                after -= 1
            if mark in ("-", "+", " ", "", "\\"):
                continue
            before = after = 0
        if found := _HUNK.match(line):
            before, after = (int(count) if count else 1 for count in found.groups())
            continue
        yield line


def touched_paths(patch: str) -> list[str]:
    """Paths that a patch reads or writes, as they are under the repository's root (`a/` and `b/` cut off)."""
    return sorted({_stripped(name) for name in _names(patch)} - {"dev/null"})


def refusal(patch: str) -> str:
    """Why a patch is not even tried: it would write outside the repository or into .git; else ""."""
    for name in _names(patch):
        parts = name.split("/")
        if name == "/dev/null":
            continue
        if name.startswith(("/", "~")) or ".." in parts:
            return f"the patch leaves the repository: {name!r}"
        if any(part.lower() in (".git", "git~1") for part in parts):
            return f"the patch writes into the repository's metadata: {name!r}"
        if any(ord(char) < 32 or ord(char) == 127 for char in name):
            return f"the patch names a path with a control character: {name!r}"
    if any(line.startswith(_SUBMODULE_MODES) for line in header_lines(patch)):
        return "the patch adds a submodule"
    return ""


def adds_symlink(patch: str) -> bool:
    """Whether a patch says that it makes a symbolic link."""
    return any(line.startswith(_LINK_MODES) for line in header_lines(patch))


def only(patch: str, paths: set[str]) -> str:
    """The parts of a git patch whose file is among `paths`."""
    parts = re.split(r"(?m)^(?=diff --git )", patch)
    return "".join(part for part in parts if set(touched_paths(part)) & paths)


def reversed_patch(patch: str) -> str:
    """The patch that takes a text patch back. Raises ValueError on a binary one."""
    if "GIT binary patch" in patch:
        raise ValueError("a binary patch")
    out, old_name, before, after = [], "", 0, 0
    for line in patch.splitlines():
        if before > 0 or after > 0:
            mark = line[:1]
            before -= mark in ("-", " ", "")
            after -= mark in ("+", " ", "")
            out.append({"-": "+", "+": "-"}.get(mark, mark) + line[1:])
        elif found := _HUNK.match(line):
            before, after = (int(count) if count else 1 for count in found.groups())
            old, new = re.findall(r"[-+](\d+(?:,\d+)?)", line[: found.end()])
            out.append(f"@@ -{new} +{old} @@{line[found.end() :]}")
        elif line.startswith("--- "):
            old_name = _other_side(line[4:], "a/", "b/")
        elif line.startswith("+++ "):
            out += ["--- " + _other_side(line[4:], "b/", "a/"), "+++ " + old_name]
        else:
            out.append(_reversed_header(line))
    return "\n".join(out) + "\n"


def _reversed_header(line: str) -> str:
    for one, other in (
        ("rename from ", "rename to "),
        ("new file", "deleted file"),
        ("old mode", "new mode"),
    ):
        if line.startswith(one):
            return other + line[len(one) :]
        if line.startswith(other):
            return one + line[len(other) :]
    if found := re.fullmatch(r"index (\w+)\.\.(\w+)(.*)", line):
        return f"index {found[2]}..{found[1]}{found[3]}"
    return line


def _other_side(name: str, mine: str, theirs: str) -> str:
    return theirs + name[len(mine) :] if name.startswith(mine) else name


def _names(patch: str) -> Iterator[str]:
    for line in header_lines(patch):
        if line.startswith(("--- ", "+++ ")):
            yield _unquoted(line[4:].split("\t")[0].rstrip())
        elif line.startswith("diff --git "):
            yield from _git_names(line[len("diff --git ") :])
        else:
            for start in _NAME_LINES:
                if line.startswith(start):
                    yield "a/" + _unquoted(line[len(start) :].rstrip()).lstrip()


def _git_names(rest: str) -> Iterator[str]:
    quoted = re.findall(r'"(?:[^"\\]|\\.)*"', rest)
    if quoted:
        yield from map(_unquoted, quoted)
    names, cut, other = rest.partition(" b/")
    if cut and not quoted:
        yield names
        yield "b/" + other


def _stripped(name: str) -> str:
    return name.partition("/")[2] or name


def _unquoted(name: str) -> str:
    """A name as git writes it: in double quotes with C escapes where it holds odd bytes."""
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name
    out = bytearray()
    for octal, escape, char in re.findall(r"\\([0-7]{3})|\\(.)|([^\\])", name[1:-1]):
        if octal:
            out.append(int(octal, 8) & 0xFF)
        else:
            out += (_ESCAPES.get(escape, escape) if escape else char).encode("utf-8", "surrogateescape")
    return out.decode("utf-8", "surrogateescape")
