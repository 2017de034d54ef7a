"""Finds the smallest GNU sed substitution that turns one line into another."""

import re

_TOKEN = re.compile(r"\w+|\s+|\*\*|//|<<|>>|[<>=!+*/-]=|[^\w\s]")
_OLD_SPECIAL = re.compile(r"[\\/.*\[\]^$]")
_NEW_SPECIAL = re.compile(r"[\\/&]")


def substitution(before: str, after: str) -> str | None:
    """Returns a sed expression `s/OLD/NEW/` that turns the line `before` into `after`.

    The expression is a basic regular expression and replaces the first match. OLD consists of the tokens that
    differ. Neighbouring tokens are added until OLD is not blank and the first match is at the right position.
    Returns None if the lines are equal, `before` is blank, or a text is not one line.
    """
    if before == after or "\n" in before + after or "\0" in before + after:
        return None
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    start, end, stop = _differing(old, new)
    while not _replaces("".join(old[start:end]), "".join(new[start:stop]), before, after):
        if end < len(old):
            end, stop = end + 1, stop + 1
        elif start > 0:
            start -= 1
        else:
            return None
    pattern = _OLD_SPECIAL.sub(_escape, "".join(old[start:end]))
    return f"s/{pattern}/{_NEW_SPECIAL.sub(_escape, ''.join(new[start:stop]))}/"


def _differing(before: list[str], after: list[str]) -> tuple[int, int, int]:
    """Returns (start, end in before, end in after) of the shortest run of tokens that differs."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    tail = 0
    while tail < shorter - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return start, len(before) - tail, len(after) - tail


def _replaces(old: str, new: str, before: str, after: str) -> bool:
    return bool(old.strip()) and before.replace(old, new, 1) == after


def _escape(match: re.Match[str]) -> str:
    return "\\" + match[0]
