"""Defines the debugger agent's tools for a model, in the form of the chat-completion API.

The descriptions `full` are complete. The descriptions `short` have the same names and arguments, but only a
few hundred tokens.
"""

from collections.abc import Sequence

from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.records import Record

_TEXT, _NUMBER, _FLAG = "string", "integer", "boolean"
_Arguments = dict[str, tuple[str, str]]

FULL: dict[str, tuple[str, _Arguments, list[str]]] = {
    "pdb": (
        "Speaks to Python's debugger. `start` begins a session: with runner python it debugs the script "
        "`file`, with runner pytest the tests of `file`, or one test as file::test, from its first line. "
        "Without them it starts what was started last, or the tests of the task. Any other command goes to "
        "the running session, one line a call, such as: b file.py:12, b file.py:12, x > 3, tbreak, cl 1, "
        "disable 1, c, n, s, r, until 20, p x, pp x, w, u, d, l, a, q. Breakpoints outlive a session and "
        "move with edits.",
        {
            "command": (_TEXT, "start, or one line for pdb"),
            "runner": (_TEXT, "with start: python or pytest"),
            "file": (_TEXT, "with start: the script, the file of tests, or file::test"),
        },
        ["command"],
    ),
    "view": (
        "Shows a file, at most {view_lines} lines at once, with line numbers; B marks a breakpoint. Of a "
        "folder, what is in it.",
        {
            "path": (_TEXT, "a file or folder, relative to the working folder"),
            "start": (_NUMBER, "first line, from 1"),
            "end": (_NUMBER, "last line, shown too"),
            "include_line_numbers_and_breakpoints": (_FLAG, "false shows the bare text; true where absent"),
        },
        ["path"],
    ),
    "rewrite": (
        "Puts `new_code` in place of the lines from `start` to `end` of a file, both counted from 1 and "
        "replaced too. Without `end` it replaces the one line, without both the whole file. A `start` behind "
        "the last line appends. Shows what changed. It makes no new files, and tests and read-only files "
        "stay as they are.",
        {
            "path": (_TEXT, "the file, relative to the working folder"),
            "start": (_NUMBER, "first line that is replaced"),
            "end": (_NUMBER, "last line that is replaced"),
            "new_code": (_TEXT, "the new lines, with their indentation"),
        },
        ["path", "new_code"],
    ),
    "eval": ("Runs the tests of the task and shows what they print.", {}, []),
    "grep": (
        "Finds lines by an extended regular expression.",
        {
            "pattern": (_TEXT, "the regular expression"),
            "path": (_TEXT, "a file or folder; the working folder where absent"),
            "max_results": (_NUMBER, "lines to show at most; 100 where absent"),
        },
        ["pattern"],
    ),
    "listdir": (
        "Lists the files of a folder.",
        {
            "path": (_TEXT, "the folder; the working folder where absent"),
            "depth": (_NUMBER, "levels of folders; 1 where absent"),
        },
        [],
    ),
    "bash": ("Runs a shell command.", {"command": (_TEXT, "the command")}, ["command"]),
    "submit": ("Ends the work; the files are taken as they are.", {}, []),
}
"""Maps a tool's name to what the tool does, its arguments with types and meanings, and its required
arguments."""
SHORT = {
    "pdb": "Python debugger: start (runner python or pytest, file), then one pdb command a call",
    "view": "show lines of a file",
    "rewrite": "replace lines start to end of a file by new_code",
    "eval": "run the tests",
    "grep": "find lines by a regular expression",
    "listdir": "list a folder",
    "bash": "run a shell command",
    "submit": "end the work",
}
CHOICES = {("pdb", "runner"): ["python", "pytest"]}


def definitions(settings: DebuggerSettings) -> list[Record]:
    """Returns the definitions of the tools that a recipe offers, in the recipe's order."""
    return [_definition(name, settings) for name in settings.tools]


def _definition(name: str, settings: DebuggerSettings) -> Record:
    about, arguments, required = FULL[name]
    short = settings.tool_descriptions == "short"
    properties: Record = {}
    for argument, (kind, meaning) in arguments.items():
        properties[argument] = {"type": kind}
        if (name, argument) in CHOICES:
            properties[argument]["enum"] = CHOICES[name, argument]
        if not short:
            properties[argument]["description"] = meaning
    function = {
        "name": name,
        "description": SHORT[name] if short else about.replace("{view_lines}", str(settings.view_lines)),
        "parameters": {"type": "object", "properties": properties, "required": required},
    }
    return {"type": "function", "function": function}


def in_words(tools: Sequence[Record]) -> str:
    """Returns tool definitions as text, for prompts of models that do not use an API's tool calls."""
    return "\n".join(_describe(tool["function"]) for tool in tools)


def _describe(function: Record) -> str:
    needed = function["parameters"]["required"]
    lines = [f"{function['name']}: {function['description']}"]
    for name, told in function["parameters"]["properties"].items():
        kind = " or ".join(told.get("enum", [told["type"]]))
        optional = "" if name in needed else ", optional"
        meaning = f": {told['description']}" if "description" in told else ""
        lines.append(f"  {name} ({kind}{optional}){meaning}")
    return "\n".join(lines)
