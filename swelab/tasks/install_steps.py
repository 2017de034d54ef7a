"""Removes install steps from an eval script. They run once, when the task's image is pulled.
SWE-Gym's scripts install packages before the tests, and end if that fails. A sandbox has no network."""

import re
from collections.abc import Iterable

from swelab.images.errors import INSTALL_FAILED
from swelab.records.task_records import Task

_TOOL = r"pip[\d.]*|uv|conda|mamba|micromamba|apt|apt-get|poetry|pdm|pipenv|npm|yarn|pnpm"
_STEP = re.compile(
    r"\s*(?:\w+=\S*\s+)*(?:sudo\s+)?(?:"
    rf"(?:\S*python[\d.]*\s+-m\s+)?(?:{_TOOL})\s(?:[^|>]*\s)?(?:install|update|create|sync|add|ci)\b"
    r"|make\s+(?:init|install\S*|deps\S*|dev\S*|setup\S*)\s*$"
    r"|\S*python[\d.]*\s+setup\.py\s+(?:install|develop|build_ext)\b)"
)
_BUILD = re.compile(r"--no-build-isolation|\bsetup\.py\s")
_END = re.compile(r"<<|git\s+(?:apply|checkout)\b")
_BETWEEN = re.compile(r"(\s*(?:;|&&)\s*)")


def without_installs(script: str) -> str:
    """Returns an eval script without its install steps.

    Lines that build the repository itself without a network (`setup.py`, `--no-build-isolation`) stay,
    because the patch may change its sources. Lines after the first here document or `git checkout` stay, too.
    """
    head, tail = _halves(script)
    return "\n".join([*(_without_install(line) for line in head), *tail])


def preparation(tasks: Iterable[Task]) -> str:
    """Returns Bash that runs the install steps of an image's tasks, each once, or "" if there are none.
    If a step fails, the script prints a line (INSTALL_FAILED, exit code, step) and exits."""
    lines: list[str] = []
    for task in tasks:
        head, _ = _halves(task.eval_script or "")
        last = max((number for number, line in enumerate(head) if _steps(line)), default=-1)
        if last >= 0:
            made = [made for line in head[: last + 1] for made in _preparation_lines(line)]
            lines += [] if "\n".join(made) in "\n".join(lines) else made
    return "\n".join([*lines, ""]) if lines else ""


def _halves(script: str) -> tuple[list[str], list[str]]:
    lines = script.split("\n")
    end = next((number for number, line in enumerate(lines) if _END.search(line)), len(lines))
    return lines[:end], lines[end:]


def _steps(line: str) -> list[str]:
    """Returns the install steps of a line, which may have several commands."""
    return [part for part in _BETWEEN.split(line)[::2] if _STEP.match(part)]


def _without_install(line: str) -> str:
    """Returns a line without its install steps, except those that build the repository itself."""
    if not (steps := _steps(line)):
        return line
    parts = _BETWEEN.split(line)
    pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
    kept = [part + after for part, after in pairs if part and (part not in steps or _BUILD.search(part))]
    return re.sub(r"\s*(?:;|&&)\s*$", "", "".join(kept)) or ":"


def _preparation_lines(line: str) -> list[str]:
    """Converts a line of an eval script to lines of the preparation script.
    Comments, git commands and `set` (which could make the shell exit) are removed."""
    if re.match(r"\s*(?:#|set\s|git\s|$)", line):
        return []
    steps = _steps(line)
    if not steps:
        return [line]
    quoted = [step.strip().replace("'", "'\\''") for step in steps]
    return [
        f"{step} || {{ printf '\\n%s %s %s\\n' {INSTALL_FAILED} $? '{text}'; exit 1; }}"
        for step, text in zip(steps, quoted, strict=True)
    ]
