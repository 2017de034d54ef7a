"""Test ids with spaces, which swebench's parser of pytest's summary truncates at the first space."""

import re

from swelab.files.text_lines import lines_of

_LINE = re.compile(r"(PASSED|FAILED|ERROR|XFAIL) (.+)")


def is_whole(test: str) -> bool:
    """Returns whether a test id is not truncated."""
    return "[" not in test or test.endswith("]")


def with_whole_ids(log: str, status: dict[str, str]) -> dict[str, str]:
    """Returns the statuses by test id, with whole ids where the parser truncated them.

    status: the parser's result. Without this function, tests that differ only after a space would share one
    status.
    """
    truncated = {test for test in status if not is_whole(test) or test.count("[") > test.count("]")}
    if not truncated:
        return status
    whole = {}
    for line in filter(None, map(_LINE.fullmatch, lines_of(log))):
        test = line[2] if line[1] == "PASSED" else _id_in(line[2])
        if test.partition(" ")[0] in truncated:
            whole[test] = line[1]
    solved = {test.partition(" ")[0] for test in whole}
    return {test: told for test, told in status.items() if test not in solved} | whole


def _id_in(text: str) -> str:
    """Returns the test id at the start of a text, before ` - ` and a reason. The id may have ` - ` inside
    brackets."""
    parts = text.split(" - ")
    heads = (" - ".join(parts[: count + 1]) for count in range(len(parts)))
    return next((head for head in heads if head.count("[") <= head.count("]")), text)
