"""A Python source file with its syntax tree, and edits to the file as byte ranges.

Edits replace only the bytes that they name. So a mutation's diff is minimal, and the rest of the file keeps
its formatting. SWE-smith, in contrast, prints whole functions anew.
"""

import ast
import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from swelab.files import python_syntax
from swelab.records import InputError

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces the bytes [start, end) of a file by `text`."""

    start: int
    end: int
    text: str


def apply_edits(data: bytes, edits: tuple[Edit, ...]) -> bytes:
    """Returns `data` after `edits`, which must not overlap."""
    for edit in sorted(edits, reverse=True):
        data = data[: edit.start] + edit.text.encode("utf-8") + data[edit.end :]
    return data


class Source:
    """One parsed module. path: POSIX path inside the repository.
    Raises InputError if the file is not UTF-8 Python with "\\n" line ends."""

    def __init__(self, path: str, data: bytes):
        self.path, self.data = path, data
        try:
            self.tree = python_syntax.parse_python(data.decode("utf-8"), path)
        except (UnicodeDecodeError, SyntaxError, ValueError) as error:
            raise InputError(f"cannot be parsed: {error}", path, "Python source in UTF-8") from None
        if b"\r" in data:
            raise InputError("it holds carriage returns", path, 'lines that end with "\\n"')
        self.newline_at_end = data.endswith(b"\n")
        if not self.newline_at_end:
            self.data = data = data + b"\n"
        self.starts = [0]
        for line in data.split(b"\n")[:-1]:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def offset(self, line: int, column: int) -> int:
        """Returns the byte offset of a position as `ast` counts (line from 1, column in UTF-8 bytes)."""
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Returns the byte range [start, end) of an expression or statement."""
        first = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return first, self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def text(self, start: int, end: int) -> str:
        """Returns the text of the bytes [start, end). Raises UnicodeDecodeError within a character."""
        return self.data[start:end].decode("utf-8")

    def segment(self, node: ast.AST) -> str:
        """Returns the source text of an expression or statement."""
        return self.text(*self.span(node))

    def line_of(self, offset: int) -> int:
        """Returns the index (from 0) of the line that contains the byte `offset`."""
        return bisect.bisect_right(self.starts, offset) - 1

    def apply(self, edits: tuple[Edit, ...]) -> bytes:
        """Returns the file's bytes after `edits`."""
        data = apply_edits(self.data, edits)
        return data if self.newline_at_end else data.removesuffix(b"\n")

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Yields (qualified name, node) of functions and methods.
        A nested function is part of the outer function."""
        pending: list[tuple[str, ast.AST]] = [("", self.tree)]
        while pending:
            prefix, node = pending.pop(0)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, Function):
                    yield prefix + child.name, child
                elif isinstance(child, ast.ClassDef):
                    pending.append((f"{prefix}{child.name}.", child))
                elif isinstance(child, (ast.If, ast.Try, ast.ExceptHandler, ast.With)):
                    pending.append((prefix, child))


def body_nodes(function: Function) -> Iterator[ast.AST]:
    """Yields the nodes of a function that may be mutated, from the outer to the inner nodes.

    Excludes decorators, annotations, docstrings, and f-strings. Before Python 3.12, `ast` has wrong positions
    inside f-strings.
    """
    pending: list[ast.AST] = [
        *function.args.defaults,
        *filter(None, function.args.kw_defaults),
        *function.body,
    ]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.JoinedStr) or python_syntax.is_text_statement(node):
            continue
        yield node
        if isinstance(node, ast.AnnAssign):
            pending += filter(None, (node.target, node.value))
        elif isinstance(node, Function):
            pending += [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
        else:
            pending += ast.iter_child_nodes(node)
