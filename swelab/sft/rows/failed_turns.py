"""Finds turns whose action was not carried out. The observation after a turn shows whether its action ran.

An action has failed if SWE-agent's tools or bash refused it. It has also failed if mini-swe-agent records an
exception or one of a few exit codes. A command that ran a failing test has not failed.
"""

import re
from collections.abc import Sequence

from swelab.records.attempt_records import Message

NOT_RUN = (126, 127, -1)
"""Exit codes of a command that is not executable, was not found, or was killed by the environment."""
REFUSALS = (
    r"No replacement was performed",
    r"Invalid `\w+`",
    r"Parameter `\w+` is required",
    r"The `view_range` parameter is not",
    r"The path .* (does not exist|is a directory and only)",
    r"The parent directory .* does not exist",
    r"File already exists at",
    r"Unrecognized command",
    r"No edit history found",
    r"Ran into .* while trying to",
    r"Your proposed edit has introduced new syntax error",
    r"The command '(?s:.{0,20000}?)' was cancelled because it took more than",
    r"(/bin/)?(bash|sh): .*(command not found|syntax error|No such file or directory|Permission denied)",
)
REFUSED = re.compile(rf"(OBSERVATION:\s*)?({'|'.join(REFUSALS)})")


def failed_turns(messages: Sequence[Message]) -> set[int]:
    """Returns the indexes in `messages` of assistant messages whose actions were not carried out."""
    turns = set()
    last = -1
    for number, message in enumerate(messages):
        if message.role == "assistant":
            last = number
        elif last >= 0 and _says_so(message):
            turns.add(last)
    return turns


def _says_so(message: Message) -> bool:
    extra, content = message.get("extra") or {}, message.get("content")
    if extra.get("exception_info") or extra.get("returncode") in NOT_RUN:
        return True
    return isinstance(content, str) and bool(REFUSED.match(content))
