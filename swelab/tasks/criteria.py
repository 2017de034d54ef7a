"""Applies the criteria of a subset recipe to rows of a published set, and names the criterion that fails."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from swelab.configs.kinds import subset
from swelab.records import InputError, as_record, read_jsonl
from swelab.records.task_records import Difficulty, Task
from swelab.tasks.patch_text import language, patch_size
from swelab.tasks.published_rows import is_private

Test = Callable[[Task], bool]

PUBLISHED = {"easy": 1, "medium": 5, "hard": 9}
MEASURES: dict[str, Callable[[Task], int | None]] = {
    "fail_to_pass": lambda row: len(row.FAIL_TO_PASS),
    "statement_chars": lambda row: len(row.problem_statement),
    "patch_lines": lambda row: (patch_size(row.patch) or (None, None))[0],
    "patch_files": lambda row: (patch_size(row.patch) or (None, None))[1],
}
"""Maps a measure to its function. Criteria `min_<measure>` and `max_<measure>` limit its value. Both exclude
a row without a value, whose patch is refused."""
OF_ANSWERS = ("fail_to_pass", "patch_lines", "patch_files")
"""Measures that are unknown for a task with private answers. Their limits do not exclude such tasks."""


class Criteria:
    """The criteria of a recipe. ratings: maps instance ids to difficulties, for the criterion `ratings`.
    Raises InputError for an invalid pattern, for limits that exclude every row, and for missing ratings."""

    def __init__(self, criteria: subset.Criteria, ratings: Mapping[str, int] | None = None):
        self._tests = [*_by_name(criteria), *_by_bound(criteria), *_by_rating(criteria, ratings)]

    def miss(self, row: Task) -> str:
        """Returns the first criterion that a row does not meet, or ""."""
        return next((name for name, meets in self._tests if not meets(row)), "")


def read_ratings(path: str | Path) -> dict[str, int]:
    """Reads a file of difficulty records, ours or SWE-smith's. Maps instance ids to ratings.
    Excludes instances without a rating. Raises InputError."""
    ratings = {}
    for row in read_jsonl(path):
        if "outcome" in row:
            rating = as_record(row, Difficulty, path).rating
        elif isinstance(row.get("instance_id"), str) and "difficulty" in row:
            rating = PUBLISHED.get(str(row["difficulty"]))
        else:
            raise InputError("a row without instance_id or difficulty", path, "one rating per line")
        if rating is not None:
            ratings[row["instance_id"]] = rating
    return ratings


def _by_name(criteria: subset.Criteria) -> Iterator[tuple[str, Test]]:
    if criteria.id_pattern:
        pattern = _pattern(criteria.id_pattern)
        yield "id_pattern", lambda row: bool(pattern.search(row.instance_id))
    if criteria.repos:
        repos = set(criteria.repos)
        yield "repos", lambda row: row.repo in repos
    if criteria.languages:
        languages = set(criteria.languages)
        yield "languages", lambda row: language(row) in languages
    if criteria.difficulties:
        difficulties = criteria.difficulties
        yield "difficulties", lambda row: row.get("difficulty") in difficulties


def _by_bound(criteria: subset.Criteria) -> Iterator[tuple[str, Test]]:
    for name in MEASURES:
        least, most = getattr(criteria, f"min_{name}"), getattr(criteria, f"max_{name}")
        if most and least > most:
            raise InputError(
                f"min_{name} is {least} and max_{name} {most}", "subset recipe", "bounds that a row can meet"
            )
        if least:
            yield f"min_{name}", partial(_at_least, name, least)
        if most:
            yield f"max_{name}", partial(_at_most, name, most)


def _at_least(name: str, least: int, row: Task) -> bool:
    return _unknown(name, row) or ((value := MEASURES[name](row)) is not None and value >= least)


def _at_most(name: str, most: int, row: Task) -> bool:
    return _unknown(name, row) or ((value := MEASURES[name](row)) is not None and value <= most)


def _unknown(name: str, row: Task) -> bool:
    return name in OF_ANSWERS and (is_private(row) or row.by_script)


def _by_rating(criteria: subset.Criteria, ratings: Mapping[str, int] | None) -> Iterator[tuple[str, Test]]:
    levels = set(criteria.ratings)
    if not levels:
        return
    if ratings is None:
        raise InputError("criteria.ratings without ratings", "subset recipe", "`ratings`: who rated what")
    yield "not_rated", lambda row: row.instance_id in ratings
    yield "ratings", lambda row: ratings[row.instance_id] in levels


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InputError(f"id_pattern {text!r}: {error}", "subset recipe", "a regular expression") from None
