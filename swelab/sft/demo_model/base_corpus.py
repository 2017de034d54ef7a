"""Generates documents to pre-train the demo's base model, about functions like those of the drill package.

A document begins with a note on one function, worded like an issue. One of these parts follows: the names of
the function and its test; a shell line that searches for the function, runs its test or substitutes text; or
a hunk of a diff. A listing of the function comes before a substitution or a hunk. There is no conversation,
no fenced block, no second step. No task has one of these functions or bugs. Names of functions in held-out
tasks do not occur.
"""

import io
import random
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from swelab.models.chat.sed_edit import substitution
from swelab.records import InputError
from swelab.tasks.drill_text import (
    MODULES,
    NOUNS,
    PACKAGES,
    SHAPES,
    VERBS,
    Function,
    Mutation,
    issue,
    make_function,
)
from swelab.tasks.split import side_of

KINDS = {"index": 0.1, "search": 0.22, "test_run": 0.08, "hunk": 0.12, "substitution": 0.48}
"""Share of each kind of document."""
TEXT_SHAPES = (*SHAPES, "compare", "scale")
"""Shapes of the functions in the text. Shapes that need copies from two places appear more often."""
LISTED = 3
"""Number of lines of a listing, as `grep -A2` prints them."""
LAST_LINE = 40
REMARKS = (
    "So:",
    "Edit:",
    "Shell:",
    "Listing:",
    "Change one line.",
    "Found by a test.",
    "1 of 2",
    "Noted on day 3, not yet mended.",
    "One test of 8 fails.",
    "",
)
REMARK_COUNTS = (0, 0, 0, 1, 1, 2)
"""Numbers of filler lines between the parts of a document.
Without such lines the model learns to copy from fixed distances only."""
LEXICON = (
    "system\nuser\nassistant\nexit 0\nexit 1\n",
    "Fix the bug. Answer with one bash block.\nAnswer with exactly one bash block.",
    "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```",
    "........".ljust(72) + " [100%]\n",
)
"""Texts from the agent's prompts and outputs. They train the tokenizer, but no document contains them."""
_DEFINITION = re.compile(rb"^def (\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """One document of the corpus: a note, a listing of code (or ""), then one line or hunk.
    values: (start, end) of each span of the line with the full loss weight. () means the whole line."""

    note: str
    listing: str
    line: str
    values: tuple[tuple[int, int], ...] = ()

    def asks(self, start: int, end: int) -> bool:
        """Returns whether the characters from `start` to `end` of the line lie in one of the `values`."""
        return not self.values or any(first <= start and end <= last for first, last in self.values)

    @property
    def text(self) -> str:
        """The whole document."""
        return self.note + self.listing + self.line


class World:
    """The paths and function names that the generated text uses. Names in held-out tasks are excluded."""

    def __init__(self, archive: bytes, repo: str, heldout_share: float):
        """archive: the drill repository's tar. repo: name of the repository's recipe. Raises InputError."""
        self.heldout: frozenset[str] = frozenset(
            name
            for path, name in functions_in(archive, repo)
            if side_of(repo, f"{path}::{name}", heldout_share) == "heldout"
        )
        names = (f"{verb}_{noun}" for verb in VERBS for noun in NOUNS)
        self.names = [name for name in names if name not in self.heldout]
        self.paths = [f"{package}/{module}.py" for package in PACKAGES for module in MODULES]

    def documents(self, seed: int, count: int) -> Iterator[Document]:
        """Yields `count` documents. The same seed gives the same documents."""
        rng = random.Random(seed)
        for _ in range(count):
            function = make_function(
                rng, rng.choice(self.names), rng.choice(self.paths), rng.choice(TEXT_SHAPES)
            )
            yield document(rng, function, rng.choice(function.mutations))

    def lexicon(self) -> list[str]:
        """Returns copies of LEXICON, which train only the tokenizer."""
        return [text for text in LEXICON for _ in range(50)]


def functions_in(archive: bytes, name: str) -> list[tuple[str, str]]:
    """Returns (path, name) of every function in the archive's modules. Raises InputError."""
    definitions = []
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                stream = tar.extractfile(member)
                path = own_path(member.name)
                if stream and path.endswith(".py") and not path.startswith(("tests/", "test_")):
                    definitions += [(path, match.decode()) for match in _DEFINITION.findall(stream.read())]
    except (tarfile.TarError, OSError) as error:
        raise InputError(
            f"not a usable archive: {error}", name, "the archive of a drill repository"
        ) from None
    if not definitions:
        raise InputError("defines no function", name, "the archive of a drill repository")
    return definitions


def own_path(member: str) -> str:
    """Converts the path of a file in the archive to its path in a task.
    A program of two files has its own folder in the archive. Paths in tasks omit that folder."""
    folder, _, name = member.rpartition("/")
    return name if folder and name in (f"{folder}.py", f"test_{folder}.py") else member


def document(rng: random.Random, function: Function, mutation: Mutation) -> Document:
    """Generates a document about a bug in a function."""
    note = issue(rng, function, mutation) + "\n" + remarks(rng)
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "index":
        return Document(note, "", f"{function.identity} {function.test}\n")
    if kind == "search":
        return Document(note, "", f"grep -n -A2 'def {function.name}' {function.path}\n")
    if kind == "test_run":
        return Document(note, "", f"python -m pytest -qq {function.test_file}\n")
    start = rng.randint(1, LAST_LINE)
    at = 1 + mutation.line
    buggy, clean = function.lines(mutation), function.lines()
    listed = listing(buggy, start) + remarks(rng)
    if kind == "hunk":
        return Document(note, listed, f"@@ -{start + at} +{start + at} @@\n-{buggy[at]}\n+{clean[at]}\n")
    expression = substitution(buggy[at], clean[at])
    return Document(note, listed, f"sed -i '{start + at}{expression}' {function.path}\n")


def remarks(rng: random.Random) -> str:
    """Returns zero or more random lines that fill space between parts."""
    return "".join(f"{rng.choice(REMARKS)}\n" for _ in range(rng.choice(REMARK_COUNTS)))


def listing(lines: list[str], start: int) -> str:
    """Formats a function's first `LISTED` lines as `grep -n` prints them.
    Appends a blank line to a function that has fewer lines."""
    padded = (lines + [""])[:LISTED]
    return "".join(f"{start + i}{'-' if i else ':'}{text}\n" for i, text in enumerate(padded))
