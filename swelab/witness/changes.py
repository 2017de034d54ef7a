"""Applies simple changes to plain values.

If such a change of a visible value gives the correct value, the correct value is easy to guess. Often one
change gives all values of a test.
"""

import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from swelab.witness.emitted import Data
from swelab.witness.relations import number
from swelab.witness.visible_constants import canon

FAILS = (*(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),)
"""Exceptions that mean that a change cannot be applied."""

_MAKE: dict[str, Callable[[Any], Any]] = {"l": list, "t": tuple, "q": list, "S": set}


def data_of(thing: Any) -> Data:
    """Returns a Python value as canonical data."""
    data: Data = canon().of(thing)
    return data


def python(data: Data) -> Any:
    """Returns plain data as a Python value. Raises ValueError for other data."""
    kind = data[0]
    if kind == "n":
        return None
    if kind == "b":
        return data[1]
    if kind in ("i", "f"):
        return number(data)
    if kind == "s":
        return data[1]
    if kind == "y":
        return bytes.fromhex(data[1])
    if kind in _MAKE:
        return _MAKE[kind](map(python, data[1]))
    if kind == "d":
        return {python(key): python(each) for key, each in data[1]}
    raise ValueError(kind)


def apply_change(data: Data, name: str) -> Data | None:
    """Applies the change with this name to data. Returns None if the change cannot be applied."""
    if name == "same":
        return data
    try:
        return _apply(data, CHANGES[name])
    except FAILS:
        return None


def _apply(data: Data, change: Callable[[Any], Any]) -> Data | None:
    if data[0] == "O":  # change the first attribute to which the change applies
        for at, (name, held) in enumerate(data[2]):
            try:
                new = _apply(held, change)
            except FAILS:
                continue
            if new is not None and new != held:
                return [*data[:2], [*data[2][:at], [name, new], *data[2][at + 1 :]], *data[3:]]
        return None
    return data_of(change(python(data)))


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function that applies `change` to each item of a collection."""

    def of(thing: Any) -> Any:
        if isinstance(thing, dict):
            return {key: change(held) for key, held in thing.items()}
        if isinstance(thing, list | tuple | set):
            return type(thing)(map(change, thing))
        raise TypeError

    return of


def _text(change: Callable[[str], Any]) -> Callable[[Any], Any]:
    def of(thing: Any) -> Any:
        if not isinstance(thing, str):
            raise TypeError
        return change(thing)

    return of


def _sum(thing: Any, more: float) -> Any:
    if isinstance(thing, bool):
        raise TypeError
    return thing + more


_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "negated": lambda thing: not thing if isinstance(thing, bool) else -thing,
    "one more": lambda thing: _sum(thing, 1),
    "one less": lambda thing: _sum(thing, -1),
    "two more": lambda thing: _sum(thing, 2),
    "two less": lambda thing: _sum(thing, -2),
    "doubled": lambda thing: thing * 2,
    "halved": lambda thing: thing // 2,
    "absolute": lambda thing: abs(thing),
    "as text": str,
    "as number": lambda thing: float(thing) if "." in str(thing) else int(thing),
    "truth": bool,
    "no truth": lambda thing: not thing,
}
_TEXTS: dict[str, Callable[[Any], Any]] = {
    "lower": _text(str.lower),
    "upper": _text(str.upper),
    "title": _text(str.title),
    "capital": _text(str.capitalize),
    "stripped": _text(str.strip),
    "with line end": _text(lambda text: text + "\n"),
    "dashes": _text(lambda text: text.replace("_", "-")),
    "underscores": _text(lambda text: text.replace("-", "_").replace(" ", "_")),
    "spaces": _text(lambda text: text.replace("_", " ").replace("-", " ")),
    "no spaces": _text(lambda text: text.replace(" ", "")),
    "plural": _text(lambda text: text + "s"),
    "words": _text(str.split),
    "bytes": _text(str.encode),
}
_WHOLE: dict[str, Callable[[Any], Any]] = {
    "reversed": lambda thing: thing[::-1],
    "sorted": sorted,
    "sorted downwards": lambda thing: sorted(thing, reverse=True),
    "without last": lambda thing: thing[:-1],
    "without first": lambda thing: thing[1:],
    "without both ends": lambda thing: thing[1:-1],
    "first": lambda thing: thing[0],
    "last": lambda thing: thing[-1],
    "length": len,
    "least": min,
    "most": max,
    "sum": sum,
    "once each": lambda thing: type(thing)(dict.fromkeys(thing)),
    "twice": lambda thing: thing + thing,
    "as list": list,
    "as tuple": tuple,
    "as set": set,
    "as dict": dict,
    "in a list": lambda thing: [thing],
    "in a tuple": lambda thing: (thing,),
    "turned over": lambda thing: {held: key for key, held in thing.items()},
    "keys": lambda thing: list(thing.keys()),
    "items": lambda thing: list(thing.items()),
    "flat": lambda thing: type(thing)(itertools.chain.from_iterable(thing)),
    "no Nones": lambda thing: type(thing)(each for each in thing if each is not None),
    "what is true": lambda thing: type(thing)(each for each in thing if each),
}
CHANGES: dict[str, Callable[[Any], Any]] = {"same": lambda thing: thing, **_NUMBERS, **_WHOLE, **_TEXTS}
CHANGES |= {f"each {name}": _each(change) for name, change in (_NUMBERS | _TEXTS | _WHOLE).items()}


class Guesses:
    """Applies simple changes to a test's visible values, to find a change that gives a certain value."""

    def __init__(self, shown: Sequence[Data]):
        self._effects: dict[str, tuple[str, float]] = {}
        for name, bits in _COST.items():
            for data in shown if name != "same" else ():
                made_of = apply_change(data, name)
                if made_of is not None:
                    told = (f"a constant, {name}", bits + math.log2(len(shown)))
                    self._effects.setdefault(json.dumps(made_of), told)

    def of(self, data: Data, bug: Data | None) -> tuple[str, float]:
        """Returns (name of a change that gives the value, bits to choose the change), or ("", 0.0)."""
        if len(json.dumps(data)) > _LARGEST:
            return "", 0.0
        if bug is not None:
            for name, bits in _COST.items():
                if apply_change(bug, name) == data:
                    return name, bits
        return self._effects.get(json.dumps(data), ("", 0.0))


_LARGEST = 4_000  # maximum number of characters of data that are changed
_COST = {name: math.log2(2 + at) for at, name in enumerate(CHANGES)}
