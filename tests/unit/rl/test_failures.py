"""How training treats a rollout that did not end well."""

import pytest

from swelab.configs.kinds.rl import Failures
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.rl.failures import Attempt, Tally, treat

SOLVED = Attempt(RolloutEnd.SUBMITTED, GradeEnd.RESOLVED, 1.0, 50)
FAILED = Attempt(RolloutEnd.SUBMITTED, GradeEnd.UNRESOLVED, 0.0, 50)
LATE = Attempt(RolloutEnd.TIME_LIMIT, GradeEnd.EMPTY_PATCH, 0.0, 80)
NO_SANDBOX = Attempt(RolloutEnd.SANDBOX_LOST, None, None, 12)
NO_GRADE = Attempt(RolloutEnd.SUBMITTED, GradeEnd.INFRA_ERROR, None, 50)
EMPTY = Attempt(RolloutEnd.SUBMITTED, GradeEnd.EMPTY_PATCH, 0.0, 0)


@pytest.mark.parametrize("lost", [NO_SANDBOX, NO_GRADE], ids=["sandbox", "grader"])
def test_what_infrastructure_lost_is_neither_trained_nor_counted(lost):
    treated = treat([SOLVED, FAILED, lost], Failures(drop_group=["time_limit"]))
    assert treated.rewards == [1.0, 0.0, None] and treated.trained == [True, True, False]
    assert treated.dropped == ""


@pytest.mark.parametrize("lost, end", [(NO_SANDBOX, "sandbox_lost"), (NO_GRADE, "infra_error")])
def test_what_infrastructure_lost_drops_its_group_where_the_recipe_says_so(lost, end):
    treated = treat([SOLVED, FAILED, lost], Failures(drop_group=[end]))
    assert treated.dropped == f"{end} in the group" and not any(treated.trained)


@pytest.mark.parametrize(
    ("switches", "rewards", "trained", "dropped"),
    [
        ({}, [1.0, 0.0], [True, True], ""),
        ({"mask": ["time_limit"]}, [1.0, 0.0], [True, False], ""),
        ({"drop_group": ["time_limit"]}, [1.0, 0.0], [False, False], "time_limit in the group"),
        ({"leave_baseline": ["empty_patch"]}, [1.0, None], [False, False], "constant"),
    ],
)
def test_each_switch(switches, rewards, trained, dropped):
    treated = treat([SOLVED, LATE], Failures(**switches))
    assert (treated.rewards, treated.trained, treated.dropped) == (rewards, trained, dropped)


def test_a_masked_rollout_stays_in_the_baseline_unless_told():
    both = Failures(mask=["time_limit"], leave_baseline=["time_limit"])
    treated = treat([SOLVED, FAILED, LATE], both)
    assert treated.rewards == [1.0, 0.0, None] and treated.trained == [True, True, False]


def test_why_each_rollout_is_not_trained():
    masked = treat([SOLVED, FAILED, LATE, NO_SANDBOX, EMPTY], Failures(mask=["time_limit"]))
    told = [masked.reason(place) for place in range(5)]
    assert told == ["", "", "time_limit", "infrastructure", "no token sampled"]
    constant = treat([SOLVED, SOLVED, NO_GRADE], Failures())
    told = [constant.reason(place) for place in range(3)]
    assert told == ["group: constant", "group: constant", "infrastructure"]


def test_groups_that_teach_nothing():
    assert treat([SOLVED, SOLVED], Failures()).dropped == "constant"
    assert treat([SOLVED, SOLVED], Failures(), keep_constant=True).trained == [True, True]
    assert treat([NO_SANDBOX, NO_GRADE], Failures(), keep_constant=True).dropped == "all lost"


def test_what_sampled_nothing_is_not_trained_but_counts():
    treated = treat([SOLVED, EMPTY], Failures())
    assert treated.rewards == [1.0, 0.0] and treated.trained == [True, False]


def test_everything_is_counted():
    tally = Tally()
    for group in ([SOLVED, FAILED, NO_SANDBOX], [FAILED, FAILED, LATE]):
        tally.add(group, treat(group, Failures()))
    assert (tally.groups, tally.lost, tally.masked) == (2, 1, 4)
    assert tally.dropped == {"constant": 1}
    assert tally.ends == {"resolved": 1, "unresolved": 3, "sandbox_lost": 1, "empty_patch": 1}
    assert sum(tally.ends.values()) == 6
