"""How long a server is asked again: what it says about when, and the pauses of ours."""

import email.utils
from types import SimpleNamespace

import pytest

from swelab.files import patience
from swelab.files.patience import LONGEST_PAUSE, LONGEST_WISH, Patience, retry_after

NOW = 1_800_000_000


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still, and pauses that are never shortened by chance."""
    clock = SimpleNamespace(now=0.0, time=lambda: NOW, monotonic=lambda: clock.now)
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "random", SimpleNamespace(uniform=lambda low, high: high))
    return clock


def test_retry_after_is_seconds_milliseconds_or_a_date(clock):
    date = email.utils.formatdate(NOW + 60, usegmt=True)
    wants = {"7": 7, "0.5": 0.5, "-3": 0, date: 60, "Mon, 01 Jan 2001 00:00:00 GMT": 0}
    for text, seconds in wants.items():
        assert retry_after({"retry-after": text}) == seconds
    assert retry_after({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    for text in ("soon", "", "nan", "inf", "99999999999999999999 Jan"):
        assert retry_after({"retry-after": text}) is None


def test_pauses_double_up_to_the_longest_and_begin_anew_with_progress(clock):
    pauses = Patience()
    assert [pauses.next_pause(1000) for _ in range(8)] == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE]
    pauses.renew()
    assert pauses.next_pause(1000) == 1


def test_a_server_s_wish_counts_but_not_beyond_an_hour(clock):
    pauses = Patience()
    assert pauses.next_pause(10_000, wish=30) == 30 and pauses.next_pause(10_000, wish=1e9) == LONGEST_WISH


def test_it_ends_where_too_long_would_go_by_without_progress(clock):
    pauses = Patience()
    clock.now = 9.5
    assert pauses.next_pause(10) is None and pauses.next_pause(11) == 1
    pauses.renew()
    assert pauses.next_pause(10) == 1 and pauses.next_pause(10, wish=11) is None
