"""Rewrites the assertions of a module so that they emit only the operands that the package under test
made.
"""

import ast
import re
from typing import Literal

from swelab.records.witness_records import Slot
from swelab.witness.assertions import (
    MOCK_ASSERTIONS,
    Assertion,
    Each,
    called_name,
    catches,
    condition,
    fails_by_hand,
    is_fail,
    unittest_call,
)
from swelab.witness.scopes import FUNCTIONS, is_literal
from swelab.witness.subjects import Subjects

ALIAS = "q_"
Form = Literal["question", "answers"]
_TWO_SIDED = dict.fromkeys(("==", "!=", "is", "is not"), "same") | {
    "in": "among",
    "not in": "among",
    "<": "ordered",
    "<=": "ordered",
    ">": "ordered",
    ">=": "ordered",
}
_PARTS_DEEP = 3


class Questioner(ast.NodeTransformer):
    """Rewrites a tree in place. Each rewritten assertion gets a slot in `slots`, numbered from `first`.

    The form "question" lacks the operands that the package did not make. The form "answers" emits these
    operands too.
    """

    def __init__(self, subjects: Subjects, form: Form, test: str, first: int):
        self.subjects, self.form, self.test, self.first = subjects, form, test, first
        self.slots: list[Slot] = []
        self.caught: set[str] = set()
        self.parts = 0

    # Statements.
    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.stmt]:
        """Rewrites `assert condition, message`."""
        if isinstance(node.test, ast.Constant):
            return ast.copy_location(ast.Assert(test=node.test, msg=None), node)
        self.generic_visit(node)
        return self._statements(condition(node.test), node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Rewrites `if not condition: raise AssertionError(message)`."""
        self.generic_visit(node)
        return self._statements(condition(node.test, True), node) if fails_by_hand(node) else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Removes the message of `raise AssertionError(message)`."""
        self.generic_visit(node)
        if isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) == "AssertionError":
            node.exc.args = []
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        """Rewrites statements that are calls of an assertion."""
        call = node.value
        self.generic_visit(node)
        if not isinstance(call, ast.Call):
            return node
        if is_fail(call):
            call.args = [ast.Constant("")] if call.args else []
            call.keywords = []
            return node
        if not isinstance(call.func, ast.Attribute):
            return self._helper(node, call)
        told = unittest_call(call)
        if told is not None:
            return self._statements(told, node)
        name, receiver = call.func.attr, call.func.value
        if name == "match" and isinstance(receiver, ast.Name) and receiver.id in self.caught and call.args:
            value = ast.Attribute(value=receiver, attr="value", ctx=ast.Load())
            return self._statements([Assertion("compare", [value, call.args[0]], ["search"])], node)
        if name.startswith(MOCK_ASSERTIONS):
            return [self._statement(self._calls(call, receiver, node), node)]
        return self._helper(node, call)

    def visit_With(self, node: ast.With) -> ast.AST:
        """Records the name in `with pytest.raises(...) as name`, since `name.match(...)` asserts too."""
        for item in node.items:
            if catches(item.context_expr) and isinstance(item.optional_vars, ast.Name):
                self.caught.add(item.optional_vars.id)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrites `pytest.raises(...)`, `assertRaises(...)` and `pytest.warns(...)`, as context managers and
        as calls.
        """
        kind = catches(node)
        self.generic_visit(node)
        if not kind or any(isinstance(each, ast.Starred) for each in node.args):
            return node
        name = called_name(node)
        leading = 2 if "Regex" in name else 0 if name == "deprecated_call" else 1
        named = {each.arg: each.value for each in node.keywords}
        expected = node.args[:leading] or [
            named[key] for key in ("expected_exception", "exception", "expected_warning") if key in named
        ]
        pattern = expected[1:] or [named[key] for key in ("match", "expected_regex") if key in named]
        function = node.args[leading:]
        slot = self._slot(kind, [False, True, True], node)
        shown = [*(expected[:1] or [ast.Constant(None)]), *pattern] if self.form == "answers" else []
        if function and (isinstance(function[0], ast.Constant) and isinstance(function[0].value, str)):
            function = []  # the only argument is a message
        if function:
            group = ast.Tuple(elts=shown, ctx=ast.Load())
            made = self._ask("caught_call" if kind == "raises" else "warned_call", slot, group, *function)
            made.keywords = [each for each in node.keywords if each.arg not in ("match", "msg")]
        else:
            made = self._ask("caught" if kind == "raises" else "warned", slot, *shown)
        return ast.copy_location(made, node)

    # Emission.
    def _statements(self, checks: list[Assertion | Each], node: ast.stmt) -> ast.AST | list[ast.stmt]:
        made = [self._expression(each, node) for each in checks]
        found = [self._statement(each, node) for each in made if each is not None]
        return found or ast.copy_location(ast.Pass(), node)

    def _expression(self, check: Assertion | Each, node: ast.AST) -> ast.expr | None:
        if isinstance(check, Each):
            inner = self._expression(check.inner[0], node)
            return None if inner is None else ast.ListComp(elt=inner, generators=check.generators)
        removed = [self.subjects.holds(each) for each in check.operands]
        if check.kind == "isinstance":
            removed = [True, False]
        if not any(removed):
            removed = [not is_literal(each) and not isinstance(each, ast.Lambda) for each in check.operands]
        if not any(removed):
            return None
        slot = self._slot(check.kind, [not each for each in removed], node, check)
        self.parts = 0
        operands = [
            self._with_parts(each, slot) if is_said else each if self.form == "answers" else cut_value()
            for each, is_said in zip(check.operands, removed)
        ]
        two_sided = check.kind == "compare" and len(operands) == 2 and all(removed)
        return self._ask(_TWO_SIDED.get(check.ops[0], "emit") if two_sided else "emit", slot, *operands)

    def _helper(self, node: ast.Expr, call: ast.Call) -> ast.AST | list[ast.stmt]:
        """Rewrites a call of an assertion that another module defines, such as numpy or a test mixin."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        own = name in {each.name for each in self.subjects.scopes.functions}
        if own or not re.match(r"_?assert", name) or any(isinstance(each, ast.Starred) for each in call.args):
            return node
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        of_object = (
            receiver is not None and not self.subjects.is_import(receiver) and self.subjects.holds(receiver)
        )
        if receiver is not None and of_object and not isinstance(receiver, ast.Attribute):
            given = [receiver, *call.args]
        else:
            given = list(call.args)
        subjects = [each for each in given if self.subjects.holds(each)]
        if not subjects:
            return node
        kept = [each for each in given if each in subjects or self.form == "answers"]
        made = Assertion("compare", kept or subjects, ["helper"])
        slot = self._slot("compare", [each not in subjects for each in given], node, made)
        operands = [each if each in subjects or self.form == "answers" else cut_value() for each in given]
        return [self._statement(self._ask("emit", slot, *operands), node)]

    def _calls(self, call: ast.Call, receiver: ast.expr, node: ast.AST) -> ast.expr:
        slot = self._slot("calls", [False, True], node)
        given = ast.Tuple(elts=list(call.args), ctx=ast.Load())
        has_star = any(isinstance(each, ast.Starred) for each in call.args)
        return self._ask(
            "emit", slot, receiver, *([given] if self.form == "answers" and not has_star else [])
        )

    def _with_parts(self, node: ast.expr, slot: int, depth: int = 0) -> ast.expr:
        """Makes the receivers and arguments in an operand emit values too.

        The truth value of the operand alone is easy to guess.
        """
        if depth >= _PARTS_DEEP:
            return node
        if isinstance(node, ast.Call) and not catches(node):
            if isinstance(node.func, ast.Attribute):
                node.func.value = self._part(node.func.value, slot, depth)
            node.args = [self._part(each, slot, depth) for each in node.args]
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
            node.value = self._part(node.value, slot, depth)
        elif isinstance(node, ast.UnaryOp):
            node.operand = self._with_parts(node.operand, slot, depth)
        elif isinstance(node, ast.BoolOp):
            node.values = [self._part(each, slot, depth) for each in node.values]
        elif isinstance(node, ast.Compare):
            node.left = self._part(node.left, slot, depth)
            node.comparators = [self._part(each, slot, depth) for each in node.comparators]
        return node

    def _part(self, node: ast.expr, slot: int, depth: int) -> ast.expr:
        skipped = (ast.Starred, ast.Lambda, ast.Constant, ast.GeneratorExp)
        itself = isinstance(node, ast.Name) and node.id in {"self", "cls", "super", ALIAS, *self.caught}
        if (
            isinstance(node, skipped)
            or itself
            or self.subjects.is_import(node)
            or not self.subjects.holds(node)
        ):
            return node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            return node
        self.parts += 1
        number = ast.Constant(self.parts)
        return self._ask("part", slot, number, self._with_parts(node, slot, depth + 1))

    # Slots and syntax nodes.
    def _slot(self, kind: str, cut: list[bool], node: ast.AST, check: Assertion | None = None) -> int:
        number = self.first + len(self.slots)
        slot = Slot(slot=number, test=self.test, line=getattr(node, "lineno", 0), asserts=kind, cut=cut)  # type: ignore[arg-type]
        if check is not None:
            slot |= {"ops": check.ops, "negated": check.negated} | (
                {"more": check.more} if check.more else {}
            )
        self.slots.append(slot)
        return number

    @staticmethod
    def _ask(name: str, slot: int, *operands: ast.expr) -> ast.Call:
        asked = ast.Attribute(value=ast.Name(ALIAS, ast.Load()), attr=name, ctx=ast.Load())
        return ast.Call(func=asked, args=[ast.Constant(slot), *operands], keywords=[])

    @staticmethod
    def _statement(value: ast.expr, node: ast.AST) -> ast.stmt:
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(value), node))


def cut_value() -> ast.expr:
    """Returns the expression that replaces a value that is removed from a question."""
    return ast.Attribute(value=ast.Name(ALIAS, ast.Load()), attr="CUT", ctx=ast.Load())


def strip_texts(tree: ast.Module) -> None:
    """Removes docstrings and the reasons of marks from a module."""
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("skipif", "xfail", "skip"):
                for each in node.keywords:
                    if each.arg == "reason":
                        each.value = ast.Constant("-")
            if node.func.attr == "parametrize":
                node.keywords = [each for each in node.keywords if each.arg != "ids"]
            if node.func.attr == "subTest":
                node.args, node.keywords = [], []
            if node.func.attr == "param":
                node.keywords = [each for each in node.keywords if each.arg != "id"]
