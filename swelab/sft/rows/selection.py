"""Selects the conversations that become rows.
Gates (filters in a fixed order) drop the other conversations, each with a reason."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from swelab.configs.kinds.sft import Selection
from swelab.records import Record
from swelab.records.attempt_records import Trajectory
from swelab.sft.rows.lengths import Length

CHOSEN = "kept"
GATES = ("rollout", "grade", "criteria", "conversation", "duplicates", "length", "per_instance")
_TOUCHED = re.compile(r'^diff --git "?a/(.+?)"? "?b/(.+?)"?$', re.MULTILINE)
_TEST_FILE = re.compile(r"(^|/)((tests?|testing)/|(test_[^/]*|[^/]*_test|conftest)\.[a-z]+$)", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Candidate:
    """A conversation in the spool. Sorted candidates are in the order of the dataset.
    rows: offset and length of each row of the conversation. A dropped over-long conversation has no row."""

    instance_id: str
    tokens: int
    policy: str
    digest: str
    length: Length = field(compare=False)
    rows: tuple[tuple[int, Length], ...] = field(compare=False)
    sample: int = 0
    resolved: bool = field(default=True, compare=False)


class DropCounts:
    """Counts dropped conversations by gate and reason."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, gate: str, reason: str) -> None:
        """Counts one conversation that a gate dropped for a reason."""
        self._counts[gate, reason] += 1

    def reasons(self) -> dict[str, int]:
        """Returns the count of each reason, over all gates."""
        found: Counter[str] = Counter()
        for (_, reason), count in self._counts.items():
            found[reason] += count
        return dict(sorted(found.items()))

    def gates(self, entered: int) -> list[Record]:
        """Returns {"gate", "in", "out", "dropped": {reason: count}} for each gate.
        entered: number of conversations that enter the first gate."""
        rows = []
        for gate in GATES:
            dropped = {reason: n for (where, reason), n in sorted(self._counts.items()) if where == gate}
            left = entered - sum(dropped.values())
            rows.append({"gate": gate, "in": entered, "out": left, "dropped": dropped})
            entered = left
        return rows


def exclusion_reason(trajectory: Trajectory, selection: Selection) -> str:
    """Returns why a trajectory does not meet the recipe's criteria, or '' if it meets them."""
    outcomes = selection.outcomes
    if outcomes and trajectory.outcome not in outcomes:
        return f"ended_by_{trajectory.outcome}"
    if selection.nonempty_patch and not trajectory.model_patch.strip():
        return "no_patch"
    if selection.no_test_edits and edits_tests(trajectory.model_patch):
        return "edits_tests"
    return ""


def edits_tests(patch: str) -> bool:
    """Returns whether a patch changes a file that is a test or test configuration, judged by its name."""
    return any(_TEST_FILE.search(name) for names in _TOUCHED.findall(patch) for name in names)


def choose(candidates: Iterable[Candidate], selection: Selection) -> Iterator[tuple[Candidate, str]]:
    """Yields each candidate with its fate: kept, duplicate, too_long or over_per_instance.
    Within an instance, candidates are ordered by length or at random, as the recipe says."""
    digests: set[str] = set()
    counts: Counter[str] = Counter()
    for candidate in sorted(candidates, key=lambda each: _rank(each, selection)):
        if candidate.digest in digests:
            fate = "duplicate"
        elif not candidate.rows:
            fate = "too_long"
        elif counts[candidate.instance_id] >= selection.per_instance:
            fate = "over_per_instance"
        else:
            fate = CHOSEN
            counts[candidate.instance_id] += 1
        digests.add(candidate.digest)
        yield candidate, fate


def _rank(candidate: Candidate, selection: Selection) -> tuple[Any, ...]:
    """Returns the sort key of a candidate. A random order sorts by a hash of seed, instance and conversation.
    So it does not depend on the order in which trajectories are read."""
    if selection.choice == "shortest":
        return (candidate,)
    drawn = f"{selection.seed} {candidate.instance_id} {candidate.digest}"
    drawn = hashlib.sha256(drawn.encode()).hexdigest()
    return candidate.instance_id, drawn, candidate.policy, candidate.sample


FATE_GATES = {"duplicate": "duplicates", "too_long": "length", "over_per_instance": "per_instance"}
