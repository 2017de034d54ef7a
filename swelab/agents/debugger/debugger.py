"""The agent `debugger`: mini-swe-agent's loop over tools for files, tests and pdb."""

import shlex
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from minisweagent.exceptions import LimitsExceeded, Submitted

from swelab.agents.debugger.definitions import definitions, in_words
from swelab.agents.debugger.line_changes import diff_lines
from swelab.agents.debugger.pdb_session import ROOT, SECONDS, PdbSession
from swelab.agents.debugger.task_files import TaskFiles
from swelab.agents.mini import SandboxEnvironment, run_rollout
from swelab.agents.mini_benchmark import PRELUDE
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.kinds.scaffold import DebuggerScaffold, MiniLoop
from swelab.files.text_lines import lines_of, python_lines
from swelab.models.chat.tool_form import ToolForm
from swelab.models.chat.turn_form import Form
from swelab.records import Record
from swelab.records.attempt_records import Rollout, is_refusal
from swelab.records.task_records import Task
from swelab.sandbox import Limits, Sandbox
from swelab.sandbox.protocol import PathRefused

LONGEST_LINE = 300
_GREP = (
    "grep -nrEHI --exclude-dir=.git -e {pattern} -- {path} 2>&1 | cut -c1-{width} | head -n {lines}; "
    "exit ${{PIPESTATUS[0]}}"
)
_LIST = (
    "find {path} -mindepth 1 -maxdepth {depth} -not -path '*/.git*' -printf '%y %P\\n' 2>&1 | "
    "sort -k2 | head -n 2000"
)


def view(files: TaskFiles, pdb: PdbSession, lines: int, path: str, start: int, end: int, bare: bool) -> str:
    """Returns at most `lines` lines of a file, with line numbers unless `bare`. start, end: 0 if not
    given."""
    relative = files.relative(path)
    if not relative or (text := files.text(relative)) is None:
        return listdir(files, path, 1)
    file_lines = list(map(_without_end, python_lines(text)))
    if not file_lines:
        return f"{relative} is empty."
    first, last = max(1, start or 1), min(end or len(file_lines), len(file_lines))
    if first > len(file_lines):
        return f"{relative} has {len(file_lines)} lines; line {first} is behind its end."
    if last < first:
        return f"The range {first} to {end} holds no line; {relative} has {len(file_lines)} lines."
    shown = min(last, first + lines - 1)
    stops = {each.line for each in pdb.breakpoints if each.file == ROOT + relative}
    width = len(str(shown))
    body = [
        line if bare else f"{'B' if number in stops else ' '} {number:>{width}} {line}"
        for number, line in enumerate(file_lines[first - 1 : shown], first)
    ]
    head = f"{relative}, lines {first} to {shown} of {len(file_lines)}"
    head += " (read-only):" if files.is_read_only(relative) else ":"
    more = f"[{last - shown} more lines: view {relative} with start {shown + 1}.]"
    return "\n".join([head, *body, *([more] if shown < last else [])])


def _without_end(line: str) -> str:
    """Returns a line without the last character of its end: Python also ends a line at a lone CR."""
    return line[:-1] if line.endswith(("\n", "\r")) else line


def rewrite(
    files: TaskFiles, pdb: PdbSession, path: str, start: int, end: int, code: str
) -> tuple[str, bool]:
    """Replaces lines. Returns (text for the policy, whether the file changed). start, end: 0 if not given."""
    relative = files.relative(path)
    if not relative or (text := files.text(relative)) is None:
        return f"There is no file {path}; rewrite makes no new ones.", False
    if files.is_read_only(relative):
        return f"{relative} is read-only and stays as it is.", False
    before = python_lines(text)
    new = [f"{line}\n" for line in code.split("\n")]
    if code.endswith("\n"):
        new.pop()
    if not start and not end:
        after = new
    else:
        first, last = start or 1, end or start
        if first < 1 or last < first:
            return f"The range {first} to {last} holds no line.", False
        if first > len(before) and before and not before[-1].endswith("\n"):
            before[-1] += "\n"
        after = [*before[: first - 1], *new, *before[last:]]
    changed = "".join(after)
    if changed == text:
        return f"{relative} is as it was: the new code is the old.", False
    try:
        files.sandbox.put(relative, changed.encode("utf-8", "surrogateescape"))
    except (PathRefused, OSError, UnicodeError) as error:
        return f"{relative} was not changed: {error}.", False
    old, now = (list(map(_without_end, each)) for each in (before, after))
    diff = "\n".join(diff_lines(old, now, relative))
    told = pdb.move_breakpoints(relative, old, now)
    return f"{relative} was rewritten:\n{diff}" + (f"\n{told}" if told else ""), True


