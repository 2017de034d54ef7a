"""A scripted policy that replaces lines of functions: a script that knows the gold patch.

The script looks only at what the issue names: it shows the function, and replaces the lines that the gold
patch changes. The scaffold runs the failing test's file, and submits if it passes. On a random share of the
tasks (drawn with the seed), the script makes a wrong replacement first. On another share it gives up.
"""

import difflib

from unidiff import PatchSet

from swelab.configs.kinds.policy import ScriptedPolicy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.scripted import failing_test_command, failures, mutations, quote
from swelab.models.chat.text_model import TextModel
from swelab.records import InputError, Record
from swelab.records.task_records import Task

END = "END"
"""The line that ends a replacement."""


class FunctionScript(TextModel):
    """The script for one task, with mini-swe-agent's Model protocol. Its messages contain no times.

    The scaffold's prelude offers two commands: `show PATH NAME COMMAND` prints a function, and `fix` replaces
    lines of it as standard input says, if COMMAND then succeeds.
    """

    timed = False

    def __init__(self, task: Task, policy: ScriptedPolicy, scaffold: MiniLoop):
        """Raises InputError if the scaffold has no prelude, or the task names no function."""
        super().__init__(scaffold, name="scripted policy")
        if not scaffold.prelude:
            raise InputError("no prelude", "the scaffold of a policy with edits: function", "show and fix")
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
        if turn == 0:
            return f"show {self.path} {self.function} {quote(failing_test_command(self.task))}"
        fixes = self._fixes(shown.partition("\n")[2].rstrip("\n").split("\n"))
        return fixes[turn - 1] if turn <= len(fixes) else f"echo {self.scaffold.submit_marker}"

    def _fixes(self, lines: list[str]) -> list[str]:
        """Returns the commands that the script gives one after the other: none if it gives up, or if the
        shown lines are not those of the gold patch."""
        clean = [] if self.gives_up else repair_of(self.task, self.line, lines)
        texts = [replacement(lines, clean)] if clean else []
        if texts and self.errs:
            texts.insert(0, replacement(lines, _wrong(lines, clean)))
        return [f"fix <<'{END}'\n{text}\n{END}" for text in texts]


def repair_of(task: Task, first: int, lines: list[str]) -> list[str]:
    """Returns a function's lines after the gold patch, or [] if the patch does not fit them.
    first: 1-based number of the first of `lines` in the file with the bug."""
    result = list(lines)
    for hunk in reversed([hunk for file in PatchSet(task.patch) for hunk in file]):
        buggy = [
            line.value.rstrip("\n")
            for line in hunk
            if not (line.is_removed if task.is_bug else line.is_added)
        ]
        clean = [
            line.value.rstrip("\n")
            for line in hunk
            if not (line.is_added if task.is_bug else line.is_removed)
        ]
        start = (hunk.target_start if task.is_bug else hunk.source_start) - first
        matcher = difflib.SequenceMatcher(None, buggy, clean, autojunk=False)
        for kind, low, high, new_low, new_high in reversed(matcher.get_opcodes()):
            if kind == "equal":
                continue
            if start + low < 0 or lines[start + low : start + high] != buggy[low:high]:
                return []
            result[start + low : start + high] = clean[new_low:new_high]
    return result


def replacement(old: list[str], new: list[str]) -> str:
    """Returns the text for `fix`: for each block of changed lines, the old lines with "-" and the new ones
    with "+". Lines before a block are added to it until both parts have a line, and the old part occurs
    once."""
    blocks = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, low, high, new_low, new_high in matcher.get_opcodes():
        if kind == "equal":
            continue
        while low and (low == high or new_low == new_high or _count(old, old[low:high]) > 1):
            low, new_low = low - 1, new_low - 1
        if low == high:
            high, new_high = high + 1, new_high + 1
        blocks += [f"-{line}" for line in old[low:high]] + [f"+{line}" for line in new[new_low:new_high]]
    return "\n".join(blocks)


def _count(lines: list[str], part: list[str]) -> int:
    return sum(lines[i : i + len(part)] == part for i in range(len(lines)))


def _wrong(lines: list[str], clean: list[str]) -> list[str]:
    """Returns the lines with one operator changed, which is not the repair, or with a comment at the end."""
    for number, line in enumerate(lines):
        for changed in mutations(line):
            wrong = [*lines[:number], changed, *lines[number + 1 :]]
            if wrong != clean:
                return wrong
    return [*lines[:-1], f"{lines[-1]}  # checked"]
