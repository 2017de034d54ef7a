"""Makes issue texts from templates and facts: what fails and how, but never the changed line or the fix."""

import re

SHOWN_TESTS = 5
MESSAGE_CHARS = 300
TELLING = 6
"""A changed line of at least this many characters must not occur in an issue text."""

OPENINGS = (
    "{name} in {path} {symptom}.\n{test} fails.",
    "{test} fails.\n{name} in {path} {symptom}.",
    "{name} {symptom}.\nSee {path}, {test} fails.",
)
SCRUBBED = (
    (re.compile(r"\b0x[0-9a-fA-F]{4,}\b"), "0x..."),
    (re.compile(r"/(?:tmp|home|testbed|var|usr|opt)/[^\s'\":,)]*"), "<path>"),
    (re.compile(r"\b\d+\.\d+ ?(?:s|ms|seconds)\b"), "<time>"),
)


def issue_text(function: str, broken: list[str], message: str, changed: tuple[str, ...], bug: str) -> str:
    """Returns the problem statement of a bug.

    function: "path::Qual.name". broken: failing test ids, at least one. message: pytest's reason for the
    first failure. changed: lines of the bug and of its fix, which the text must not contain. bug: hash that
    selects the wording.
    """
    path, _, qualified = function.partition("::")
    message = scrub(message)
    opening = OPENINGS[int(bug[:8], 16) % len(OPENINGS)]
    name = qualified.rpartition(".")[2]
    text = opening.format(name=name, path=path, symptom=symptom(message), test=broken[0])
    text += f"\n\nSeen in `{module_name(path)}.{qualified}`"
    if message and not tells(message, changed):
        text += f"; the test ends with\n\n    {message}"
    more = broken[1:SHOWN_TESTS]
    if more:
        text += "\n\nThese fail too:\n" + "\n".join(f"- {test}" for test in more)
    left = len(broken) - 1 - len(more)
    return text + (f"\n- and {left} more" if left else "")


def symptom(message: str) -> str:
    """Describes how a function fails, from pytest's message on a failing test."""
    if "DID NOT RAISE" in message or "not raised" in message:
        return "does not raise the error it should"
    kind = re.match(r"([A-Za-z_.]*\.)?([A-Z][A-Za-z]*(?:Error|Exception|Iteration|Exit))\b", message)
    if kind and kind[2] != "AssertionError":
        return f"ends in {kind[2]}"
    return "gives a wrong result"


def scrub(message: str) -> str:
    """Returns a message in one line, truncated to MESSAGE_CHARS.
    Addresses, paths of the run and timings are removed."""
    message = " ".join(message.split())
    for pattern, text in SCRUBBED:
        message = pattern.sub(text, message)
    return message if len(message) <= MESSAGE_CHARS else message[:MESSAGE_CHARS].rstrip() + " ..."


def tells(message: str, changed: tuple[str, ...]) -> bool:
    """Returns whether a message contains one of the changed lines."""
    return any(len(line) >= TELLING and line in message for line in map(str.strip, changed))


def module_name(path: str) -> str:
    """Converts `src/pack/module.py` to `pack.module`."""
    parts = path.removesuffix(".py").removeprefix("src/").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
