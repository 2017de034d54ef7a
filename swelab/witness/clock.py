"""Finds values that contain the current date, because correct code computes other values on another day."""

import datetime
import json
from collections.abc import Sequence
from typing import Any

_WRITTEN = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%Y%m%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m/%d/%y",
    "%d %b %Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)


def today() -> list[datetime.date]:
    """Returns the current dates in local time and in UTC, since a sandbox may use either time zone."""
    now = datetime.datetime.now(datetime.UTC)
    return sorted({now.date(), now.astimezone().date()})


def tells_the_day(values: Sequence[Any], days: Sequence[datetime.date]) -> bool:
    """Returns whether canonical data contain one of the dates, in one of the usual spellings."""
    text = json.dumps(values)
    return any(each in text for day in days for each in _spellings(day))


def _spellings(day: datetime.date) -> set[str]:
    plain = f"({day.year}, {day.month}, {day.day}"  # start of the repr of a date or a datetime
    listed = json.dumps([["i", str(part)] for part in (day.year, day.month, day.day)])[1:-1]
    return {day.strftime(form) for form in _WRITTEN} | {f"{plain})", f"{plain},", listed}
