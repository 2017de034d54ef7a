"""Functions that read hostile text run in another process, and are ended there."""

import os
import re
import threading

import pytest

from swelab.jobs.bounded_calls import BoundedCalls, Unread
from swelab.records import InputError, read_record
from swelab.records.task_records import Lock
from tests.contract.attacks import until


def test_a_call_beyond_its_bounds_ends_and_the_next_one_works():
    calls = BoundedCalls(cpu_seconds=0.3)
    assert calls.call(os.getpid) == (first := calls.call(os.getpid)) != os.getpid()
    with pytest.raises(Unread, match="more than 0.3 s or"):  # read in this process, it would never end
        calls.call(re.match, "(a+)+$", "a" * 60 + "b")
    with pytest.raises(Unread):
        calls.call(bytearray, 1 << 40)
    assert calls.call(os.getpid) not in (first, os.getpid())


def test_results_and_errors_come_back_as_they_are(tmp_path):
    calls = BoundedCalls()
    text = "\udc80" + "x" * (3 << 20)
    assert calls.call(str.upper, text) == text.upper()
    with pytest.raises(InputError, match="lock.json"):
        calls.call(read_record, tmp_path / "lock.json", Lock)
    with pytest.raises(ValueError, match="invalid literal"):
        calls.call(int, "x")


def test_a_call_whose_process_others_killed_is_made_once_more(tmp_path):
    calls, mark = BoundedCalls(), tmp_path / "killed"
    once = f"[ -e {mark} ] || {{ touch {mark}; kill -9 $PPID; }}"
    assert calls.call(os.system, once) == 0
    assert mark.exists()
    with pytest.raises(Unread):
        calls.call(os.system, "kill -9 $PPID")


def test_a_call_that_takes_long_holds_no_other_up(tmp_path):
    calls, held = BoundedCalls(), tmp_path / "held"
    wait = f"touch {held}; while [ -e {held} ]; do sleep 0.02; done"
    ended = []
    slow = threading.Thread(target=lambda: ended.append(calls.call(os.system, wait)))
    slow.start()
    assert until(held.exists)
    other = calls.call(os.getpid)
    assert calls.call(os.getpid) == other != os.getpid()
    assert not ended
    held.unlink()
    slow.join()
    assert ended == [0]
