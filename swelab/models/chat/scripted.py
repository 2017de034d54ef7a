"""A scripted policy: instead of a model, a script that knows the gold patch.

The script acts like a person in a hurry. It looks at the function that the issue names, edits the line, runs
the failing test, and submits. On a random share of the tasks (drawn with the seed), the script fails on
purpose: it makes a wrong edit or gives up. So rejection sampling has something to reject. The script replaces
a hosted expert.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from unidiff import PatchSet

from swelab.configs.kinds.policy import Policy, ScriptedPolicy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.chat.sed_edit import substitution
from swelab.models.chat.text_model import TextModel
from swelab.records import InputError, Record, digest, read_records
from swelab.records.attempt_records import Prediction
from swelab.records.task_records import Task

TEST = "python -m pytest -qq"
QUIET = " --tb=no -p no:cacheprovider"
"""pytest options that exclude timings from the output and prevent cache files. Used for repositories that do
not set these options."""
WRONG = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "<": ">",
    ">": "<",
    "==": "!=",
    "!=": "==",
    "and": "or",
    "or": "and",
}
_VARIABLES = re.compile(r"^(?:[A-Z_]+=\S+ )*")
_SETTINGS = re.compile(r" -o \S+")
_TOKEN = re.compile(r"(?<= )(\+|-|\*|/|<|>|==|!=|and|or)(?= )")


@dataclass(frozen=True)
class Edit:
    """A fix of the file with the bug. number: 1-based first line. before: the current lines. after: the fixed
    lines."""

    path: str
    number: int
    before: list[str]
    after: list[str]


def gold_edit(task: Task, replacing: bool = False) -> Edit:
    """Returns the smallest block of lines that repairs the first hunk of the task's patch.

    If the task's patch is the bug (SWE-smith), the block reverts it. If the patch is the fix (SWE-bench), the
    block applies it. replacing: whether a block for a repair that only adds lines also replaces an adjacent
    line. Raises InputError if the patch has no hunk.
    """
    hunks = [(file.path, hunk) for file in PatchSet(task.patch) for hunk in file]
    if not hunks:
        raise InputError("the patch changes no text", task.instance_id, "a patch with a hunk")
    path, hunk = hunks[0]
    source = [line.value.rstrip("\n") for line in hunk if not line.is_added]
    target = [line.value.rstrip("\n") for line in hunk if not line.is_removed]
    clean, buggy, start = source, target, hunk.target_start
    if not task.is_bug:
        clean, buggy, start = target, source, hunk.source_start
    lead = 0
    while lead < min(len(clean), len(buggy)) and clean[lead] == buggy[lead]:
        lead += 1
    tail = 0
    while tail < min(len(clean), len(buggy)) - lead and clean[-1 - tail] == buggy[-1 - tail]:
        tail += 1
    if replacing and lead + tail == len(buggy):
        lead, tail = (lead - 1, tail) if lead else (lead, max(tail - 1, 0))
    return Edit(
        path,
        start + lead,
        buggy[lead : len(buggy) - tail],
        clean[lead : len(clean) - tail],
    )


def gold_command(task: Task) -> str:
    """Returns one shell command that repairs the task: an edit if the patch has one hunk, otherwise the whole
    patch."""
    patch = task.patch
    files = PatchSet(patch)
    one = len(files) == 1 and files[0].is_modified_file and len(files[0]) == 1
    if one and "\n\\ No newline" not in patch:
        return edit_command(gold_edit(task))
    end = f"END_{digest(patch)[:12]}"
    way = "-R " if task.is_bug else ""
    return f"git apply --whitespace=nowarn {way}- <<'{end}'\n{patch.removesuffix(chr(10))}\n{end}"


def edit_command(edit: Edit) -> str:
    """Returns one shell command that makes the edit: a sed substitution for one line, otherwise a replaced
    block."""
    if len(edit.before) == len(edit.after) == 1:
        expression = substitution(edit.before[0], edit.after[0])
        if expression:
            return f"sed -i {quote(f'{edit.number}{expression}')} {edit.path}"
    last = edit.number + len(edit.before) - 1
    text = "\\\n".join(line.replace("\\", "\\\\") for line in edit.after)
    # A leading backslash makes sed keep the first line's indentation.
    if not edit.before:
        where, action = (edit.number - 1, "a") if edit.number > 1 else (1, "i")
        script = f"{where}{action}\\\n\\{text}" if text[:1].isspace() else f"{where}{action}\\\n{text}"
    elif not edit.after:
        script = f"{edit.number},{last}d"
    else:
        script = f"{edit.number},{last}c\\\n" + (f"\\{text}" if text[:1].isspace() else text)
    return f"sed -i {quote(script)} {edit.path}"


def wrong_command(edit: Edit) -> str:
    """Returns a command for a wrong edit.

    The edit changes an operator of the line wrongly, or adds a comment.
    """
    line = edit.before[0] if edit.before else ""
    for changed in mutations(line):
        if [changed] == edit.after:
            continue
        expression = substitution(line, changed)
        if expression:
            return f"sed -i {quote(f'{edit.number}{expression}')} {edit.path}"
    return f"sed -i '{edit.number}s/$/  # checked/' {edit.path}"


def wrong_lines(edit: Edit) -> list[str]:
    """Returns the lines of a wrong edit. In the first line, an operator is changed or a comment is added."""
    line, *others = edit.before or [""]
    changed = (changed for changed in mutations(line) if [changed] != edit.after)
    return [next(changed, f"{line}  # checked"), *others]


def mutations(line: str) -> Iterator[str]:
    """Yields versions of a line with one operator changed."""
    for match in _TOKEN.finditer(line):
        yield line[: match.start()] + WRONG[match[0]] + line[match.end() :]


def failing_test_command(task: Task) -> str:
    """Returns the command that runs the first failing test's file, with the variables and `-o` settings of
    the task's own test command."""
    variables, settings = _VARIABLES.findall(task.test_cmd)[0], "".join(_SETTINGS.findall(task.test_cmd))
    quiet = "" if task.source == "drill" else QUIET
    return f"{variables}{TEST}{settings}{quiet} {task.FAIL_TO_PASS[0].partition('::')[0]}"


