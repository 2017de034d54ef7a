"""Values that depend on the current date are recognised, others are not."""

import datetime

import pytest

from swelab.witness.inside.canonical_data import Canon
from swelab.witness.judgement import tells_the_day, today

DAY = datetime.date(2031, 4, 7)
MOMENT = datetime.datetime(2031, 4, 7, 12, 30)


@pytest.mark.parametrize(
    "value",
    [DAY, MOMENT, str(DAY), {"at": [MOMENT.isoformat()]}, "built on 07 April 2031", "20310407-nightly",
     (2031, 4, 7), f"{MOMENT:%m/%d/%Y}"],
    ids=repr,
)  # fmt: skip
def test_a_day_is_known_however_it_is_written(value):
    assert tells_the_day([Canon().of(value)], [DAY])


@pytest.mark.parametrize(
    "value", [datetime.date(2031, 4, 17), "2031-04-06", 2031, (4, 7), "7", MOMENT.replace(day=27)], ids=repr
)
def test_other_values_are_none(value):
    assert not tells_the_day([Canon().of(value)], [DAY])


def test_today_is_here_and_everywhere():
    for zone in (None, datetime.UTC):
        before, days, after = datetime.datetime.now(zone), today(), datetime.datetime.now(zone)
        assert before.date() in days or after.date() in days
