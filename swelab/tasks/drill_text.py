"""The drill repository's words, functions, mutations and issue texts, all drawn from a seed.

A drill function is named `verb_noun`. It has a body of one or two lines, and its own tests. Its mutations
follow the procedural generators of SWE-smith (Yang et al., 2025): change an operator or a constant, swap
operands, drop a return.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

VERBS = tuple(
    """
    align blend chart draft fit fold gauge graft hoist latch mark merge pack probe quote rank route scan
    shift stack sweep trim tune weigh
    """.split()
)
NOUNS = tuple(
    """
    anchor basket beacon bridge bucket candle carton column copper dial engine fabric filter garden
    hammer island jacket ladder magnet needle orchid pallet pillar quarry ribbon saddle shelf spindle
    ticket tunnel valve window
    """.split()
)
PACKAGES = ("depot", "farm", "harbor", "mill", "office", "port", "store", "yard")
MODULES = tuple(
    """
    batch cargo entry grade label panel quota ridge stock table track wagon
    """.split()
)
OPERANDS = (("a", "b"), ("x", "y"), ("left", "right"), ("low", "high"))
LOCALS = ("total", "result", "value")
LISTS = ("items", "rows", "parts")
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SYMBOLS = {"+": "sum", "-": "difference", "*": "product"}
COMPARES = {"<": "less than", ">": "more than", "<=": "at most", ">=": "at least"}
SHAPES = ("arith", "total", "compare", "pick", "scale", "cut")
FILE_SHAPES = (*SHAPES, "offset", "offset")
"""Shapes of functions in two-file tasks. For an `offset`, only a test run reveals the correct number."""
FRAMES = (
    "{name} in {path} should {want}.\n{test} fails.",
    "{test} fails.\n{name} in {path} should {want}.",
    "{name} should {want}.\nSee {path}, {test} fails.",
)


@dataclass(frozen=True)
class Mutation:
    """A bug: `text` replaces line `line` (from 0) of the body. wants: sentences on the correct behaviour."""

    op: str
    line: int
    text: str
    wants: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """A clean function of the drill repository, with its mutations and the expressions of its test."""

    name: str
    path: str
    args: tuple[str, ...]
    body: tuple[str, ...]
    asserts: tuple[str, ...]
    mutations: tuple[Mutation, ...]

    def lines(self, mutation: Mutation | None = None) -> list[str]:
        """Returns the source lines, with the bug if `mutation` is given."""
        body = list(self.body)
        if mutation is not None:
            body[mutation.line] = mutation.text
        return [f"def {self.name}({', '.join(self.args)}):", *(f"    {line}" for line in body)]

    @property
    def identity(self) -> str:
        """ "path::name", the function's id in task rows and in the split."""
        return f"{self.path}::{self.name}"

    @property
    def test_file(self) -> str:
        """Path of the file with the function's test."""
        return test_path(self.path)

    @property
    def test(self) -> str:
        """Id of the function's test."""
        return f"{self.test_file}::test_{self.name}"


def test_path(path: str) -> str:
    """Converts `depot/batch.py` to `tests/test_depot_batch.py`; in a two-file task `a.py` to `test_a.py`."""
    return "tests/test_" + path.replace("/", "_") if "/" in path else f"test_{path}"


def part_of(path: str) -> str:
    """Returns the folder of the archive that becomes a task's checkout, or "" for the whole archive.
    path: the task's module. Only two-file tasks have a folder."""
    return "" if "/" in path else path.removesuffix(".py")


def _cases(
    args: tuple[str, ...], name: str, expression: str, points: Sequence[tuple[object, ...]]
) -> tuple[str, ...]:
    """Returns expressions `name(point) == value` for the test. Computes the value from `expression`."""
    found = []
    for point in points:
        value = eval(expression, {"__builtins__": {"min": min, "max": max}}, dict(zip(args, point)))  # noqa: S307
        found.append(f"{name}({', '.join(map(repr, point))}) == {value!r}")
    return tuple(found)


def _arith(rng: random.Random, name: str, path: str, named: bool) -> Function:
    a, b = rng.choice(OPERANDS)
    symbol = rng.choice(tuple(SYMBOLS))
    local = rng.choice(LOCALS)
    lead = f"{local} = " if named else "return "
    body = (f"{lead}{a} {symbol} {b}", f"return {local}") if named else (f"{lead}{a} {symbol} {b}",)
    wants = (f"return the {SYMBOLS[symbol]} of {a} and {b}",)
    mutations = [
        Mutation("op_change", 0, f"{lead}{a} {other} {b}", wants) for other in SYMBOLS if other != symbol
    ]
    if symbol == "-":
        mutations = [Mutation("op_swap", 0, f"{lead}{b} - {a}", (f"return {a} minus {b}",))] * 2 + mutations[
            :1
        ]
    if named:
        mutations = [
            Mutation("return_remove", 1, local, ("not return None", "return a value and not None"))
        ] * 2 + mutations[:1]
    asserts = _cases((a, b), name, f"{a} {symbol} {b}", [(7, 2), (3, 5), (10, 4)])
    return Function(name, path, (a, b), body, asserts, tuple(mutations))


