"""Applies patches from outside in trusted trees on this machine, and runs git there."""

import os
import re
import subprocess
from pathlib import Path

from swelab.records.patch_contents import Files, resolve
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch
from swelab.records.patches import outside_links

GIT_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "swelab",
    "GIT_AUTHOR_EMAIL": "swelab@localhost",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "swelab",
    "GIT_COMMITTER_EMAIL": "swelab@localhost",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
}

_HALF_CHARACTER = re.compile("[\ud800-\udc7f\udd00-\udfff]")

# All blobs go into one pack, so that a copy of a checkout has a few files and not hundreds.
GIT = ("git", "-c", "core.fsync=none", "-c", "maintenance.auto=false", "-c", "core.bigFileThreshold=1")


def git(tree: Path, *arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Runs git in a trusted `tree` with a fixed identity, date and configuration. Does not raise."""
    return subprocess.run([*GIT, *arguments], cwd=tree, env=GIT_ENVIRONMENT, input=data, capture_output=True)


def apply_patch(
    tree: Path, text: str, *options: str, reverse: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Applies a patch from outside in a `tree` of plain files, by `git apply`. Does not raise if git fails.

    Git sees only what the patch's text says of files in `tree`. reverse: take the patch back. Raises
    PatchRefused, also for a symbolic link that leads out of `tree`.
    """
    patch = read_patch(text)
    if links := outside_links(patch.changes):
        raise PatchRefused(f"the link {links[0]!r} leads out of the repository", hostile=True)
    try:
        patch = patch.reverse() if reverse else patch
    except ValueError as fault:
        raise PatchRefused(f"it cannot be taken back: {fault}") from None
    data = encode_patch(resolve(patch, lambda names: _plain_files(tree, names)).text)
    return git(tree, "apply", "--whitespace=nowarn", *options, "-", data=data)


def _plain_files(tree: Path, names: list[str]) -> Files:
    """Returns those of the files that are plain files below `tree`. Follows no link."""
    root = tree.resolve()
    places = {name: root / name for name in names}
    return {
        name: (place.read_bytes(), os.access(place, os.X_OK))
        for name, place in places.items()
        if place.is_file() and place.resolve() == place
    }


def encode_patch(text: str) -> bytes:
    """Encodes a patch. The inverse of `decode_patch`.

    `decode_patch` turns bytes that are not UTF-8 into lone surrogates. Here they become the same bytes again.
    A text that is not a result of `decode_patch` (see `is_encodable`) gets bytes that no other text gets.
    """
    return text.encode("utf-8", "surrogateescape" if is_encodable(text) else "surrogatepass")


def is_encodable(text: str) -> bool:
    """Returns whether `decode_patch` can return this text: its only lone surrogates are U+DC80 to U+DCFF."""
    return not _HALF_CHARACTER.search(text)


def decode_patch(data: bytes) -> str:
    """Decodes a patch. The inverse of `encode_patch`."""
    return data.decode("utf-8", "surrogateescape")