def quote(text: str) -> str:
    """Quotes `text` for a shell, with single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def read_repairs(policy: Policy) -> dict[str, str]:
    """Returns the repairs in the file that a policy's recipe names, keyed by instance id. Returns {} without
    a file. Raises InputError."""
    if policy.kind != "scripted" or not policy.repairs:
        return {}
    rows = read_records([Path(policy.repairs).expanduser()], Prediction)
    return {row.instance_id: row.model_patch or "" for _, row in rows}


def with_repair(task: Task, repairs: Mapping[str, str]) -> Task:
    """Returns the task, with the known repair as its patch if the task has no repair of its own."""
    if task.answers != "none" or not repairs.get(task.instance_id):
        return task
    return task | {"patch": repairs[task.instance_id], "version": "repaired"}  # not `is_bug`


def failures(policy: ScriptedPolicy, task: Task) -> tuple[bool, bool]:
    """Returns (whether the script gives up, whether it edits wrongly), drawn with the policy's seed."""
    draw = int(digest([policy.seed, task.instance_id])[:12], 16) / 16**12
    gives_up = draw < policy.give_up
    return gives_up, not gives_up and draw < policy.give_up + policy.wrong_edit


class ScriptedModel(TextModel):
    """The script for one task, with mini-swe-agent's Model protocol. Its messages contain no times, so the
    same script on the same task gives the same bytes."""

    timed = False

    def __init__(self, task: Task, policy: ScriptedPolicy, scaffold: MiniLoop):
        super().__init__(scaffold, name="scripted policy")
        self.task, self.policy = task, policy
        self.gives_up, self.errs = failures(policy, task)

    def query(self, messages: list[Record], **_: object) -> Record:
        """Returns the script's next turn, as an assistant message."""
        turn = sum(message["role"] == "assistant" for message in messages)
        command = self._command(turn, messages[-1]["content"])
        return self.reply(f"```bash\n{command}\n```")

    def _command(self, turn: int, output: str) -> str:
        submit = f"echo {self.scaffold.submit_marker}"
        if not self.task.patch:
            return submit  # no repair is known
        edit = gold_edit(self.task)
        if turn == 0:
            return self._look(edit)
        if turn == 1:
            found = "function" not in self.task or all(line in output for line in edit.before)
            if self.gives_up or not found:
                return submit
            return wrong_command(edit) if self.errs else gold_command(self.task)
        if turn == 2:
            return failing_test_command(self.task)
        return submit

    def _look(self, edit: Edit) -> str:
        """Returns the command that shows the function down to the bug, or the lines around the bug if the
        task names no function."""
        hint = self.task.hint or {}
        if "function" not in self.task:
            return f"sed -n '{max(1, edit.number - 5)},{edit.number + len(edit.before) + 5}p' {edit.path}"
        name = self.task.function.rpartition("::")[2].rpartition(".")[2]
        start = hint.get("line", edit.number)
        below = max(2, edit.number + len(edit.before) - 1 - start)
        return f"grep -n -A{below} 'def {name}' {edit.path}"
