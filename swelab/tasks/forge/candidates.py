"""Generates candidate bugs of a repository in a seeded order.
The order does not depend on how many candidates are used."""

import ast
import difflib
import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from swelab.files import python_syntax
from swelab.tasks.forge.operators import OPERATORS
from swelab.tasks.forge.source import Edit, Source, apply_edits, body_nodes
from swelab.tasks.split import bug_hash

CONTEXT = 3
"""Number of context lines in a diff, as many as git shows."""


@dataclass(frozen=True)
class Candidate:
    """One possible bug.

    function: "path::Qual.name" of the outermost function. line: line number of its `def`. lines: number of
    its lines, decorators excluded. before, after: the
    changed lines. patch: a git patch that introduces the bug.
    """

    path: str
    function: str
    line: int
    lines: int
    op: str
    edits: tuple[Edit, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    patch: str
    bug: str

    @property
    def qualified_name(self) -> str:
        """`Qual.name` of the function without its path, such as "Stack.push"."""
        return self.function.partition("::")[2]


def read_sources(tree: Path, targets: Iterable[str]) -> dict[str, Source]:
    """Parses the files of `tree` that match a pattern of `targets`. Maps paths to sources.
    Raises InputError."""
    paths = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.py") if path.is_file())
    return {
        path: Source(path, (tree / path).read_bytes())
        for path in paths
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in targets)
    }


def candidates(source: Source, operators: Iterable[str]) -> Iterator[Candidate]:
    """Yields all candidates of one file, in source order."""
    for name, function in source.functions():
        seen = set()
        for node in body_nodes(function):
            for op in operators:
                for edits in OPERATORS[op](source, node):
                    if edits not in seen and not _at_open_end(source, edits):
                        seen.add(edits)
                        place = (
                            function.lineno,
                            (function.end_lineno or function.lineno) - function.lineno + 1,
                        )
                        yield _candidate(source, name, place, op, edits)


def seeded_order(
    sources: Iterable[Source], operators: Iterable[str], seed: int
) -> tuple[list[Candidate], int]:
    """Returns the candidates of a repository in seeded order, and the number of ambiguous candidates.

    Operators take turns. If bugs in two functions have the same hash, they are ambiguous. They are excluded,
    because one could be a training task and the other a held-out task.
    """
    operators = tuple(operators)
    found = [candidate for source in sources for candidate in candidates(source, operators)]
    homes = {(c.bug, c.function) for c in found}
    ambiguous = {bug for bug, count in Counter(bug for bug, _ in homes).items() if count > 1}
    unique = {c.bug: c for c in reversed(found) if c.bug not in ambiguous}

    def draw(candidate: Candidate) -> str:
        return hashlib.sha256(f"{seed}\n{candidate.op}\n{candidate.bug}".encode()).hexdigest()

    by_op: dict[str, list[Candidate]] = {}
    for candidate in sorted(unique.values(), key=draw):
        by_op.setdefault(candidate.op, []).append(candidate)
    turns = [(turn, draw(c), c) for group in by_op.values() for turn, c in enumerate(group)]
    return [c for _, _, c in sorted(turns, key=lambda t: t[:2])], len(ambiguous)


def with_companions(
    ordered: list[Candidate], sources: Mapping[str, Source], most: int, seed: int
) -> Iterator[Candidate]:
    """Yields each candidate together with others of its function, as one bug of 1 to `most` mutations.

    The number of mutations is drawn. They change different lines. A function with too few mutations gets
    fewer.
    """
    homes: dict[str, list[Candidate]] = {}
    for candidate in ordered:
        homes.setdefault(candidate.function, []).append(candidate)
    for lead in ordered:
        source, draw = sources[lead.path], int(hashlib.sha256(f"{seed}\n{lead.bug}".encode()).hexdigest(), 16)
        group, others = [lead], homes[lead.function]
        turn = draw // most % len(others)
        for other in others[turn:] + others[:turn]:
            if len(group) > draw % most:
                break
            if all(_are_apart(source, other.edits, member.edits) for member in group):
                group.append(other)
        if len(group) == 1:
            yield lead
        else:
            edits = tuple(sorted(edit for member in group for edit in member.edits))
            place = lead.line, lead.lines
            yield _candidate(source, lead.qualified_name, place, "combined", edits)


def _are_apart(source: Source, one: tuple[Edit, ...], two: tuple[Edit, ...]) -> bool:
    """Returns whether two mutations change different lines."""
    (low, high), (other_low, other_high) = _changed_lines(source, one), _changed_lines(source, two)
    return high < other_low or other_high < low


def _changed_lines(source: Source, edits: tuple[Edit, ...]) -> tuple[int, int]:
    """Returns the indexes (from 0) of the first and the last changed line."""
    first = source.line_of(min(edit.start for edit in edits))
    return first, source.line_of(max(max(edit.end - 1, edit.start) for edit in edits))


def rejects(source: Source, candidate: Candidate) -> str:
    """Checks a candidate without running it. Returns "", or why it is no bug: "syntax" or "no_change"."""
    try:
        mutated = python_syntax.parse_python(source.apply(candidate.edits))
        compile(mutated, candidate.path, "exec")
    except (SyntaxError, ValueError):
        return "syntax"
    return "no_change" if ast.dump(mutated) == ast.dump(source.tree) else ""


def _at_open_end(source: Source, edits: tuple[Edit, ...]) -> bool:
    """Returns whether the file has no newline at its end, and a diff would show that end.
    Such bugs are excluded."""
    return not source.newline_at_end and source.line_of(max(e.end for e in edits)) + CONTEXT + 2 >= len(
        source.starts
    )


def _candidate(
    source: Source, name: str, place: tuple[int, int], op: str, edits: tuple[Edit, ...]
) -> Candidate:
    """place: line number of the function's `def`, and the number of its lines."""
    first, last = _changed_lines(source, edits)
    low, high = max(first - CONTEXT, 0), min(last + 1 + CONTEXT, len(source.starts) - 1)
    start, end = source.starts[low], source.starts[high]
    old = _lines(source.data[start:end])
    shifted = tuple(Edit(e.start - start, e.end - start, e.text) for e in edits)
    new = _lines(apply_edits(source.data[start:end], shifted))
    hunk = list(difflib.unified_diff(old, new, n=CONTEXT))[2:]
    patch = _header(source.path) + "".join(_shift(line, low) for line in hunk)
    before = tuple(text[1:].strip() for text in hunk if text.startswith("-"))
    after = tuple(text[1:].strip() for text in hunk if text.startswith("+"))
    return Candidate(
        source.path,
        f"{source.path}::{name}",
        *place,
        op,
        edits,
        before,
        after,
        patch,
        bug_hash(patch),
    )


def _lines(data: bytes) -> list[str]:
    return [line + "\n" for line in data.decode("utf-8").split("\n")[:-1]]


def _header(path: str) -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"


def _shift(line: str, by: int) -> str:
    """Shifts the line numbers in a hunk's header by `by`. Other lines are unchanged."""
    if not line.startswith("@@ "):
        return line
    return re.sub(r"(?<=[-+])(\d+)", lambda number: str(int(number[0]) + by), line)
