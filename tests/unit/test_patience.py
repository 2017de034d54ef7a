"""Repeated requests to a server: its own statement about when, and our pauses."""

import email.utils
import math
from types import SimpleNamespace

import pytest

from swelab import patience
from swelab.patience import DOWNLOADS, LONGEST_WISH, SUBMISSIONS, Patience, Pauses, repeat, retry_after

NOW = 1_800_000_000


@pytest.fixture
def clock(monkeypatch):
    """A clock that only pauses move, and pauses without random shortening."""
    clock = SimpleNamespace(now=0.0, time=lambda: NOW, monotonic=lambda: clock.now)
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "random", SimpleNamespace(uniform=lambda low, high: high))

    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(patience, "sleep", sleep)
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
    pauses = Patience(DOWNLOADS)
    assert [pauses.next_pause(1000) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    pauses.renew()
    assert pauses.next_pause(1000) == 1
    assert DOWNLOADS.after(5000) == 60 and math.isfinite(SUBMISSIONS.after(5000))


def test_chance_shortens_a_pause_to_no_less_than_its_share(monkeypatch):
    monkeypatch.setattr(patience, "random", SimpleNamespace(uniform=lambda low, high: low))
    assert DOWNLOADS.after(3) == 2 and Pauses(first=4, least=0).after(1) == 0


def test_a_server_s_wish_counts_but_not_beyond_an_hour(clock):
    pauses = Patience(DOWNLOADS)
    assert pauses.next_pause(10_000, wish=30) == 30 and pauses.next_pause(10_000, wish=1e9) == LONGEST_WISH


def test_it_ends_where_too_long_would_go_by_without_progress(clock):
    pauses = Patience(DOWNLOADS)
    clock.now = 9.5
    assert pauses.next_pause(10) is None
    pauses.renew()
    assert pauses.next_pause(10) == 1 and pauses.next_pause(10, wish=11) is None
    assert Patience(DOWNLOADS).next_pause(0) is None, "who has no patience asks once"


def test_a_request_is_repeated_until_the_last_attempt_and_its_fault_is_raised(clock):
    attempts, pauses = [], Patience(Pauses(attempts=3))

    def once():
        attempts.append(clock.now)
        raise OSError(f"fault {len(attempts)}")

    with pytest.raises(OSError, match="fault 3"):
        repeat(once, OSError, lambda fault: pauses.next_pause())
    assert attempts == [0, 1, 3]


def test_other_faults_are_raised_at_once_and_a_result_ends_it(clock):
    faults = [TimeoutError("slow"), ConnectionError("gone"), ValueError("wrong")]

    def once():
        if faults:
            raise faults.pop(0)
        return "reply"

    with pytest.raises(ValueError, match="wrong"):
        repeat(once, (TimeoutError, ConnectionError), lambda fault: 0.0)
    assert repeat(once, OSError, lambda fault: None) == "reply"
