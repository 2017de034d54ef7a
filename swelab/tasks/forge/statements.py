"""Mutation operators on statements: remove branches, returns, assignments and handlers, or change loops."""

import ast

from swelab.files.python_syntax import is_text_statement
from swelab.tasks.forge.expressions import Changes
from swelab.tasks.forge.source import Edit, Function, Source


def branch_remove(source: Source, node: ast.AST) -> Changes:
    """Removes an `if` without an `else`, or only the `else` (and `elif`) part."""
    if not isinstance(node, ast.If) or _is_elif(source, node):
        return
    if not node.orelse:
        yield from _remove(source, node)
    elif _last_line(node.body[-1]) < node.orelse[0].lineno:
        yield (
            Edit(source.starts[_last_line(node.body[-1])], source.starts[_last_line(node.orelse[-1])], ""),
        )


def return_remove(source: Source, node: ast.AST) -> Changes:
    """Removes a `return` that returns a value."""
    if isinstance(node, ast.Return) and node.value is not None:
        yield from _remove(source, node)


def statement_remove(source: Source, node: ast.AST) -> Changes:
    """Removes an assignment to something that already exists, or a call that is a statement of its own."""
    if isinstance(node, ast.Expr):
        removable = isinstance(node.value, ast.Call)
    elif isinstance(node, ast.AugAssign):
        removable = not _in_while(source, node)
    elif isinstance(node, ast.Assign):
        removable = all(_known_before(source, node, target) for target in node.targets)
    else:
        return
    if removable:
        yield from _remove(source, node)


def loop_remove(source: Source, node: ast.AST) -> Changes:
    """Removes a whole loop."""
    if isinstance(node, (ast.For, ast.While)) and not node.orelse:
        yield from _remove(source, node)


def try_remove(source: Source, node: ast.AST) -> Changes:
    """`try: body except: ...` -> body: errors are no longer handled."""
    if not isinstance(node, ast.Try) or node.orelse or node.finalbody or not _whole_lines(source, node):
        return
    first, last = node.body[0].lineno, _last_line(node.body[-1])
    lines = [source.text(source.starts[n], source.starts[n + 1]) for n in range(first - 1, last)]
    shift = node.body[0].col_offset - node.col_offset
    multiline = any(_last_line(part) > part.lineno for part in _strings(node))
    if first == node.lineno or multiline or any(line[:shift].strip() for line in lines):
        return
    text = "".join(line[shift:] if line.strip() else line for line in lines)
    yield (Edit(source.starts[node.lineno - 1], source.starts[_last_line(node)], text),)


def loop_jump(source: Source, node: ast.AST) -> Changes:
    """`break` -> `continue` and back, in a `for` loop."""
    if isinstance(node, (ast.Break, ast.Continue)) and not _in_while(source, node):
        yield (Edit(*source.span(node), "continue" if isinstance(node, ast.Break) else "break"),)


def _last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _strings(node: ast.AST) -> list[ast.expr]:
    return [n for n in ast.walk(node) if isinstance(n, (ast.Constant, ast.JoinedStr))]


def _is_elif(source: Source, node: ast.If) -> bool:
    return source.segment(node).startswith("elif")


def _whole_lines(source: Source, node: ast.AST) -> bool:
    """Returns whether the statement has its lines to itself. A comment after the statement is allowed."""
    start, end = source.span(node)
    before = source.text(source.starts[source.line_of(start)], start)
    after = source.text(end, source.starts[source.line_of(end) + 1]).strip()
    return not before.strip() and (not after or after.startswith("#"))


def _remove(source: Source, node: ast.stmt) -> Changes:
    """Removes the statement's lines. Writes `pass` if the block would be empty."""
    if not _whole_lines(source, node):
        return
    block = next(
        value
        for _, value in ast.iter_fields(source.parents[node])
        if isinstance(value, list) and node in value
    )
    start, end = source.starts[node.lineno - 1], source.starts[_last_line(node)]
    alone = all(other is node or is_text_statement(other) for other in block)
    yield (Edit(start, end, " " * node.col_offset + "pass\n" if alone else ""),)


def _function_of(source: Source, node: ast.AST) -> ast.AST:
    while not isinstance(node, (Function, ast.Module)):
        node = source.parents[node]
    return node


def _in_while(source: Source, node: ast.AST) -> bool:
    """Returns whether the innermost loop around a node is a `while`, which a mutation could make endless."""
    while not isinstance(node, (Function, ast.Module, ast.For)):
        node = source.parents[node]
        if isinstance(node, ast.While):
            return True
    return False


def _known_before(source: Source, node: ast.Assign, target: ast.expr) -> bool:
    """Returns whether the target already has a value. Then removing the statement causes no NameError."""
    if isinstance(target, (ast.Attribute, ast.Subscript)):
        return True
    function = _function_of(source, node)
    if not isinstance(target, ast.Name) or not isinstance(function, Function):
        return False
    arguments = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    stores = (n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return target.id in arguments or any(n.id == target.id and n.lineno < node.lineno for n in stores)
