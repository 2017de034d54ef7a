"""Starts pdb, and reports the debugger's state before pdb reads each line.

The sandbox's Python executes this source with the arguments MARK BREAKPOINTS PROGRAM [ARGUMENT...]. Before
pdb reads a line at any prompt, this report is written: MARK, one line of JSON, MARK. The debugged program's
own stdin is /dev/null, so that the program cannot read the input for pdb.
"""

from __future__ import annotations

import bdb
import contextlib
import json
import os
import pdb
import runpy
import sys
from typing import Any


class Lines:
    """The stdin of every debugger in this process. A forked process gets an end of file."""

    def __init__(self, mark: str, breakpoints: list[dict[str, Any]]) -> None:
        self.mark = mark
        self.owner = os.getpid()
        self.pending = breakpoints
        self.refused: list[dict[str, Any]] = []
        self.reported: dict[str, Any] = {}
        self.debugger: Any | None = None
        self.answers = os.dup(1)
        self.wire = os.fdopen(os.dup(0), "r", encoding="utf-8", errors="surrogateescape")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def readline(self) -> str:
        """Writes the report, and returns the next line for the debugger. If a statement that pdb runs reads
        pdb's stdin, the statement also gets an end of file."""
        if os.getpid() != self.owner or sys.stdin is self:
            return ""
        for breakpoint in self.pending:
            self.set(breakpoint)
        self.pending = []
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        text = (self.mark + self.report() + self.mark).encode("utf-8")
        while text:
            text = text[os.write(self.answers, text) :]
        return self.wire.readline()

    def report(self) -> str:
        """Returns the changes since the last report as JSON, or "" if nothing changed."""
        now = {"breakpoints": breakpoint_rows(), "at": self.place()}
        changed = {key: value for key, value in now.items() if value != self.reported.get(key)}
        self.reported = now
        if self.refused:
            changed["refused"], self.refused = self.refused, []
        return json.dumps(changed) if changed else ""

    def set(self, row: dict[str, Any]) -> None:
        """Sets a breakpoint of an earlier session again."""
        debugger = self.debugger
        if debugger is None:
            return
        where = (row["file"], row["line"])
        before = set(bdb.Breakpoint.bplist.get((debugger.canonic(where[0]), where[1]), ()))
        function = row["function"] or None
        error = debugger.set_break(*where, row["temporary"], row["condition"] or None, function)
        if error:
            self.refused.append(row)
            return
        for made in debugger.get_breaks(*where):
            if made not in before:
                made.ignore = row["ignore"]
                if not row["enabled"]:
                    made.disable()

    def place(self) -> list[Any] | None:
        """Returns the file, line and function of the debugger's current frame."""
        stack = getattr(self.debugger, "stack", None)
        if not stack:
            return None
        frame, line = stack[self.debugger.curindex]  # type: ignore[union-attr]
        return [frame.f_code.co_filename, line, frame.f_code.co_name]


def breakpoint_rows() -> list[dict[str, Any]]:
    """Returns all breakpoints of this process."""
    return [
        {
            "number": each.number,
            "file": each.file,
            "line": each.line,
            "condition": each.cond or "",
            "temporary": bool(each.temporary),
            "enabled": bool(each.enabled),
            "ignore": each.ignore,
            "function": each.funcname or "",
        }
        for each in bdb.Breakpoint.bpbynumber
        if each is not None
    ]


def listen(lines: Lines) -> None:
    """Makes every debugger of this process read `lines`."""
    original = pdb.Pdb.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        if len(arguments) < 2:
            options["stdin"] = lines
        options.update(nosigint=True, readrc=False)
        original(self, *arguments, **options)
        self.use_rawinput = 0
        lines.debugger = self

    pdb.Pdb.__init__ = init  # type: ignore[method-assign]


def main() -> None:
    """Runs `pytest ARGUMENT...`, or pdb with its own arguments."""
    mark, breakpoints, program = sys.argv[1:4]
    sys.path[0] = ""
    listen(Lines(mark, json.loads(breakpoints)))
    if program == "pytest":
        sys.argv = sys.argv[3:]
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[3:]
        pdb.main()


main()
