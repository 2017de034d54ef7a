"""What a question's text shows at each of its assertions: the constants of the statement and of its names."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.guesses import Sight
from swelab.records.witness_records import GoldValue, Slot
from swelab.witness.changes import made
from swelab.witness.emitted import Data, Emitted
from swelab.witness.questions import ALIAS

_ASKED = ("emit", "same", "among", "ordered", "caught", "caught_call", "warned", "warned_call")
_DEEP = 3  # names of names


class Shown:
    """The text of a task's question and of the file with the bug."""

    def __init__(self, files: dict[str, str], code: str):
        self.statements: dict[int, tuple[ast.Call, ast.Module]] = {}
        self.own: dict[int, list[Data]] = {}
        self.code = _constants(ast.parse(code)) if code else []
        for path, text in files.items():
            tree = ast.parse(text) if path.endswith(".py") else ast.Module([], [])
            own = _constants(tree)
            for call in ast.walk(tree):
                if _asks(call):
                    number = call.args[0].value  # type: ignore[attr-defined]
                    self.statements[number] = call, tree  # type: ignore[assignment]
                    self.own[number] = own

    def sights(self, slot: Slot, gold: GoldValue, case: int, bug: Emitted) -> list[Sight]:
        """What is in sight at each operand of an assertion's occurrence. Of `gold` only its place is used."""
        call, tree = self.statements.get(slot.slot, (None, None))
        found = _statement(call, tree, case, gold.at) if call and tree else []
        said = bug.values.get((gold.slot, gold.at, gold.part), [])
        others = [
            each for key, held in bug.values.items() if key[2] != "op" and key[:2] != (gold.slot, gold.at)
            for each in held
        ]  # fmt: skip
        near = [
            each for key, held in bug.values.items() if key[:2] == (gold.slot, gold.at) for each in held
        ]  # fmt: skip
        known = _once(near + others)
        return [
            Sight(
                bug=said[at] if at < len(said) else None,
                statement=found,
                others=known,
                constants=self.own.get(slot.slot, []) + self.code,
                raises=slot.asserts == "raises",
            )
            for at in range(len(gold.said))
        ]


def _asks(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return False
    of, number = node.func.value, node.args[0]
    own = isinstance(of, ast.Name) and of.id == ALIAS and node.func.attr in _ASKED
    return own and isinstance(number, ast.Constant)


def _statement(call: ast.Call, tree: ast.Module, case: int, at: int) -> list[Data]:
    """Constants of a statement; of the with statement that it opens, of what its names were given."""
    nodes: list[ast.AST] = [call]
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(call in ast.walk(each.context_expr) for each in node.items):
            nodes += node.body
    names = _names(tree, case, at)
    found: list[Data] = []
    for node in nodes:
        found += _constants(node)
        found += _of_names(node, names, _DEEP)
    return _once(found)


def _of_names(node: ast.AST, names: dict[str, Any], deep: int) -> Iterator[Data]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id in names and deep:
            held = names[each.id]
            if isinstance(held, ast.AST):
                yield from _constants(held)
                yield from _of_names(held, names, deep - 1)
            else:
                yield made(held)


def _names(tree: ast.Module, case: int, at: int) -> dict[str, Any]:
    """What names were given: an expression, or the value of a table's row in this case or turn."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found |= {each.id: node.value for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.For):
            rows = _literal(node.iter) or _literal(found.get(getattr(node.iter, "id", "")))
            if rows:
                target = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
                found |= _row([getattr(each, "id", "") for each in target], rows, at - 1)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize":
            told, rows = (_literal(each) for each in node.args[:2])
            if told and rows:
                names = [each.strip() for each in told.split(",")] if isinstance(told, str) else list(told)
                found |= _row(names, rows, case)
    return found


def _row(names: Sequence[str], rows: Any, at: int) -> dict[str, Any]:
    row = rows[at] if isinstance(rows, list | tuple) and 0 <= at < len(rows) else None
    if row is None:
        return {}
    return dict(zip(names, row)) if len(names) > 1 and isinstance(row, list | tuple) else {names[0]: row}


def _literal(node: Any) -> Any:
    try:
        return ast.literal_eval(node) if isinstance(node, ast.AST) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _constants(node: ast.AST) -> list[Data]:
    """Constants and literal containers below a node, in the order of the text."""
    found: list[Data] = []
    todo = [node]
    while todo:
        each = todo.pop(0)
        inner = list(ast.iter_child_nodes(each))
        if isinstance(each, ast.Call) and getattr(getattr(each.func, "value", None), "id", "") == ALIAS:
            numbers = 2 if getattr(each.func, "attr", "") == "part" else 1
            inner = inner[1 + numbers :]
        todo = inner + todo
        if isinstance(each, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.UnaryOp):
            try:
                found.append(made(ast.literal_eval(each)))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return _once(found)


def _once(found: list[Data]) -> list[Data]:
    seen: dict[str, Data] = {}
    for each in found:
        seen.setdefault(repr(each), each)
    return list(seen.values())
