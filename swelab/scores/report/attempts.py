"""Reads the attempts of a run for the page: a row for each listed attempt, and some attempts in full.

An attempt that the page contains in full is called packed, because it is compressed. Rollouts and grades are
streamed, shard by shard. The numbers of rows and of packed attempts are limited, and so is the size of packed
attempts. So 50,000 instances need no more memory than 5,000.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path

from swelab.grading.run_cache import Archive
from swelab.jobs.shards import attempt_name
from swelab.lineage import Wildcards
from swelab.records import InputError, Record, read_jsonl
from swelab.records.attempt_records import Grade, Trajectory
from swelab.scores.report.trajectories import packed_record, tests, tokens, turns, view, visible

COLUMNS = tuple("id sample status outcome repo what turns seconds reason place packed".split())
"""Columns of the list.

what: mutation operator and function. seconds: duration of the tests. place: file and line of the trajectory,
in the run's folder. packed: index of the attempt among the run's packed attempts, or -1.
"""
REASON_CHARACTERS = 160
LISTED, PACKED = 40_000, 12_000
"""LISTED, PACKED: maximum numbers of rows and of packed attempts, over all runs."""
PACKED_BYTES = 20_000_000
"""Maximum size in bytes of all packed attempts in the page."""


@dataclass
class ListedAttempts:
    """Counts of a run's trajectories, and the run's attempts in the order of the page, failures first."""

    turns: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    rows: list[list[object]] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """The attempts to show.

    listed: maps an attempt's name to its index in the list. packs: number of attempts to pack. quota: maximum
    bytes of packed attempts.
    """

    listed: Mapping[str, int]
    packs: int
    quota: int

    def is_packed(self, name: str) -> bool:
        """Returns whether an attempt is packed, because it is among the first `packs` of the list."""
        return self.listed.get(name, self.packs) < self.packs


class Packs:
    """Collects packed attempts in any order.
    Keeps the first attempts of the list that fit into `quota` bytes."""

    def __init__(self, places: int, quota: int):
        self.end, self.quota = places, quota
        self._size = 0
        self._lines: list[tuple[int, str]] = []

    def wants(self, place: int) -> bool:
        """Returns whether an attempt at this index of the list may still fit."""
        return place < self.end

    def add(self, place: int, line: str) -> None:
        """Adds an attempt. If the size exceeds the quota, drops attempts from the end of the list."""
        heappush(self._lines, (-place, line))
        self._size += len(line) + 1
        while self._size > self.quota:
            last, line = heappop(self._lines)
            self.end = -last
            self._size -= len(line) + 1

    def lines(self) -> dict[int, str]:
        """Returns the packed attempts in order, keyed by index in the list."""
        return {-place: line for place, line in sorted(self._lines, reverse=True)}


def read_attempts(
    run: Wildcards, selection: Selection, tasks: Mapping[str, Mapping[str, str]], shown: Mapping[str, Record]
) -> ListedAttempts:
    """Reads a policy's attempts on a subset. Counts all attempts, and keeps listed and packed attempts.

    tasks: maps an instance id to "repo" and "op". shown: facts about tasks of packed attempts, for the
    viewer. Raises InputError if a rollout has no grade.
    """
    grades = wanted_grades(run.shards("grades"), selection)
    logs = Archive(run.results / "progress" / "runs")
    attempts, rows, packs = (
        ListedAttempts(),
        dict[int, list[object]](),
        Packs(selection.packs, selection.quota),
    )
    for path in map(Path, run.shards("trajectories")):
        for line, row in enumerate(map(Trajectory.of, read_jsonl(path)), 1):
            attempts.turns[turn_count := turns(row)] += 1
            if used := tokens(row):
                attempts.tokens[used] += 1
            name = attempt_name(row)
            if name not in selection.listed:
                continue
            if name not in grades:
                raise InputError(f"a rollout without a grade: {name}", path)
            (grade, graded), place = grades.pop(name), selection.listed[name]
            told = {**tasks[row.instance_id], **shown.get(row.instance_id, {})}
            rows[place] = listed_row(row, grade, told, turn_count, f"{path.name}, line {line}")
            if packs.wants(place):
                shown_row = view(row, grade, graded, test_output(logs, grade))
                packs.add(place, packed_record(shown_row | {"bug": told.get("bug", "")}))
    for number, (place, text) in enumerate(packs.lines().items()):
        rows[place][-1] = number
        attempts.packed.append(text)
    attempts.rows = [rows[place] for place in sorted(rows)]
    return attempts


def wanted_grades(shards: list[str], selection: Selection) -> dict[str, tuple[Grade, list[Record]]]:
    """Maps the name of each listed attempt to (its grade, its tests for the page)."""
    grades = {}
    for grade in (Grade.of(row) for shard in shards for row in read_jsonl(shard)):
        name = attempt_name(grade)
        if name in selection.listed:
            shown = tests(grade) if selection.is_packed(name) else []
            grades[name] = grade | {"tests_status": None}, shown
    return grades


def listed_row(
    row: Trajectory, grade: Grade, task: Mapping[str, str], number: int, place: str
) -> list[object]:
    """Returns the values of COLUMNS for an attempt that is not packed (yet)."""
    what = " ".join(filter(None, (task.get("op", ""), task.get("function", ""))))
    reason = visible(grade.reason[:REASON_CHARACTERS])
    facts = (row.instance_id, row.sample, grade.status, row.outcome)
    return [*facts, task["repo"], what, number, grade.get("seconds"), reason, place, -1]


def test_output(logs: Archive, grade: Grade) -> str:
    """Returns the stored test output of an unresolved attempt, or ''."""
    if not grade.run or grade.resolved:
        return ""
    kept = logs.look(grade.run)
    return kept.log if kept else ""


def names_of(order: list[tuple[str, int]]) -> Iterator[str]:
    """Yields the names of attempts. order: the attempts as pairs (instance id, sample)."""
    for instance_id, sample in order:
        yield attempt_name({"instance_id": instance_id, "sample": sample})
