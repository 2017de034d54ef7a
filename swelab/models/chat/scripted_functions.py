"""A scripted policy that writes whole functions: a script that knows the gold patch.

The script looks only at what the issue names: it shows the function, writes the function again with the gold
patch's lines, runs the failing test's file, and submits. On a random share of the tasks (drawn with the
seed), its first edit is wrong; it sees the test fail, looks again, and writes the right function. On another
share it gives up.
"""

from swelab.configs.kinds.policy import ScriptedPolicy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.scripted import failing_test_command, failures, gold_edit, wrong_lines
from swelab.models.chat.text_model import TextModel
from swelab.records import InputError, Record
from swelab.records.task_records import Task

END = "END"
"""The line that ends a function in an edit."""


class FunctionScript(TextModel):
    """The script for one task, with mini-swe-agent's Model protocol. Its messages contain no times.

    The scaffold's prelude offers two commands: `show PATH NAME` prints a function, and `edit PATH NAME`
    replaces it by standard input.
    """

    timed = False

    def __init__(self, task: Task, policy: ScriptedPolicy, scaffold: MiniLoop):
        """Raises InputError if the scaffold has no prelude, or the task names no function."""
        super().__init__(scaffold, name="scripted policy")
        if not scaffold.prelude:
            raise InputError("no prelude", "the scaffold of a policy with edits: function", "show and edit")
        hint = task.hint or {}
        if "function" not in task or "line" not in hint:
            raise InputError("no function", task.instance_id, "a task of a forge, for edits: function")
        self.task = task
        self.path, _, self.function = task.function.partition("::")
        self.line: int = hint["line"]
        self.gives_up, self.errs = failures(policy, task)

    def query(self, messages: list[Record], **_: object) -> Record:
        """Returns the script's next turn, as an assistant message."""
        turn = sum(message["role"] == "assistant" for message in messages)
        shown = str(messages[3]["content"]) if turn else ""
        return self.reply(f"```bash\n{self._command(turn, shown)}\n```")

    def _command(self, turn: int, shown: str) -> str:
        """Returns the command of a turn, counted from 0. shown: the first turn's observation."""
        show = f"show {self.path} {self.function}"
        edits = self._edits(shown.partition("\n")[2].rstrip("\n").split("\n")) if turn else []
        plan = [show]
        for text in edits:
            plan += [
                f"edit {self.path} {self.function} <<'{END}'\n{text}\n{END}",
                failing_test_command(self.task),
                show,
            ]
        plan = plan[:-1] if edits else plan
        return plan[turn] if turn < len(plan) else f"echo {self.scaffold.submit_marker}"

    def _edits(self, lines: list[str]) -> list[str]:
        """Returns the texts of the function that the script writes, one after the other: none if it gives up,
        or if the shown lines are not those of the gold patch."""
        edit = gold_edit(self.task)
        start = edit.number - self.line
        end = start + len(edit.before)
        if self.gives_up or start < 0 or lines[start:end] != edit.before:
            return []
        wrong = wrong_lines(edit) if self.errs and edit.before else []
        texts = [wrong, edit.after] if wrong else [edit.after]
        return ["\n".join([*lines[:start], *text, *lines[end:]]) for text in texts]
