"""Facts about patches: their size, their language, their reverse."""

from collections import Counter

from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch, readable
from swelab.records.task_records import Task

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


def patch_size(patch: str) -> tuple[int, int] | None:
    """Returns (number of added and removed lines, number of files) of a patch, or None if it is refused."""
    try:
        changes = read_patch(patch).changes
    except PatchRefused:
        return None
    return sum(change.size for change in changes), len({change.path for change in changes})


def language(task: Task) -> str:
    """Returns the `language` that the row names, else the language of most lines that its patch changes.
    Returns "" if both are unknown."""
    named = task.get("language") or task.get("repo_language")
    if isinstance(named, str) and named:
        return _ALIASES.get(named.lower(), named.lower())
    counts: Counter[str] = Counter()
    headers = 0
    for change in readable(task.patch).changes:
        suffix = change.path.rpartition(".")[2].lower()
        if suffix in LANGUAGES:
            counts[LANGUAGES[suffix]] += change.size
        headers += change.size if suffix == "h" else 0
    if headers:
        counts["cpp" if counts["cpp"] else "c"] += headers
    return max(sorted(counts), key=lambda name: counts[name], default="")


def reversed_patch(patch: str) -> str:
    """Returns the reverse of a patch. Raises ValueError if the text does not say how."""
    return read_patch(patch).reverse().text
