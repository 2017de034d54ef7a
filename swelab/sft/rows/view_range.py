"""Replaces the -1 in view_range [n, -1], which SWE-agent's XML parser refuses.

`[n, -1]` shows a file from line n to its end. The observation contains the number of the last line. With that
number in place of -1, the editor shows the same lines.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from swelab.sft.rows.turns import Call

HEADER = re.compile(r"Here's the result of running `cat -n` on [^\n]*:\n")
NUMBER = re.compile(r" *(\d+)(?:\t|$)")
CUT = ("<response clipped>", "characters were elided")


def complete(calls: Sequence[Call], answer: object) -> list[Call] | None:
    """Returns the calls with -1 replaced by the number of the last line in `answer`.
    Returns None if there is nothing to replace, or if `answer` does not show all lines to the end."""
    ranges = [call.arguments.get("view_range") for call in calls if call.arguments]
    if len(calls) != 1 or not ranges or not (isinstance(ranges[0], list) and ranges[0][1:] == [-1]):
        return None
    last = last_line(answer, ranges[0][0]) if isinstance(answer, str) else 0
    if not last:
        return None
    return [replace(calls[0], arguments={**(calls[0].arguments or {}), "view_range": [ranges[0][0], last]})]


def last_line(answer: str, first: object) -> int:
    """Returns a file's last line number if `answer` shows the file from line `first` to its end, else 0."""
    header = HEADER.search(answer)
    if not header or any(mark in answer for mark in CUT):
        return 0
    found = [NUMBER.match(line) for line in answer[header.end() :].rstrip("\n").split("\n")]
    numbers = [int(match[1]) for match in found if match]
    whole = len(numbers) == len(found) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers[-1] if whole and numbers[0] == first else 0