def grep(files: TaskFiles, sandbox: Sandbox, limits: Limits, pattern: str, path: str, most: int) -> str:
    """Returns at most `most` matching lines of files."""
    place = _inside(files, path)
    if place is None:
        return f"{path} lies outside the working folder."
    settings = {
        "pattern": shlex.quote(pattern),
        "path": shlex.quote(place),
        "width": LONGEST_LINE,
        "lines": 5000,
    }
    result = sandbox.exec(_GREP.format(**settings), limits=limits)
    lines = [line.removeprefix("./") for line in lines_of(result.output.decode("utf-8", "replace"))]
    if result.returncode == 2:
        return "\n".join(lines[:5]) or "grep failed."
    if result.timed_out:
        return f"grep was stopped after {limits.wall_seconds:g} s."
    shown = [line for line in lines if not files.is_hidden(line.partition(":")[0])]
    more = [f"[{len(shown) - most} more lines match.]"] if len(shown) > most else []
    return "\n".join([*shown[:most], *more]) or f"No line matches {pattern!r}."


def listdir(files: TaskFiles, path: str, depth: int) -> str:
    """Returns a list of a folder's files, `depth` levels deep."""
    place = _inside(files, path)
    if place is None:
        return f"{path} lies outside the working folder."
    command = _LIST.format(path=shlex.quote(place), depth=max(1, min(depth, 20)))
    found = files.sandbox.exec(f"test -d {shlex.quote(place)} || exit 3; {command}")
    if found.returncode == 3:
        return f"There is no file or folder {path}."
    base, shown = files.relative(path), []
    for line in lines_of(found.output.decode("utf-8", "replace")):
        kind, _, name = line.partition(" ")
        whole = f"{base}/{name}" if base else name
        if not files.is_hidden(whole):
            shown.append(f"{whole}/" if kind == "d" else whole)
    return "\n".join(files.list_paths(shown)) or f"{path} is empty."


def _inside(files: TaskFiles, path: str) -> str | None:
    """Returns a path for a command in the working folder, or None if the path is outside of that folder."""
    found = files.relative(path)
    return f"./{found}" if found else "." if files.relative(f"{path}/x") == "x" else None


