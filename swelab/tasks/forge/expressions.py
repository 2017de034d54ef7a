"""Mutation operators on expressions. Each takes a source file and a node of a function, and yields changes.

A change is a tuple of edits, and makes one candidate bug. The kinds follow the procedural generators of
SWE-smith (Yang et al., 2025) and the classical operators of mutation testing (DeMillo, Lipton and Sayward,
1978).
"""

import ast
import re
from collections.abc import Iterator

from swelab.tasks.forge.source import Edit, Source

Changes = Iterator[tuple[Edit, ...]]

OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
CALLS = {
    a: b
    for pair in (
        ("lower", "upper"),
        ("startswith", "endswith"),
        ("lstrip", "rstrip"),
        ("find", "rfind"),
        ("index", "rindex"),
        ("split", "rsplit"),
        ("partition", "rpartition"),
        ("keys", "values"),
        ("min", "max"),
        ("any", "all"),
        ("floor", "ceil"),
    )
    for a, b in (pair, pair[::-1])
} | {"strip": "lstrip", "sorted": "list", "reversed": "iter", "append": "extend", "abs": "int"}
TYPE_CHECKS = {"isinstance", "issubclass", "getattr", "hasattr", "setattr"}


def op_change(source: Source, node: ast.AST) -> Changes:
    """`a + b` -> `a - b`, `a += b` -> `a -= b`."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mod) and isinstance(node.left, (ast.Constant, ast.JoinedStr)):
            return
        yield from _between(source, node.left, node.right, *OPERATORS.get(type(node.op), ("", "")))
    elif isinstance(node, ast.AugAssign):
        old, new = OPERATORS.get(type(node.op), ("", ""))
        yield from _between(source, node.target, node.value, old and old + "=", new and new + "=")


def op_swap(source: Source, node: ast.AST) -> Changes:
    """`a - b` -> `b - a`, if the order of operands matters."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)):
        if isinstance(node.op, ast.Mod) and isinstance(node.left, (ast.Constant, ast.JoinedStr)):
            return
        yield from _swap(source, node.left, node.right)


def compare_change(source: Source, node: ast.AST) -> Changes:
    """`a < b` -> `a <= b`, `a == b` -> `a != b`, `a in b` -> `a not in b`."""
    if isinstance(node, ast.Compare):
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            yield from _between(source, left, right, *COMPARISONS[type(op)])


def const_off_by_one(source: Source, node: ast.AST) -> Changes:
    """`n[0]` -> `n[1]`: changes a small integer by one."""
    if isinstance(node, ast.Constant) and type(node.value) is int and source.segment(node).isdigit():
        yield _replace(source, node, str(node.value + 1))
        if node.value:
            yield _replace(source, node, str(node.value - 1))


def const_change(source: Source, node: ast.AST) -> Changes:
    """`True` -> `False`; removes the last character of a short string."""
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield _replace(source, node, str(not node.value))
    elif isinstance(node.value, str) and re.fullmatch(r"(['\"])[^'\"\\\n]{1,12}\1", source.segment(node)):
        literal = source.segment(node)
        yield _replace(source, node, literal[:-2] + literal[-1])


def bool_negate(source: Source, node: ast.AST) -> Changes:
    """`not x` -> `x`; negates an operand of `and`/`or`, or a comprehension's filter."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _replace(source, node, _parenthesize(source, node.operand))
    parts = node.values if isinstance(node, ast.BoolOp) else []
    for part in node.ifs if isinstance(node, ast.comprehension) else parts:
        if not isinstance(part, ast.UnaryOp):
            yield _replace(source, part, f"not {_parenthesize(source, part)}")


def cond_invert(source: Source, node: ast.AST) -> Changes:
    """`if x:` -> `if not x:`, also in a conditional expression."""
    if isinstance(node, (ast.If, ast.IfExp)):
        test = node.test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield _replace(source, test, _parenthesize(source, test.operand))
        else:
            yield _replace(source, test, f"not {_parenthesize(source, test)}")


def and_or_swap(source: Source, node: ast.AST) -> Changes:
    """`a and b` -> `a or b`."""
    if isinstance(node, ast.BoolOp):
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        found = [c for a, b in zip(node.values, node.values[1:]) for c in _between(source, a, b, *words)]
        if len(found) == len(node.values) - 1:
            yield tuple(edit for change in found for edit in change)


def args_swap(source: Source, node: ast.AST) -> Changes:
    """`f(a, b)` -> `f(b, a)`."""
    if isinstance(node, ast.Call) and _called_name(node) not in TYPE_CHECKS:
        for left, right in zip(node.args, node.args[1:]):
            if not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred):
                yield from _swap(source, left, right)


def call_change(source: Source, node: ast.AST) -> Changes:
    """`s.lower()` -> `s.upper()`, `min(a)` -> `max(a)`: calls the opposite function."""
    if isinstance(node, ast.Call) and (new := CALLS.get(_called_name(node))):
        end = source.span(node.func)[1]
        yield (Edit(end - len(_called_name(node)), end, new),)


def slice_change(source: Source, node: ast.AST) -> Changes:
    """`a[:n]` -> `a[n:]`, `a[i:j]` -> `a[i:]`, `a[::-1]` -> `a[::1]`."""
    if not isinstance(node, ast.Slice):
        return
    low, high = (source.segment(part) if part else "" for part in (node.lower, node.upper))
    if node.step is not None:
        if source.segment(node.step) == "-1":
            yield _replace(source, node.step, "1")
    elif low and high:
        yield _replace(source, node, f"{low}:")
        yield _replace(source, node, f":{high}")
    elif low or high:
        yield _replace(source, node, f"{high}:{low}")


def ternary_swap(source: Source, node: ast.AST) -> Changes:
    """`a if c else b` -> `b if c else a`."""
    if isinstance(node, ast.IfExp):
        yield from _swap(source, node.body, node.orelse)


def _replace(source: Source, node: ast.AST, text: str) -> tuple[Edit, ...]:
    return (Edit(*source.span(node), text),)


def _swap(source: Source, left: ast.AST, right: ast.AST) -> Changes:
    if source.segment(left) != source.segment(right):
        yield (*_replace(source, left, source.segment(right)), *_replace(source, right, source.segment(left)))


def _between(source: Source, left: ast.AST, right: ast.AST, old: str, new: str) -> Changes:
    """Replaces the operator token between two neighbouring expressions."""
    start, end = source.span(left)[1], source.span(right)[0]
    gap = source.text(start, end)
    if not old or "#" in gap:
        return
    token = re.compile(r"\s+".join(map(re.escape, old.split())))
    found = token.search(gap)
    if found:
        at = start + len(gap[: found.start()].encode())
        yield (Edit(at, at + len(found[0].encode()), new),)


def _parenthesize(source: Source, node: ast.AST) -> str:
    """Returns the source of an operand of `not`, in parentheses if they are needed."""
    text = source.segment(node)
    simple = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.Compare)
    return text if isinstance(node, simple) and "\n" not in text else f"({text})"


def _called_name(node: ast.Call) -> str:
    """Returns the last name of the called expression, such as `c` of `a.b.c()`, or ""."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
