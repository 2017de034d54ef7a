"""The reward of each verdict."""

import pytest

from swelab.rl.rewards import REWARDS, reward_of

TESTS = {
    "FAIL_TO_PASS": {"success": ["a"], "failure": ["b"]},
    "PASS_TO_PASS": {"success": ["c", "d"], "failure": []},
}


@pytest.mark.parametrize(
    ("grade", "expected"),
    [
        ({"status": "resolved", "resolved": True, "tests_status": TESTS}, (1, 1, 0.75)),
        ({"status": "unresolved", "resolved": False, "tests_status": TESTS}, (0, -1, 0.75)),
        ({"status": "empty_patch", "resolved": False}, (0, -1, 0)),
        ({"status": "tampered", "resolved": False, "tests_status": TESTS}, (0, -1, 0)),
        ({"status": "suspect", "resolved": False, "tests_status": TESTS}, (0, -1, 0)),
        ({"status": "unresolved", "resolved": False, "tests_status": {}}, (0, -1, 0)),
        ({"status": "unresolved", "resolved": False, "tests_status": TESTS, "doubt": "why"}, (0, -1, 0)),
    ],
)
def test_rewards(grade, expected):
    assert tuple(REWARDS[name](grade) for name in ("solved", "signed", "share_of_tests")) == expected


@pytest.mark.parametrize("standing, expected", [("witnessed", 0.75), ("weakly_witnessed", 0), (None, 0)])
def test_rewards_for_witnessed_tasks_alone(standing, expected):
    grade = {"status": "resolved", "resolved": True, "tests_status": TESTS}
    grade |= {"witness": {"standing": standing}} if standing else {}
    assert reward_of("solved", "resolved")(grade) == 1
    assert reward_of("solved", "witnessed")(grade) == (expected > 0)
    assert reward_of("signed", "witnessed")(grade) == (1 if expected else -1)
    assert reward_of("share_of_tests", "witnessed")(grade) == expected
    failed = grade | {"status": "unresolved", "resolved": False}
    assert reward_of("share_of_tests", "witnessed")(failed) == 0.75
