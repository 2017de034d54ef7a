"""Reads the names of files in a patch as paths of the repository."""

import re

_UNSEEN = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that HFS+ ignores in names."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class PatchRefused(ValueError):
    """A patch that is not applied. The message is one line.

    hostile: whether it names a place where no patch may write. Otherwise it cannot be read or applied.
    """

    def __init__(self, why: str, hostile: bool = False):
        super().__init__(why)
        self.hostile = hostile


def path_of(name: str, strip: bool) -> str:
    """Returns a name of a patch as a path of the repository in normal form.

    strip: leave out the first folder. Raises PatchRefused for a place where no patch may write.
    """
    parts = name.split("/")
    shown = repr(name)
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise PatchRefused(f"the patch names a path with a control character: {shown}", hostile=True)
    if name.startswith("/") or ".." in parts:
        raise PatchRefused(f"the patch leaves the repository: {shown}", hostile=True)
    path = [part for part in (parts[1:] if strip and len(parts) > 1 else parts) if part not in ("", ".")]
    if any(map(is_git_folder, re.split(r"[/\\]", name))):
        raise PatchRefused(f"the patch writes into the repository's metadata: {shown}", hostile=True)
    if not path:
        raise PatchRefused(f"the patch names no file: {shown}")
    return "/".join(path)


def is_git_folder(part: str) -> bool:
    """Returns whether some file system takes a part of a path for `.git`."""
    return _UNSEEN.sub("", part).casefold().partition(":")[0].rstrip(". ") in (".git", "git~1")


def unquote(name: str) -> str:
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


def quote(name: str) -> str:
    """Writes a name as git does, with bytes beyond ASCII as they are."""
    escaped = name.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"' if escaped != name else name
