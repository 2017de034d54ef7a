"""Reads unified diffs as text: which files they change, by how many lines, in which language."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from swelab.records.patch_reader import read_patch
from swelab.records.task_records import Task

HUNK = re.compile(r"@@ -\d{1,18}+(?:,(\d{1,18}+))? \+\d{1,18}+(?:,(\d{1,18}+))? @@")
_HEADS = ("@@ ", "diff --git ", "--- ", "+++ ")
_SUFFIXES = {
    "c": "c",
    "cpp": "cc cpp cxx c++ hh hpp hxx",
    "csharp": "cs",
    "go": "go",
    "java": "java",
    "javascript": "js jsx mjs cjs vue",
    "kotlin": "kt kts",
    "php": "php",
    "python": "py pyi pyx",
    "ruby": "rb",
    "rust": "rs",
    "scala": "scala",
    "swift": "swift",
    "typescript": "ts tsx mts cts",
}
LANGUAGES = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
"""Maps a file suffix to its language. The language of `h` depends on the other files."""
_ALIASES = {
    "c++": "cpp",
    "c#": "csharp",
    "js": "javascript",
    "py": "python",
    "rs": "rust",
    "ts": "typescript",
}


@dataclass
class FileChange:
    """One file of a patch: its name and the lines of its hunks.

    The name is the one after the change, or before the change if the file is removed. `lines` are (mark,
    text), with "-" for removed, "+" for added and " " for unchanged lines.
    """

    path: str
    lines: list[tuple[str, str]] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """Lines added and removed."""
        return sum(mark != " " for mark, _ in self.lines)


def file_changes(patch: str) -> Iterator[FileChange]:
    """Yields the files of a patch in order. Files without hunks (renamed, binary) have no lines."""
    current, before, after = FileChange(""), 0, 0
    for line in patch.split("\n"):
        if before > 0 or after > 0:
            mark = line[:1] or " "
            if mark in "-+ ":
                current.lines.append((mark, line[1:]))
                before -= mark != "+"
                after -= mark != "-"
        elif not line.startswith(_HEADS):
            continue
        elif found := HUNK.match(line):
            before, after = (int(count) if count else 1 for count in found.groups())
        elif line.startswith("diff --git ") or (line.startswith("--- ") and current.lines):
            if current.path:
                yield current
            current = FileChange(_last_name(line))
        elif line.startswith(("--- ", "+++ ")) and not line.startswith(("--- /dev/null", "+++ /dev/null")):
            current.path = _name(line[4:])
    if current.path:
        yield current


def patch_size(patch: str) -> tuple[int, int]:
    """Returns (number of added and removed lines, number of files) of a patch."""
    files = list(file_changes(patch))
    return sum(file.changed for file in files), len({file.path for file in files})


def language(task: Task) -> str:
    """Returns the `language` that the row names, else the language of most lines that its patch changes.
    Returns "" if both are unknown."""
    named = task.get("language") or task.get("repo_language")
    if isinstance(named, str) and named:
        return _ALIASES.get(named.lower(), named.lower())
    counts: Counter[str] = Counter()
    headers = 0
    for file in file_changes(task.patch):
        suffix = file.path.rpartition(".")[2].lower()
        if suffix in LANGUAGES:
            counts[LANGUAGES[suffix]] += file.changed
        headers += file.changed if suffix == "h" else 0
    if headers:
        counts["cpp" if counts["cpp"] else "c"] += headers
    return max(sorted(counts), key=lambda name: counts[name], default="")


def _last_name(line: str) -> str:
    """Returns the name after the change, from a line `diff --git a/name b/name`, or "" for other lines."""
    return _name(line.rpartition(" b/")[2]) if line.startswith("diff --git ") and " b/" in line else ""


def _name(text: str) -> str:
    name = text.split("\t")[0].strip()
    return name[2:] if name.startswith(("a/", "b/")) else name


def reversed_patch(patch: str) -> str:
    """Returns the reverse of a patch. Raises ValueError if the text does not say how."""
    return read_patch(patch).reverse().text
