"""Tasks that are chosen by a policy's attempts, their order, and the reasons against others."""

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SUBSET
from swelab.records import InputError
from swelab.records.attempt_records import Grade
from swelab.records.task_records import Task
from swelab.tasks.pass_rates import PassRate, choose, pass_rates

TASKS = [Task.of({"instance_id": name}) for name in "abcdefg"]
SOLVED = {"a": 0, "b": 1, "c": 8, "d": 4, "e": 7, "f": 4}


def subset(**settings):
    return recipes.complete(SUBSET, {"source": "attempted", "subset": "s", "policy": "p", **settings}, "it")


def grades(name, *statuses):
    return [
        Grade.of({"instance_id": name, "status": status, "resolved": status == "resolved"})
        for status in statuses
    ]


def rates(attempts=8):
    return {name: PassRate(solved, attempts) for name, solved in SOLVED.items()}


def test_a_rate_is_of_the_attempts_that_were_judged():
    ends = ("resolved", "unresolved", "infra_error", "tampered", "empty_patch", "resolved")
    found = pass_rates([*grades("a", *ends), *grades("b", "infra_error")])
    assert found == {"a": PassRate(2, 5)} and found["a"].share == 0.4


def test_tasks_are_kept_within_the_bounds_and_in_their_order():
    chosen = choose(TASKS, rates(), subset(at_least=0.2, at_most=0.8))
    assert chosen.kept == ["d", "f"]
    assert chosen.reasons == {
        "a": "never_solved",
        "b": "seldom_solved",
        "c": "always_solved",
        "e": "often_solved",
        "g": "not_attempted",
    }
    assert chosen.facts["drops"] == dict.fromkeys(sorted(set(chosen.reasons.values())), 1)
    assert chosen.facts["pass_rates"] == {name: {"solved": 4, "attempts": 8} for name in "df"}
    assert chosen.facts["left_out"]["e"] == {"reason": "often_solved", "solved": 7, "attempts": 8}
    assert chosen.facts["left_out"]["g"] == {"reason": "not_attempted", "attempts": 0}


def test_a_bound_is_within():
    assert choose(TASKS, rates(10), subset(at_least=0.1, at_most=0.4)).kept == ["b", "d", "f"]


def test_a_curriculum_begins_with_what_is_solved_most_often():
    chosen = choose(TASKS, rates(), subset(order="easy-first"))
    assert chosen.kept == ["c", "e", "d", "f", "b", "a"]
    others = choose(TASKS[::-1], rates(), subset(order="easy-first"))
    assert others.kept == ["c", "e", "f", "d", "b", "a"], "equal ones stay in the order of the subset"


def test_no_task_left_is_one_line():
    with pytest.raises(InputError) as caught:
        choose(TASKS[:3], rates(), subset(at_least=0.3, at_most=0.7))
    counts = "{'always_solved': 1, 'never_solved': 1, 'seldom_solved': 1}"
    expected = "expected other bounds, or more `samples` of policy p"
    assert str(caught.value) == f"no task of s is solved as often as asked: {counts}; {expected}"
