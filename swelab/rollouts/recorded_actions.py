"""Reads the shell commands of a recorded turn, and the turn's text without them.

The agent records the commands that it took from a turn, so no other form of turns has to be known here.
Formats that record none (mini-swe-agent 1) write one fenced block.
"""

import re

from swelab.records.attempt_records import Message

BASH = "bash|sh|mswea_bash_command"
"""The languages of a block with a command, as a regular expression."""
_TAGGED = re.compile(r"<mswea_bash_command>(.*?)</mswea_bash_command>", re.DOTALL)


def text_and_commands(content: str, message: Message, languages: str = BASH) -> tuple[str, list[str]]:
    """Returns (a turn's text without its commands, the commands).

    languages: which fenced blocks are commands if the message records no actions, as a regular expression.
    """
    actions = (message.get("extra") or {}).get("actions") or []
    if recorded := [str(action.get("command", "")).strip() for action in actions]:
        text = content
        for command in recorded:
            text = _without(text, command)
        return text.strip(), recorded
    pattern = re.compile(rf"```(?:{languages})\s*\n(.*?)\n?```", re.DOTALL)
    pattern = _TAGGED if _TAGGED.search(content) else pattern
    return pattern.sub("", content).strip(), [command.strip() for command in pattern.findall(content)]


def _without(text: str, command: str) -> str:
    """Removes a command with its fence or tag. Without such marks, removes the lines that hold it."""
    written = re.escape(command)
    marked = rf"(`{{3,}}|~{{3,}})[^\n]*\n\s*{written}\s*\1|<([\w-]+)>\s*{written}\s*</\2>"
    places = list(re.finditer(marked, text))
    if places:
        return text[: places[-1].start()] + text[places[-1].end() :]
    start = text.rfind(command)
    if not command or start < 0:
        return text
    end = text.find("\n", start + len(command))
    return text[: text.rfind("\n", 0, start) + 1] + (text[end + 1 :] if end >= 0 else "")
