"""Recognises the assertions of a test in all the forms in which people write them."""

import ast
from dataclasses import dataclass, field

COMPARED = {
    "assertEqual": "==",
    "assertEquals": "==",
    "assertNotEqual": "!=",
    "assertIs": "is",
    "assertIsNot": "is not",
    "assertIn": "in",
    "assertNotIn": "not in",
    "assertGreater": ">",
    "assertGreaterEqual": ">=",
    "assertLess": "<",
    "assertLessEqual": "<=",
    "assertDictEqual": "==",
    "assertListEqual": "==",
    "assertTupleEqual": "==",
    "assertSetEqual": "==",
    "assertSequenceEqual": "==",
    "assertMultiLineEqual": "==",
    "assertAlmostEqual": "~",
    "assertAlmostEquals": "~",
    "assertNotAlmostEqual": "~",
    "assertCountEqual": "count",
    "assertItemsEqual": "count",
    "assertRegex": "search",
    "assertRegexpMatches": "search",
    "assertNotRegex": "search",
    "assertIsInstance": "isinstance",
    "assertNotIsInstance": "isinstance",
}
NEGATED = {"assertNotAlmostEqual", "assertNotRegex", "assertNotIsInstance"}
ONE_OPERAND = {"assertTrue": False, "assertFalse": True, "assertIsNone": False, "assertIsNotNone": True}
"""Maps unittest methods with one operand to whether they are negated (assert false, or assert not None)."""
OPERATORS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
MATCHES = {"match": "match", "search": "search", "fullmatch": "fullmatch"}
MOCK_ASSERTIONS = tuple(
    "assert_called assert_any_call assert_has_calls assert_not_called assert_awaited".split()
)


@dataclass
class Assertion:
    """One relation that a test asserts: its kind, its operands, and the operators between them."""

    kind: str
    operands: list[ast.expr]
    ops: list[str] = field(default_factory=list)
    negated: bool = False
    more: dict[str, str] = field(default_factory=dict)


@dataclass
class Each:
    """A relation that must hold for each element: `all(a == b for a, b in pairs)`."""

    inner: "list[Assertion | Each]"
    generators: list[ast.comprehension]


def condition(test: ast.expr, negated: bool = False) -> "list[Assertion | Each]":
    """Returns the relations that must all hold if a condition is true.

    With `negated`, they must hold if it is false.
    """
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or if negated else ast.And):
        return [each for value in test.values for each in condition(value, negated)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return condition(test.operand, not negated)
    if isinstance(test, ast.Compare) and (not negated or len(test.ops) == 1):
        ops = [OPERATORS[type(each)] for each in test.ops]
        return [Assertion("compare", [test.left, *test.comparators], ops, negated)]
    if isinstance(test, ast.Call) and not test.keywords:
        return _call_condition(test, negated)
    return [Assertion("truth", [test], negated=negated)]


def _call_condition(test: ast.Call, negated: bool) -> "list[Assertion | Each]":
    name = test.func.id if isinstance(test.func, ast.Name) else ""
    if name == "isinstance" and len(test.args) == 2:
        return [Assertion("isinstance", list(test.args), negated=negated)]
    wanted = {"all": False, "any": True}.get(name)
    if (
        wanted is negated
        and len(test.args) == 1
        and isinstance(test.args[0], ast.GeneratorExp | ast.ListComp)
    ):
        inner = condition(test.args[0].elt, negated)
        if len(inner) == 1:
            return [Each(inner, test.args[0].generators)]
    if name in ("bool",) and len(test.args) == 1:
        return condition(test.args[0], negated)
    if isinstance(test.func, ast.Attribute):
        method, receiver = test.func.attr, test.func.value
        of_re = isinstance(receiver, ast.Name) and receiver.id == "re"
        if of_re and method in MATCHES and len(test.args) == 2:
            return [Assertion("compare", [test.args[1], test.args[0]], [MATCHES[method]], negated)]
        if method in ("startswith", "endswith") and len(test.args) == 1:
            return [Assertion("compare", [receiver, test.args[0]], [method], negated)]
    return [Assertion("truth", [test], negated=negated)]


def unittest_call(call: ast.Call) -> "list[Assertion | Each] | None":
    """Returns the assertions of a call such as `self.assertEqual(...)`, or None for other calls."""
    if not isinstance(call.func, ast.Attribute) or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    name = call.func.attr
    if name in ONE_OPERAND and call.args:
        if name in ("assertTrue", "assertFalse"):
            return condition(call.args[0], ONE_OPERAND[name])
        op = "is not" if ONE_OPERAND[name] else "is"
        return [Assertion("compare", [call.args[0], ast.Constant(None)], [op])]
    named = {each.arg: each.value for each in call.keywords}
    operands = [*call.args[:2], *(named[key] for key in ("first", "second") if key in named)]
    if name not in COMPARED or len(operands) != 2:
        return None
    if COMPARED[name] == "isinstance":
        return [Assertion("isinstance", operands, negated=name in NEGATED)]
    more: dict[str, str] = {key: ast.unparse(named[key]) for key in ("places", "delta") if key in named}
    if COMPARED[name] == "~" and len(call.args) > 2:
        more["places"] = ast.unparse(call.args[2])
    return [Assertion("compare", operands, [COMPARED[name]], name in NEGATED, more)]


def called_name(call: ast.Call) -> str:
    """Returns `f` for the calls `f(...)` and `a.f(...)`, or "" for other calls."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def catches(node: ast.AST) -> str:
    """Returns "raises" or "warns" for a call that expects an exception or a warning, or "" for other
    nodes.
    """
    if not isinstance(node, ast.Call):
        return ""
    name = called_name(node)
    if name in ("raises", "assertRaises", "assertRaisesRegex", "assertRaisesRegexp"):
        return "raises"
    return "warns" if name in ("warns", "assertWarns", "assertWarnsRegex", "deprecated_call") else ""


def fails_by_hand(node: ast.If) -> bool:
    """Returns whether the body of an `if` does nothing but fail the test.

    Such a body raises AssertionError, calls `fail`, or asserts a false constant.
    """
    if len(node.body) != 1 or node.orelse:
        return False
    only = node.body[0]
    if isinstance(only, ast.Raise) and only.exc is not None:
        raised = only.exc.func if isinstance(only.exc, ast.Call) else only.exc
        return isinstance(raised, ast.Name) and raised.id == "AssertionError"
    if isinstance(only, ast.Assert):
        return isinstance(only.test, ast.Constant) and not only.test.value
    return isinstance(only, ast.Expr) and is_fail(only.value)


def is_fail(node: ast.AST) -> bool:
    """Returns whether an expression is a call that fails the test with a message."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.fail", "self.fail", "fail")


def assertion_lines(source: str) -> set[int]:
    """Returns the numbers of the lines with assertions, in all forms that this module recognises."""
    lines = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and fails_by_hand(node)):
            lines.add(node.lineno)
        elif isinstance(node, ast.Call):
            asserts = catches(node) or called_name(node).lstrip("_").startswith("assert")
            lines |= {node.lineno} if asserts else set()
    return lines
