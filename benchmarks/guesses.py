"""What a guesser could say in a question: values in sight, each by itself and a little changed.

A guess is a source (the bug's value, a constant of the statement, another value of the test) and a change
(one more, negated, reversed, without its last item). Values are canonical plain data.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from swelab.witness.changes import CHANGES, changed, made
from swelab.witness.emitted import Data

_TRIED = (None, True, False, 0, 1, -1, 2, "", [], (), {}, set(), b"")
_ERRORS = "ValueError TypeError KeyError AttributeError IndexError RuntimeError NotImplementedError".split()


@dataclass
class Sight:
    """What is in sight at one operand: the value of the bug there (None: none), constants of its statement,
    other values that the bug emits in the test, constants of the test and of the file with the bug."""

    bug: Data | None
    statement: list[Data]
    others: list[Data] = field(default_factory=list)
    constants: list[Data] = field(default_factory=list)
    raises: bool = False


Rule = tuple[str, str]
"""(source, change) by name."""


def rules() -> Iterator[Rule]:
    """All rules, likely ones first."""
    sources = ["bug", *(f"statement {at}" for at in range(4)), *(f"tried {at}" for at in range(len(_TRIED)))]
    yield from ((source, "same") for source in sources)
    yield from (("bug", change) for change in CHANGES)
    yield from ((f"error {name}", "same") for name in (*_ERRORS, "all"))
    sources = [f"statement {at}" for at in range(4)] + [f"other {at}" for at in range(6)]
    yield from itertools.product([*sources, "constant"], CHANGES)


def value(rule: Rule, sight: Sight, draw: random.Random) -> Data | None:
    """The value that a rule gives at an operand; None where it gives none."""
    source = _source(rule[0], sight, draw)
    if source is None:
        return None
    return changed(source, rule[1])


def _source(name: str, sight: Sight, draw: random.Random) -> Data | None:
    word, _, rest = name.partition(" ")
    if word == "bug":
        return sight.bug
    if word == "error":
        return _error(rest) if sight.raises else sight.bug
    if word == "tried":
        return made(_TRIED[int(rest)])
    if word == "constant":
        return draw.choice(sight.constants) if sight.constants else None
    held = sight.statement if word == "statement" else sight.others
    return held[int(rest)] if int(rest) < len(held) else None


def _error(name: str) -> Data:
    """An exception of a class, or of one that inherits from all."""
    bases = [f"builtins.{each}" for each in (_ERRORS if name == "all" else [name])]
    ends = ["builtins.Exception", "builtins.BaseException"]
    return ["E", "guess.Error" if name == "all" else bases[0], [*bases, *ends], ["t", []], ["s", ""]]