def _compare(rng: random.Random, name: str, path: str) -> Function:
    a, b = rng.choice(OPERANDS)
    symbol = rng.choice(tuple(COMPARES))
    wants = (f"be true when {a} is {COMPARES[symbol]} {b}",)
    mutations = [
        Mutation("compare_change", 0, f"return {a} {other} {b}", wants)
        for other in COMPARES
        if other != symbol
    ]
    asserts = _cases((a, b), name, f"{a} {symbol} {b}", [(1, 2), (2, 2), (3, 2)])
    return Function(name, path, (a, b), (f"return {a} {symbol} {b}",), asserts, tuple(mutations))


def _pick(rng: random.Random, name: str, path: str) -> Function:
    a, b = rng.choice(OPERANDS)
    good, bad, word = rng.choice((("max", "min", "larger"), ("min", "max", "smaller")))
    wants = (f"return the {word} of {a} and {b}",)
    asserts = _cases((a, b), name, f"{good}({a}, {b})", [(7, 2), (3, 5), (4, 4)])
    return Function(
        name,
        path,
        (a, b),
        (f"return {good}({a}, {b})",),
        asserts,
        (Mutation("call_change", 0, f"return {bad}({a}, {b})", wants),),
    )


def _scale(rng: random.Random, name: str, path: str) -> Function:
    a = rng.choice(OPERANDS)[0]
    symbol, verb = rng.choice(
        (("+", "add {n} to {a}"), ("*", "multiply {a} by {n}"), ("-", "subtract {n} from {a}"))
    )
    number = rng.randint(2, 9)
    wants = (verb.format(n=NUMBERS[number], a=a),)
    others = rng.sample([n for n in range(2, 10) if n != number], 3)
    found = tuple(Mutation("const_change", 0, f"return {a} {symbol} {n}", wants) for n in others)
    asserts = _cases((a,), name, f"{a} {symbol} {number}", [(1,), (5,), (20,)])
    return Function(name, path, (a,), (f"return {a} {symbol} {number}",), asserts, found)


def _slice(rng: random.Random, name: str, path: str) -> Function:
    a = rng.choice(LISTS)
    number = rng.randint(1, 5)
    template, word = rng.choice((("{a}[{n}:]", "drop"), ("{a}[:{n}]", "keep")))
    wants = (f"{word} the first {NUMBERS[number]} of {a}",)
    others = [n for n in (number - 1, number + 1) if n > 0]
    found = tuple(Mutation("slice_change", 0, "return " + template.format(a=a, n=n), wants) for n in others)
    expression = template.format(a=a, n=number)
    asserts = _cases((a,), name, expression, [([1, 2, 3, 4, 5, 6, 7],), ("abcdefgh",), ([],)])
    return Function(name, path, (a,), (f"return {expression}",), asserts, found)


def _offset(rng: random.Random, name: str, path: str) -> Function:
    a, local = rng.choice(OPERANDS)[0], rng.choice(LOCALS)
    number = rng.randint(2, 9)
    wants = (f"add the right number to {a}",)
    others = rng.sample([n for n in range(2, 10) if n != number], 3)
    found = tuple(Mutation("offset_change", 0, f"{local} = {a} + {n}", wants) for n in others)
    points = [(point,) for point in rng.sample(range(11, 60), 3)]
    asserts = _cases((a,), name, f"{a} + {number}", points)
    body = (f"{local} = {a} + {number}", f"return {local}")
    return Function(name, path, (a,), body, asserts, found)


def make_function(rng: random.Random, name: str, path: str, shape: str) -> Function:
    """Makes a clean function of the given shape (one of FILE_SHAPES). Its details are drawn from `rng`."""
    if shape in ("arith", "total"):
        return _arith(rng, name, path, shape == "total")
    shapes = {"compare": _compare, "pick": _pick, "scale": _scale, "cut": _slice, "offset": _offset}
    return shapes[shape](rng, name, path)


def issue(rng: random.Random, function: Function, mutation: Mutation) -> str:
    """Returns the problem statement: what should happen and which test fails, but never the edit itself."""
    return rng.choice(FRAMES).format(
        name=function.name, path=function.path, test=function.test, want=rng.choice(mutation.wants)
    )
