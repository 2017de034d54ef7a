"""Runs one live pdb session in the sandbox. pdb gets one line at a time.

A session that hangs is ended, but its breakpoints are kept.
"""

import ast
import json
import re
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from swelab.agents.debugger.line_changes import Change, changes
from swelab.agents.debugger.task_files import TaskFiles
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.files.python_syntax import is_text_statement
from swelab.files.text_lines import python_lines
from swelab.records import Record
from swelab.sandbox import Limits, Sandbox, SandboxError, SandboxLost
from swelab.sandbox.protocol import WORKDIR, Session

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


SLICE_SECONDS = 1.0
"""Seconds between checks for the mark.

The checks are necessary because output of a thread or a child process may follow the mark.
"""


@dataclass(frozen=True)
class Answer:
    """The answer of a debugger. output: the printed bytes. end: prompt (the mark was printed), timeout or
    exit. returncode, limit: exit code, and the limit that caused the exit. They are set only after an
    exit."""

    output: bytes
    end: str
    returncode: int | None = None
    limit: str = ""


def ask(session: Session, line: str | None, mark: bytes, seconds: float, most: int) -> Answer:
    """Sends a line and waits for the two marks around the debugger's report. most: number of bytes to keep
    from the start of the answer, and from its end. Raises the errors of `Session.say`."""
    deadline = time.monotonic() + seconds
    heard, said = b"", line
    while True:
        left = max(0.01, deadline - time.monotonic())
        found = session.say(said, until=mark, timeout=min(SLICE_SECONDS, left))
        heard, said = _truncate(heard + found.output, most), None
        if found.end == "exit":
            return Answer(heard, "exit", found.returncode, found.limit)
        if found.end == "prompt" or heard.count(mark) >= 2:
            return Answer(heard, "prompt")
        if time.monotonic() >= deadline:
            return Answer(heard, "timeout")


def _truncate(heard: bytes, most: int) -> bytes:
    if len(heard) <= 2 * most:
        return heard
    dropped = len(heard) - 2 * most
    return heard[:most] + f"\n[{dropped} bytes dropped]\n".encode() + heard[-most:]


LAUNCHER = Path(__file__).parent / "inside" / "launcher.py"
BOOT = 'import sys; exec(sys.argv.pop(1), {"__name__": "launcher"})'
ROOT = f"{WORKDIR}/"
NOT_RUNNING = "No pdb session is running. Begin one with the command start."
SECONDS = re.compile(r" in \d+\.\d+s(?: \(\d+:\d\d:\d\d\))?")
"""Matches pytest's durations, which differ from run to run."""
LONGEST_LINE = 10_000
PROMPT = "(Pdb) "
_LISTS, _CLEARS = ("b", "break", "tbreak"), ("cl", "clear")
_ENDS, _BEGINS = ("q", "quit", "exit", "EOF"), ("restart", "run")


