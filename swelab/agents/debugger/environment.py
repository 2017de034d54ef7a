"""Executes the calls of the debugger agent's tools in a sandbox."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from minisweagent.exceptions import LimitsExceeded, Submitted

from swelab.agents.debugger import file_tools
from swelab.agents.debugger.definitions import definitions, in_words
from swelab.agents.debugger.pdb_session import SECONDS, PdbSession
from swelab.agents.debugger.task_files import TaskFiles
from swelab.agents.mini import SandboxEnvironment
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.records import Record
from swelab.records.task_records import Task
from swelab.sandbox import Sandbox


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
        return file_tools.view(self.files, self.pdb, self.settings.view_lines, *place, bare), 0

    def _rewrite(self, given: Record) -> tuple[str, int]:
        most = self.settings.max_rewrite_steps
        if 0 < most <= self.rewrites:
            extra = {"exit_status": "LimitsExceeded", "submission": "", "limit": "max_rewrite_steps"}
            raise LimitsExceeded({"role": "exit", "content": "LimitsExceeded", "extra": extra})
        place = (given["path"], given.get("start", 0), given.get("end", 0))
        text, changed = file_tools.rewrite(self.files, self.pdb, *place, given["new_code"])
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
        return file_tools.grep(self.files, self.sandbox, self.limits, *wanted), 0

    def _listdir(self, given: Record) -> tuple[str, int]:
        return file_tools.listdir(self.files, given.get("path", "."), given.get("depth", 1)), 0

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
