"""Findings of checks: how they are printed, and which findings stop a run."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from swelab.records import Fault, InputError


class Severity(StrEnum):
    """The first word of a finding's line."""

    OK = "ok"
    LOW = "low"
    FIX = "FIX"


@dataclass(frozen=True)
class Finding:
    """The result of one check: the state of a thing, and the remedy if it is faulty.

    With a LOW finding a run works, but it may be slow or end early. With a FIX finding, nothing is started.
    """

    severity: Severity
    sentence: str

    def __str__(self) -> str:
        return f"{self.severity:3}  {self.sentence}"


def ok(sentence: str) -> Finding:
    """Makes a finding about a thing without a fault."""
    return Finding(Severity.OK, sentence)


def low(sentence: str) -> Finding:
    """Makes a finding about a thing that may make a run slow or end it early."""
    return Finding(Severity.LOW, sentence)


def fix(sentence: str) -> Finding:
    """Makes a finding about a thing that stops a run."""
    return Finding(Severity.FIX, sentence)


def wrong(what: str, where: str | Path = "", expected: str = "") -> Finding:
    """Makes a finding to fix about a file or a recipe. Its sentence has the form of an InputError."""
    return fix(str(InputError(what, where, expected)))


def catch(*checks: Callable[[], object], label: str = "") -> Iterator[Finding]:
    """Yields the findings of checks.

    A Fault that a check raises becomes a finding to fix, prefixed with `label`.
    """
    for check in checks:
        try:
            if isinstance(findings := check(), Iterator):
                yield from findings
        except Fault as fault:
            yield fix(f"{label}{fault}")


def show(findings: Iterable[Finding], stream: TextIO | None = None) -> int:
    """Prints findings as they come, by default to standard output. Returns the number of findings to fix."""
    count = 0
    for finding in findings:
        print(finding, file=stream, flush=True)
        count += finding.severity == Severity.FIX
    return count


def refusal(count: int, purpose: str = "") -> str:
    """Returns the summary line of a check.

    count: number of findings to fix. purpose: the action that is blocked until they are fixed.
    """
    return f"{count} to fix{purpose and f' before {purpose}'}; the lines that begin with FIX say how"


def require(findings: Iterable[Finding], purpose: str = "anything is started") -> None:
    """Prints findings to standard error as they come. Raises Fault if a finding must be fixed."""
    if count := show(findings, sys.stderr):
        raise Fault(refusal(count, purpose))
