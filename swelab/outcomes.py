"""The words for the ends of rollouts and grades, and their meanings. There is no other table of them.

Records contain the words. Adapters map the words of other programs to this table: `agents.exit_status`
(mini-swe-agent and SWE-agent, live or recorded), `service.verdicts` (sb-cli),
`scores.statistics.other_harnesses` (reports). Schemas take their enumerations from here. `python -m
scripts.write_schemas` writes the tables in `docs/scores.md`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True)
class Meaning:
    """The consequences of the way in which a rollout or a grading ended.

    infrastructure: the sandbox, the model's service or a host failed, so the end says nothing about the
    policy. attempted: the rollout counts as an attempt. Rates "without infrastructure errors" exclude all
    other rollouts. trainable: the rollout may be training data. An unresolved rollout is used only as the
    worse side of a pair, or if a recipe filters nothing. retried: when the rollout is tried again.
    """

    infrastructure: bool = False
    attempted: bool = True
    trainable: bool = True
    retried: Literal["never", "at once", "with a higher budget"] = "never"


RESULT = Meaning()
LOSS = Meaning(infrastructure=True, attempted=False, trainable=False, retried="at once")
REFUSAL = Meaning(attempted=False, trainable=False)
NO_RECORD = Meaning(attempted=False, trainable=False)
WAITS = Meaning(attempted=False, trainable=False, retried="with a higher budget")
CHEAT = Meaning(trainable=False)


class _End(StrEnum):
    """A word that records contain, with a description for people and its meaning."""

    words: str
    meaning: Meaning

    def __new__(cls, word: str, words: str, meaning: Meaning) -> "_End":
        end = str.__new__(cls, word)
        end._value_, end.words, end.meaning = word, words, meaning
        return end


class RolloutEnd(_End):
    """How a rollout ends: the field `outcome` of trajectories, predictions and grades."""

    SUBMITTED = "submitted", "the policy submitted", RESULT
    STEP_LIMIT = "step_limit", "the limit of steps was reached", RESULT
    TIME_LIMIT = "time_limit", "the time was up", RESULT
    COST_LIMIT = "cost_limit", "the cost limit was reached", RESULT
    CONTEXT_LIMIT = "context_limit", "the conversation no longer fitted the model", RESULT
    MALFORMED = "malformed", "the policy gave answers without a command", RESULT
    SANDBOX_LOST = "sandbox_lost", "the sandbox was lost", LOSS
    MODEL_LOST = "model_lost", "the model did not answer", LOSS
    MODEL_REFUSED = "model_refused", "the model's service does not answer this task", REFUSAL
    NOT_RECORDED = "not_recorded", "no trajectory was recorded", NO_RECORD
    BUDGET_SPENT = "budget_spent", "the budget had no room for it", WAITS


class GradeEnd(_End):
    """How a grade ends: the field `status` of grades, and the verdicts of reports and scores."""

    RESOLVED = "resolved", "resolved", RESULT
    UNRESOLVED = "unresolved", "tests fail", RESULT
    EMPTY_PATCH = "empty_patch", "nothing changed", RESULT
    APPLY_FAILED = "apply_failed", "patch does not apply", RESULT
    TIMEOUT = "timeout", "tests ran too long", RESULT
    SUSPECT = "suspect", "tests pass, but its code could forge that", CHEAT
    TAMPERED = "tampered", "tampered with the tests", CHEAT
    INFRA_ERROR = "infra_error", "lost to infrastructure", LOSS


RETRIED_ROLLOUTS = frozenset(end for end in RolloutEnd if end.meaning.retried == "at once")
WAITING_ROLLOUTS = frozenset(end for end in RolloutEnd if end.meaning.retried == "with a higher budget")
LOST_ROLLOUTS = frozenset(end for end in RolloutEnd if not end.meaning.attempted)
"""Ends of rollouts that are not attempts: the rollout was lost, was refused by the model's service, was not
recorded, or waits for a higher budget.
"""
TRAINABLE_ROLLOUTS = tuple(end for end in RolloutEnd if end.meaning.trainable)
FINAL_ROLLOUTS = tuple(end for end in RolloutEnd if end not in WAITING_ROLLOUTS)
"""Ends of finished rollouts. A rollout that waits for a higher budget is not finished."""
LOST_GRADES = frozenset(end for end in GradeEnd if not end.meaning.attempted)
FAILED_GRADES = frozenset(end for end in GradeEnd if end.meaning.trainable and end != GradeEnd.RESOLVED)
"""Grades of tasks that were not resolved, by a policy that did not cheat."""
FORGED_GRADES = frozenset(end for end in GradeEnd if end.meaning is CHEAT)
"""Grades of patches whose tests pass although the patch is not a repair, or may not be one."""
RATING_ENDS = (
    "rated",
    "unreadable",
    RolloutEnd.CONTEXT_LIMIT,
    RolloutEnd.MODEL_LOST,
    RolloutEnd.MODEL_REFUSED,
)
"""The ways in which the rating of a task's difficulty ends."""

EVIDENCE = (GradeEnd.RESOLVED, "witnessed")
"""Evidence that a recipe may require of a resolved task."""

LISTS: dict[str, Sequence[str]] = {
    "RolloutEnd": tuple(RolloutEnd),
    "FINAL_ROLLOUTS": FINAL_ROLLOUTS,
    "TRAINABLE_ROLLOUTS": TRAINABLE_ROLLOUTS,
    "GradeEnd": tuple(GradeEnd),
    "ENDS": (*RolloutEnd, *GradeEnd),
    "RATING_ENDS": RATING_ENDS,
    "EVIDENCE": EVIDENCE,
}
"""Lists of words that a schema may enumerate, by the list's name in the schema's `$comment`."""
TABLES: dict[str, type[_End]] = {"RolloutEnd": RolloutEnd, "GradeEnd": GradeEnd}
_TABLE = re.compile(r"<!-- swelab.outcomes (?P<name>\w+) -->\n(\|.*\n)*")


def with_tables(text: str) -> str:
    """Returns a documentation page with its tables of ends updated from this module."""
    return _TABLE.sub(_table, text)


def _table(match: re.Match[str]) -> str:
    rows = ["| word | in words | infrastructure | attempted | trainable | tried again |", f"|{'---|' * 6}"]
    for end in TABLES[match["name"]]:
        means = end.meaning
        said = ["yes" if each else "no" for each in (means.infrastructure, means.attempted, means.trainable)]
        rows.append(f"| `{end}` | {end.words} | {' | '.join(said)} | {means.retried} |")
    return "\n".join([f"<!-- swelab.outcomes {match['name']} -->", *rows, ""])
