"""Test ids with spaces in pytest's summary."""

import pytest

from swelab.grading.harness.logs import statuses
from swelab.tasks.forge.whole_ids import is_whole, with_whole_ids

IDS = ["t.py::test_f[one red apple]", "t.py::test_f[one pear]", "t.py::test_f[KeyError-x - y]"]
IDS += ["t.py::test_f[x[0] - y]", "t.py::test_plain"]


@pytest.mark.parametrize("word", ["PASSED", "FAILED", "ERROR", "XFAIL"])
@pytest.mark.parametrize("reason", ["", " - assert [1] == [2]", " - KeyError: 'a - b'"])
def test_ids_are_whole_with_any_status(word, reason):
    reason = "" if word == "PASSED" else reason
    log = "".join(f"{word} {test}{reason}\n" for test in IDS)
    assert with_whole_ids(log, statuses(log)) == dict.fromkeys(IDS, word)


def test_tests_that_differ_after_the_space_have_their_own_status():
    log = f"PASSED {IDS[0]}\nFAILED {IDS[1]} - no\n"
    found = with_whole_ids(log, statuses(log))
    assert found == {IDS[0]: "PASSED", IDS[1]: "FAILED"} and all(map(is_whole, found))


def test_other_logs_are_left_alone():
    assert with_whole_ids("a line\nPASSED", {"a": "PASSED", "b[c": "FAILED"}) == {
        "a": "PASSED",
        "b[c": "FAILED",
    }
