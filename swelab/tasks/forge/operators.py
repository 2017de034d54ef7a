"""The mutation operators by name."""

import ast
from collections.abc import Callable, Iterable, Sequence

from swelab.configs.recipes import nearest
from swelab.records import InputError
from swelab.tasks.forge import expressions as e
from swelab.tasks.forge import statements as s
from swelab.tasks.forge.source import Source

Operator = Callable[[Source, ast.AST], e.Changes]

OPERATORS: dict[str, Operator] = {
    operator.__name__: operator
    for operator in (
        e.op_change,
        e.op_swap,
        e.compare_change,
        e.const_off_by_one,
        e.const_change,
        e.bool_negate,
        e.cond_invert,
        e.and_or_swap,
        e.args_swap,
        e.call_change,
        e.slice_change,
        e.ternary_swap,
        s.branch_remove,
        s.return_remove,
        s.statement_remove,
        s.loop_remove,
        s.try_remove,
        s.loop_jump,
    )
}


def choose_operators(names: Sequence[str], operators: Iterable[str]) -> list[str]:
    """Returns the operators that a recipe names, or all of `operators` if it names none.
    Raises InputError."""
    words = list(dict.fromkeys(operators))
    for name in names:
        if name not in words:
            what = f"operators: no mutation operator is called {name!r}{nearest(name, words)}"
            raise InputError(what, expected=", ".join(words))
    return list(names) or words
