"""Rewrites tests without assertions, so that they emit the results of their calls into the package.

Such a test only checks that nothing raises. A result that equals the gold patch's result confirms a patch. A
different result proves nothing, since correct code may also give it.
"""

import ast

from swelab.records.witness_records import Slot
from swelab.witness.questions import ALIAS
from swelab.witness.scopes import FUNCTIONS, Function
from swelab.witness.subjects import Subjects


class Results(ast.NodeTransformer):
    """Rewrites a test function in place. slots: one slot, or none if the test does not call the package."""

    def __init__(self, subjects: Subjects, test: str, first: int):
        self.subjects, self.test, self.first = subjects, test, first
        self.slots: list[Slot] = []
        self.count = 0

    def run(self, function: Function) -> None:
        """Rewrites the statements of a test."""
        for each in function.body:
            self.visit(each)

    def visit(self, node: ast.AST) -> ast.AST:
        """Visits a node. Functions and classes that the test defines are left unchanged."""
        return node if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else super().visit(node)

    def visit_Expr(self, node: ast.Expr | ast.Assign) -> ast.AST:
        """Makes a call emit its result if the call is a statement or its result is assigned."""
        node.value = self._result(node.value, node)
        return node

    visit_Assign = visit_Expr

    def _result(self, value: ast.expr, node: ast.stmt) -> ast.expr:
        if not isinstance(value, ast.Call | ast.Await) or not self.subjects.holds(value):
            return value
        if not self.slots:
            slot = Slot(slot=self.first, test=self.test, line=node.lineno, asserts="truth", cut=[False])
            self.slots.append(slot | {"ops": [], "negated": False})
        self.count += 1
        asked = ast.Attribute(value=ast.Name(ALIAS, ast.Load()), attr="result", ctx=ast.Load())
        args: list[ast.expr] = [ast.Constant(self.first), ast.Constant(self.count), value]
        return ast.copy_location(ast.Call(func=asked, args=args, keywords=[]), value)
