"""Reads hostile text in a separate process: the code of a patch, and the log of its run."""

from collections.abc import Sequence

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness import audit, logs
from swelab.grading.harness.spec import RunSpec
from swelab.grading.harness.verdict import Verdict, doubt, verdict
from swelab.jobs.bounded_calls import BoundedCalls, Unread
from swelab.outcomes import GradeEnd
from swelab.records import Record

_APART = BoundedCalls()


def review(texts: Sequence[tuple[str, str, str]], gold: str | None) -> Record:
    """Reviews changed files as `audit.review` does. Returns a finding if the files cannot be read."""
    if not texts:
        return audit.review(texts, gold)
    try:
        return _APART.call(audit.review, texts, gold)
    except Unread as fault:
        return {"dynamic": [], "findings": [f"its files cannot be read: {fault}"]}


def read_doubt(spec: RunSpec, run: RunEvidence) -> str:
    """Returns why an unresolved patch could have forged tests, or "" (`verdict.doubt`)."""
    if spec.parser in logs.LINEAR_PARSERS:
        return doubt(spec, run)
    try:
        return _APART.call(doubt, spec, run)
    except Unread as fault:
        return f"its log cannot be read: {fault}"


def read_verdict(spec: RunSpec, run: RunEvidence) -> Verdict:
    """Returns the verdict on a run's evidence. Raises InputError if the log parser is unknown.

    Our own log parsers take linear time and run in this process. Other parsers run in the separate process.
    """
    if spec.parser in logs.LINEAR_PARSERS:
        return verdict(spec, run)
    try:
        return _APART.call(verdict, spec, run)
    except Unread as fault:
        return GradeEnd.UNRESOLVED, f"its log cannot be read: {fault}", None
