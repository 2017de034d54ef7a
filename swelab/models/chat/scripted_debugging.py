"""A scripted policy with the debugger agent's tools: a script that knows the gold patch.

The script stops in pdb at the start of the failing test and prints the tested value. Then it finds and views
the function that the issue names, rewrites the line, and runs the tests. If only a test shows the right
number, pdb computes the number. If the scaffold has no pdb tool, the script reads the test instead. Before
each call, the script repeats the issue's request and pdb's number, because small models copy from the
preceding text. On a random share of the tasks (drawn with the seed), the script fails on purpose.
"""

import re

from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.kinds.policy import ScriptedPolicy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.scripted import Edit, failures, gold_edit, wrong_lines
from swelab.models.chat.text_model import TextModel
from swelab.models.chat.tool_form import ToolForm
from swelab.records import InputError, Record, shorten
from swelab.records.task_records import Task

Call = tuple[str, Record]
"""The name of a tool, and the arguments of the call."""
_CASE = re.compile(r"assert (\w+\(.*\)) == (.+)$", re.MULTILINE)
_ADDED = re.compile(r"(?<=[+\-*] )\d+$")
_ONE_NUMBER = re.compile(r"\w+\((\d+)\)$")
LONGEST_THOUGHT = 300
"""Maximum number of characters of the issue's line that the script repeats."""


def asked_line(issue: str, name: str, number: str = "") -> str:
    """Returns the first line of the issue that contains the function's name, or else the first line. Appends
    `number`, the number to add, unless it is empty."""
    lines = issue.strip().splitlines() or [""]
    found = next((line for line in lines if name and re.search(rf"\b{re.escape(name)}\b", line)), lines[0])
    return shorten(found, LONGEST_THOUGHT) + (f" It is {number}." if number else "")


class ScriptedDebugger(TextModel):
    """The script for one task, with mini-swe-agent's Model protocol. Its messages contain no times."""

    timed = False

    def __init__(self, task: Task, policy: ScriptedPolicy, scaffold: MiniLoop):
        """Checks the tools. Raises InputError if the scaffold lacks a tool that the script uses."""
        super().__init__(scaffold, name="scripted policy")
        settings = scaffold.debugger or DebuggerSettings()
        missing = {"view", "rewrite", "eval", "grep"} - {*settings.tools}
        if missing:
            told = f"tools without {', '.join(sorted(missing))}"
            raise InputError(told, "the scaffold of a scripted policy", "view, rewrite, eval and grep")
        self.task, self.debugs = task, "pdb" in settings.tools
        self.gives_up, self.errs = failures(policy, task)

    def query(self, messages: list[Record], **_: object) -> Record:
        """Returns the script's next turn, as an assistant message that calls one tool."""
        turn = sum(message["role"] == "assistant" for message in messages)
        said = [str(message["content"]) for message in messages]
        name, arguments = self._call(turn, said)
        assert isinstance(self.form, ToolForm)
        thought = asked_line(self.task.problem_statement, self._name(), self._number(turn, said))
        return self.reply(*self.form.format_call(thought, name, arguments, turn))

    def _number(self, turn: int, outputs: list[str]) -> str:
        """Returns the number that pdb printed in the second turn. Returns "" unless the bug is an unknown
        number."""
        if not self.debugs or self.task.op != "offset_change" or turn < 2:
            return ""
        printed = outputs[3 - 2 * turn].strip()
        return printed if printed.isdecimal() else ""

    def _call(self, turn: int, outputs: list[str]) -> Call:
        if not self.task.patch or self.gives_up and turn > 1:
            return self._end()
        edit = gold_edit(self.task, replacing=True)
        looks = self._looks(self.task.FAIL_TO_PASS[0], outputs[-1] if turn == 1 else "", edit)
        steps = [*looks, self._definition_call(), self._view(edit), self._rewrite(edit), ("eval", {})]
        return steps[turn] if turn < len(steps) else self._end()

    def _definition_call(self) -> Call:
        """Returns the call that prints the function's first line.

        The next call views the file from that line.
        """
        return ("grep", {"pattern": f"def {self._name()}"}) if self._name() else ("eval", {})

    def _view(self, edit: Edit) -> Call:
        start = (self.task.hint or {}).get("line", edit.number)
        last = edit.number + max(len(edit.before), 1)
        return "view", {"path": edit.path, "start": start, "end": last}

    def _looks(self, test: str, output: str, edit: Edit) -> list[Call]:
        """Returns the calls that examine the test, before the script looks at the function."""
        file, _, name = test.partition("::")
        if not self.debugs:
            return [("grep", {"pattern": f"assert {self._name()}".rstrip(), "path": file})]
        begun: Call = ("pdb", {"command": "start", "file": test})
        return [begun, ("pdb", {"command": self._print_command(output, edit)})]

    def _print_command(self, output: str, edit: Edit) -> str:
        """Returns the pdb command that prints the number to add. If that is not possible, the command prints
        the function's value in the first test case."""
        case = _CASE.search(output)
        if case is None:
            return "l ."
        called, expected = case[1], case[2]
        alone, after = _ONE_NUMBER.search(called), edit.after[0] if edit.after else ""
        if self.task.op == "offset_change" and alone and expected.isdecimal() and _ADDED.search(after):
            return f"p {expected} - {alone[1]}"
        return f"p {called}"

    def _rewrite(self, edit: Edit) -> Call:
        """Returns the call that makes the repair, or a wrong edit."""
        after = wrong_lines(edit) if self.errs else edit.after
        if not edit.before:
            raise InputError("the patch adds a whole file", self.task.instance_id, "one that changes a file")
        end = edit.number + len(edit.before) - 1
        place: Record = {"path": edit.path, "start": edit.number}
        return "rewrite", place | ({"end": end} if end > edit.number else {}) | {"new_code": "\n".join(after)}

    def _end(self) -> Call:
        assert isinstance(self.form, ToolForm)
        offered = {tool["function"]["name"] for tool in self.form.tools}
        return ("submit", {}) if "submit" in offered else ("eval", {})

    def _name(self) -> str:
        return self.task.function.rpartition("::")[2].rpartition(".")[2]
