"""Matches patterns in the syntax of .gitignore, as in `.debugignore` and `.debugreadonly`."""

import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from swelab.records import InputError, shorten
from swelab.tasks.patch_application import git


def matching(patterns: str, paths: Iterable[str], where: str) -> set[str]:
    """Returns the paths that the patterns match, by git's rules. Raises InputError for invalid patterns."""
    kept = [line for line in patterns.splitlines() if line.strip() and not line.startswith("#")]
    return set(_matching("\n".join(kept), tuple(sorted(paths)), where)) if kept else set()


@lru_cache(1024)
def _question(patterns: str, paths: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Returns (git's complaint or "", the paths that match).
    The result is cached, because most tasks of a set have the same patterns."""
    with tempfile.TemporaryDirectory(prefix="swelab-ignore-") as folder:
        tree = Path(folder)
        git(tree, "init", "-q", "--template=")
        (tree / ".git" / "info").mkdir(exist_ok=True)
        (tree / ".git" / "info" / "exclude").write_text(patterns + "\n", encoding="utf-8")
        given = "".join(f"{path}\0" for path in paths).encode()
        done = git(tree, "check-ignore", "--no-index", "--stdin", "-z", data=given)
    if done.returncode not in (0, 1):
        return shorten(done.stderr.decode(errors="replace")), ()
    return "", tuple(path for path in done.stdout.decode(errors="replace").split("\0") if path)


def _matching(patterns: str, paths: tuple[str, ...], where: str) -> tuple[str, ...]:
    complaint, found = _question(patterns, paths)
    if complaint:
        raise InputError(f"its patterns cannot be read: {complaint}", where, "lines as in .gitignore")
    return found
