"""The breakpoints of a rollout.

The breakpoints remain after a pdb session ends, and move when the code around them is edited.
"""

import ast
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from swelab.agents.debugger.line_changes import Change, changes
from swelab.files.python_syntax import is_text_statement
from swelab.files.text_lines import python_lines
from swelab.records import Record

MOST = 200
"""Maximum number of breakpoints that are kept."""


@dataclass(frozen=True)
class Breakpoint:
    """One breakpoint, with pdb's fields. function: name of the function for which it was set, or ""."""

    number: int
    file: str
    line: int
    condition: str = ""
    temporary: bool = False
    enabled: bool = True
    ignore: int = 0
    function: str = ""

    def plain(self) -> Record:
        """Returns the breakpoint as a record for the launcher."""
        return asdict(self)

    def place_text(self, root: str) -> str:
        """Describes the breakpoint on one line. Paths under `root` are shown relative to `root`."""
        facts = [
            "temporary" if self.temporary else "",
            "" if self.enabled else "disabled",
            f"ignored {self.ignore} times" if self.ignore else "",
            f"if {self.condition}" if self.condition else "",
        ]
        said = ", ".join(filter(None, facts))
        return f"{self.number}: {self.file.removeprefix(root)}:{self.line}" + (f" ({said})" if said else "")


def read_breakpoints(record: Any) -> list[Breakpoint]:
    """Reads the breakpoints in a report of the launcher. Malformed entries are skipped."""
    breakpoints = []
    for each in record[:MOST] if isinstance(record, list) else ():
        try:
            one = Breakpoint(**each)
        except TypeError:
            continue
        kinds = Breakpoint.__annotations__
        if all(type(getattr(one, name)) is kind for name, kind in kinds.items()):
            breakpoints.append(one)
    return breakpoints


def move(
    breakpoints: Sequence[Breakpoint], file: str, before: Sequence[str], after: Sequence[str]
) -> tuple[list[Breakpoint], list[Breakpoint]]:
    """Returns (breakpoints after an edit of `file`, breakpoints whose line was deleted).

    before, after: all lines of the file. A breakpoint moves with its line. If the line was replaced, the
    breakpoint stays at the same position among the replaced lines.
    """
    edits = changes(before, after)
    moved_points, deleted = [], []
    for each in breakpoints:
        if each.file != file:
            moved_points.append(each)
        elif each.line <= len(before) and (line := _new_line(each.line - 1, edits)) is not None:
            moved_points.append(replace(each, line=line + 1))
        else:
            deleted.append(each)
    return moved_points, deleted


def _new_line(line: int, edits: Sequence[Change]) -> int | None:
    """Returns the place of a line after edits, or None if it was deleted. Lines count from 0."""
    shift = 0
    for start, end, new, new_end in edits:
        if line < start:
            break
        if line < end:
            return new + line - start if new + line - start < new_end else None
        shift = new_end - end
    return line + shift


def better_line(source: str, line: int) -> tuple[str, int] | None:
    """Returns (reason why a breakpoint at the line is unsuitable, better line), or None if the line is
    suitable. The better line is 0 if there is no later statement."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    lines = python_lines(source)
    if line < 1:
        return "lines count from 1", min((node.lineno for node in statements), default=0)
    if line > len(lines):
        return f"the file has {len(lines)} lines", max((node.lineno for node in statements), default=0)
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.lineno == line:
            body = [each for each in node.body if not is_text_statement(each)] or node.body
            if body[0].lineno > line:
                kind = "a class" if isinstance(node, ast.ClassDef) else "a function"
                return f"line {line} only defines {kind}", body[0].lineno
            return None
    text = lines[line - 1].strip()
    if text and not text.startswith("#"):
        return None
    later = sorted(node.lineno for node in statements if node.lineno > line and not is_text_statement(node))
    return f"line {line} is {'a comment' if text else 'blank'}", later[0] if later else 0