@dataclass
class PdbSession:
    """The debugger of a rollout. counts: starts, commands, timeouts, and sessions that ended by
    themselves."""

    sandbox: Sandbox
    loop: MiniLoop
    settings: DebuggerSettings
    files: TaskFiles
    counts: Counter[str] = field(default_factory=Counter)
    breakpoints: list[Breakpoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._session: Session | None = None
        self._mark = ""
        self._stale = False
        self._began: tuple[str, str] = ("pytest", self.files.test_file) if self.files.test_file else ("", "")
        self._limits = Limits(**self.loop.limits.plain())

    def run(self, command: str, runner: str = "", file: str = "") -> str:
        """Runs one pdb command, and returns the text for the policy. Raises SandboxLost."""
        line, _, rest = command.strip().partition("\n")
        self.counts["commands"] += 1
        word, _, argument = line.strip().partition(" ")
        note = "\n[Only the first line was run: pdb takes one command a call.]" if rest.strip() else ""
        if len(line) > LONGEST_LINE:
            return f"The command has {len(line)} characters; expected at most {LONGEST_LINE}."
        if word == "start" or word in _BEGINS:
            if not runner and not file and word == "start" and argument:
                file = argument.strip()
            return self._start(runner, file) + note
        if word in _LISTS and not argument.strip():
            return self._list_breakpoints() + note
        if word in _CLEARS and not argument.strip():
            return self._clear_all() + note
        if self._session is None:
            return NOT_RUNNING
        restarted = ""
        if self._stale and self.settings.restart_on_rewrite:
            restarted = (
                f"[The code has changed: the session was started anew.]\n{self._start(*self._began)}\n"
            )
            if self._session is None:
                return restarted
        if word in _ENDS:
            self.close()
            return restarted + "The pdb session has ended; breakpoints are kept." + note
        if hint := self._hint(word, argument):
            return restarted + hint + note
        shown = self._say(line)
        if word in (*_LISTS, *_CLEARS, "disable", "enable", "condition", "ignore"):
            shown = f"{shown.rstrip()}\n{self._list_breakpoints()}"
        stale = "[This session still runs the code before the last rewrite.]\n" if self._stale else ""
        return restarted + stale + shown + note

    def move_breakpoints(self, path: str, before: list[str], after: list[str]) -> str:
        """Moves the breakpoints of a rewritten file. Returns notes for the policy."""
        self.breakpoints, gone = move(self.breakpoints, ROOT + path, before, after)
        notes = [f"Breakpoint {each.place_text(ROOT)} is gone with its line." for each in gone]
        if self._session is not None:
            self._stale = True
            notes.append(
                "The running pdb session has the old code; it starts anew at the next pdb command."
                if self.settings.restart_on_rewrite
                else "The running pdb session has the old code; start it anew to debug the new."
            )
        return "\n".join(notes)

    def close(self) -> None:
        """Ends the session and all its processes. Raises SandboxLost."""
        session, self._session, self._stale = self._session, None, False
        if session is not None:
            session.close()

    def _start(self, runner: str, file: str) -> str:
        path, _, test = file.partition("::")
        path = self.files.relative(path) if path else ""
        if not path:
            runner, chosen = (runner or self._began[0], self._began[1])
            if not chosen:
                return "start wants a file: the script to debug, or tests to run under pdb."
            path, _, test = chosen.partition("::")
        runner = runner or ("pytest" if test or self.files.is_test(path) else "python")
        if not self.files.is_there(path):
            return f"There is no file {path}."
        if test and runner != "pytest":
            return "A single test needs the runner pytest."
        self.close()
        self.counts["starts"] += 1
        self._began = (runner, f"{path}::{test}" if test else path)
        self._mark = f"\x02{secrets.token_hex(8)}\x03"
        kept = self.breakpoints if self.settings.persistent_breakpoints else []
        self.breakpoints = list(kept)
        try:
            self._session = self.sandbox.session(
                self._command(runner, path, test),
                env=self.loop.environment,
                limits=replace(
                    self._limits,
                    wall_seconds=self.settings.session_seconds,
                    cpu_seconds=self.settings.session_cpu_seconds,
                ),
            )
        except ValueError as error:
            return f"pdb could not be started: {error}."
        shown = self._say(None)
        if self._session is not None and self._at and self._at[0].startswith(ROOT):
            shown = f"{shown.rstrip()}\n{self._say('l .')}"
        return shown + (f"\n{self._list_breakpoints()}" if self.breakpoints else "")

    def _command(self, runner: str, path: str, test: str) -> str:
        target = f"./{path}" if path.startswith("-") else path
        if runner == "python":
            program = ["pdb", target]
        elif test:
            program = ["pytest", "-sq", f"{target}::{test}", "--trace", "--tb=short"]
        else:
            program = ["pdb", "-m", "pytest", "-sq", target]
        given = json.dumps([each.plain() for each in self.breakpoints])
        words = ["python", "-u", "-c", BOOT, LAUNCHER.read_text(), self._mark, given, *program]
        prelude = f"{self.loop.prelude}\n" if self.loop.prelude else ""
        return f"{prelude}exec {shlex.join(words)}"

    def _say(self, line: str | None) -> str:
        """Sends a line and returns the session's answer. Closes the session unless pdb waits for another
        line."""
        assert self._session is not None
        self._at: list[Any] | None = None
        seconds = self._limits.wall_seconds
        try:
            answer = ask(self._session, line, self._mark.encode(), seconds, self._limits.output_bytes)
        except SandboxLost:
            raise
        except SandboxError as error:
            self.close()
            return f"[The pdb session was ended: {error}.]"
        whole = answer.output.decode("utf-8", "replace")
        if answer.end == "prompt":
            return self._read(whole)
        text = _plain(whole.partition(self._mark)[0])
        self.close()
        if answer.end == "exit":
            self.counts["ended"] += 1
            limit = f" at its {answer.limit} limit" if answer.limit else ""
            return f"{text}\n[The pdb session has ended{limit}, with exit code {answer.returncode}.]"
        self.counts["timeouts"] += 1
        why = f"did not come back to pdb within {seconds:g} s"
        return f"{text}\n[The program {why}, and the pdb session was ended. Breakpoints are kept.]"

    def _read(self, whole: str) -> str:
        """Returns the text of an answer, and applies the report in it."""
        before, _, behind = whole.rpartition(self._mark)
        text, _, report = before.rpartition(self._mark)
        behind = f"\n{_plain(behind)}" if behind else ""
        if not report:  # nothing changed
            return _plain(text) + behind
        try:
            found = json.loads(report)
            refused = read_breakpoints(found.get("refused", []))
            if "breakpoints" in found:
                self.breakpoints = read_breakpoints(found["breakpoints"])
            at = found.get("at")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # broken by the program
            return _plain(whole)
        self._at = at if isinstance(at, list) and at and isinstance(at[0], str) else None
        lost = [f"\n[Breakpoint {each.place_text(ROOT)} could not be set again.]" for each in refused]
        return _plain(text) + behind + "".join(lost)

    def _clear_all(self) -> str:
        for each in list(self.breakpoints):
            if self._session is not None:
                self._say(f"clear {each.number}")
        self.breakpoints = []
        return "All breakpoints are cleared."

    def _list_breakpoints(self) -> str:
        if not self.breakpoints:
            return "Breakpoints: none"
        return "\n".join(["Breakpoints:", *(f"  {each.place_text(ROOT)}" for each in self.breakpoints)])

    def _hint(self, word: str, argument: str) -> str:
        """Returns a note that no breakpoint was set, with the reason and a better line, or ''."""
        if word not in _LISTS:
            return ""
        file, _, number = argument.partition(",")[0].strip().rpartition(":")
        path = self.files.relative(file)
        if not path or not number.isdecimal() or (source := self.files.text(path)) is None:
            return ""
        found = better_line(source, int(number[:9]))
        if found is None:
            return ""
        why, line = found
        return f"No breakpoint was set: {why}." + (f" Use {word} {path}:{line}." if line else "")


def _plain(text: str) -> str:
    """Removes the last prompt, the root folder in paths, and test durations from a session's output."""
    return SECONDS.sub("", text).replace(ROOT, "").removesuffix(PROMPT).rstrip()