class DebuggerEnvironment(SandboxEnvironment):
    """A `SandboxEnvironment` whose actions have `tool` and `arguments`. A pdb session may last until the
    rollout ends."""

    def __init__(self, sandbox: Sandbox, base: str, scaffold: MiniLoop, task: Task) -> None:
        super().__init__(sandbox, base, scaffold)
        self.task = task
        self.settings = scaffold.debugger or DebuggerSettings()
        self.files = TaskFiles.of(sandbox, task)
        self.pdb = PdbSession(sandbox, scaffold, self.settings, self.files)
        self.counts: Counter[str] = Counter()
        self.rewrites = 0
        self.last_eval: int | None = None
        self.entrypoint = self.settings.entrypoint or task.entrypoint or self._usual_entrypoint()
        self._tools: dict[str, Callable[[Record], tuple[str, int]]] = {
            "pdb": self._pdb,
            "view": self._view,
            "rewrite": self._rewrite,
            "eval": self._eval,
            "grep": self._grep,
            "listdir": self._listdir,
            "bash": self._bash,
            "submit": self._submit,
        }

    def _usual_entrypoint(self) -> str:
        files = " ".join(self.task.failing_files) or self.files.test_file
        return f"python -m pytest --tb=short -sq {files}".rstrip()

    def execute(self, action: Record, cwd: str = "") -> Record:
        """Executes one call. Returns {"output", "returncode", "exception_info", "seconds", "tool"}. Raises
        Submitted, SandboxError, and LimitsExceeded after the recipe's maximum number of rewrites."""
        tool, arguments = action["tool"], action["arguments"]
        self.counts[tool] += 1
        began = time.monotonic()
        if "\0" in "".join(value for value in arguments.values() if isinstance(value, str)):
            output, code = "An argument holds a NUL character, which no tool takes.", 2
        else:
            output, code = self._tools[tool](arguments)
        seconds = round(time.monotonic() - began, 3)
        return {"output": output, "returncode": code, "exception_info": "", "seconds": seconds, "tool": tool}

    def _pdb(self, given: Record) -> tuple[str, int]:
        return self.pdb.run(given["command"], given.get("runner", ""), given.get("file", "")), 0

    def _view(self, given: Record) -> tuple[str, int]:
        bare = not given.get("include_line_numbers_and_breakpoints", True)
        place = (given["path"], given.get("start", 0), given.get("end", 0))
        return view(self.files, self.pdb, self.settings.view_lines, *place, bare), 0

    def _rewrite(self, given: Record) -> tuple[str, int]:
        most = self.settings.max_rewrite_steps
        if 0 < most <= self.rewrites:
            extra = {"exit_status": "LimitsExceeded", "submission": "", "limit": "max_rewrite_steps"}
            raise LimitsExceeded({"role": "exit", "content": "LimitsExceeded", "extra": extra})
        place = (given["path"], given.get("start", 0), given.get("end", 0))
        text, changed = rewrite(self.files, self.pdb, *place, given["new_code"])
        self.rewrites += changed
        return text, 0 if changed else 1

    def _eval(self, given: Record) -> tuple[str, int]:
        command = f"{self.scaffold.prelude}\n{self.entrypoint}" if self.scaffold.prelude else self.entrypoint
        result = self.sandbox.exec(command, env=self.scaffold.environment, limits=self.limits)
        text = SECONDS.sub("", result.output.decode("utf-8", "replace")).strip()
        if result.limit not in ("", "output"):
            text += f"\n[The tests were stopped at their {result.limit} limit.]"
        self.last_eval = result.returncode
        if result.returncode == 0 and self.settings.end_on_pass:
            self._submit({})
        return f"{text}\n[exit code {result.returncode}]", result.returncode

    def _grep(self, given: Record) -> tuple[str, int]:
        most = max(1, given.get("max_results", 100))
        wanted = (given["pattern"], given.get("path", "."), most)
        return grep(self.files, self.sandbox, self.limits, *wanted), 0

    def _listdir(self, given: Record) -> tuple[str, int]:
        return listdir(self.files, given.get("path", "."), given.get("depth", 1)), 0

    def _bash(self, given: Record) -> tuple[str, int]:
        told = super().execute(given)
        bound = f"\n[{told['exception_info']}]" if told["exception_info"] else ""
        return f"{told['output']}{bound}\n[exit code {told['returncode']}]", told["returncode"]

    def _submit(self, given: Record) -> tuple[str, int]:
        extra = {"exit_status": "Submitted", "submission": self.diff()}
        raise Submitted({"role": "exit", "content": "", "extra": extra})

    def get_template_vars(self, **kwargs: Any) -> Record:
        """Returns the variables of prompt templates: the files, the tools' definitions as text, and the
        command of `eval`."""
        told = {"tree": self.files.tree(), "tools": in_words(definitions(self.settings))}
        return {**told, "entrypoint": self.entrypoint, **kwargs}

    def serialize(self) -> Record:
        """Returns facts about the tools for the trajectory: the offered tools, the calls of each tool, and
        counts of pdb sessions."""
        config = {"environment_type": "swelab.sandbox.Sandbox", "tools": definitions(self.settings)}
        counts: Record = {"calls": dict(self.counts), "rewrites": self.rewrites}
        counts |= {"last_eval": self.last_eval, "pdb": dict(self.pdb.counts)}
        return {"info": {"config": config, "debugger": counts}}

    def unsubmitted_patch(self) -> str:
        """Returns the diff against the base commit, however the rollout ended. Raises SandboxError."""
        return self.diff()

    def close(self) -> None:
        """Ends the pdb session. Raises SandboxLost."""
        self.pdb.close()


NO_MARKER = "\n"
"""The marker in a command's output that submits the patch in other agents. No line of output can equal this
value, so no command submits."""
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}


class Debugger:
    """See `agents.agent.Agent`."""

    def complete(self, scaffold: DebuggerScaffold) -> MiniLoop:
        """Converts the recipe to loop settings. The section `debugger` gets the settings that only this agent
        has."""
        given = scaffold.plain()
        own = {name: given.pop(name) for name in DebuggerSettings.model_fields if name in given}
        told: dict[str, Any] = {**given, "debugger": own, "action_regex": "", "submit_marker": NO_MARKER}
        return MiniLoop.model_validate(told | {"prelude": PRELUDE, "environment": ENVIRONMENT})

    def form(self, scaffold: MiniLoop) -> Form:
        """Returns the form for calls of the recipe's tools."""
        settings = scaffold.debugger or DebuggerSettings()
        return ToolForm(
            definitions(settings),
            settings.calls,
            observation_template=scaffold.observation_template,
            format_error_template=scaffold.format_error_template,
            max_observation_chars=scaffold.max_observation_chars,
        )

    def attempt(self, task: Task, model: Any, sandbox: Sandbox, base: str, scaffold: MiniLoop) -> Rollout:
        """See `run_rollout`. Takes the patch however the rollout ends, if the sandbox is still alive."""
        environment = partial(DebuggerEnvironment, task=task)
        record = run_rollout(task, model, sandbox, base, scaffold, environment=environment)
        record.info["debugger"]["malformed_turns"] = sum(map(is_refusal, record.messages))
        return record
