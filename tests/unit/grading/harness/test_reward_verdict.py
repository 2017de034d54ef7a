"""Rewards as scripts write them, and the verdicts of their runs."""

import pytest

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness.grade import grade_evidence
from swelab.grading.harness.reward_verdict import NoReward, read_reward
from swelab.grading.harness.spec import RunSpec

SPEC = RunSpec("i", (), (), verifier="tar")


def run(rewards, **changes):
    facts = {"ended": "ran", "reason": "", "findings": [], "guarded": False, "timed_out": False, "limit": ""}
    facts |= {"log": "no such program\n", "code": 0, "sealed": "unwatched", "seconds": 1.0}
    return RunEvidence.of({**facts, "rewards": rewards, **changes})


@pytest.mark.parametrize(
    ("rewards", "reward"),
    [
        ({"reward.txt": "1\n"}, 1),
        ({"reward.txt": " 0.25 \n"}, 0.25),
        ({"reward.txt": "1e-1"}, 0.1),
        ({"reward.json": '{"reward": 0.5, "speed": 1}'}, 0.5),
        ({"reward.json": '{"rows": 1, "columns": 0.5}'}, 0.75),
        ({"reward.json": '{"only": 1}'}, 1),
        ({"reward.json": '{"reward": 0}', "reward.txt": "1"}, 0),
    ],
)
def test_a_reward_is_a_number_or_an_object_of_numbers(rewards, reward):
    grade = grade_evidence(SPEC, "x", run(rewards))
    assert read_reward(run(rewards)) == grade.reward == pytest.approx(reward)
    assert (grade.status, grade.resolved) == (("resolved", True) if reward == 1 else ("unresolved", False))
    assert reward == 1 or grade.reason == f"the reward is {reward:g}"


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ({}, "the script wrote no reward"),
        ({"reward.txt": ""}, "reward.txt is '', no number"),
        ({"reward.txt": "passed"}, "reward.txt is 'passed', no number from 0 to 1"),
        ({"reward.txt": "nan"}, "no number from 0 to 1"),
        ({"reward.txt": "inf"}, "no number from 0 to 1"),
        ({"reward.txt": "-0.1"}, "no number from 0 to 1"),
        ({"reward.txt": "2"}, "no number from 0 to 1"),
        ({"reward.json": "{"}, "reward.json is not JSON"),
        ({"reward.json": "[" * 100_000}, "reward.json is not JSON"),
        ({"reward.json": "1"}, "reward.json is no object"),
        ({"reward.json": "{}"}, "reward.json is no object"),
        ({"reward.json": '{"reward": true}'}, "'reward' in reward.json is 'True', no number"),
        ({"reward.json": '{"reward": 1, "rows": "1"}'}, "'rows' in reward.json is '1', no number"),
        ({"reward.json": '{"reward": NaN}'}, "no number from 0 to 1"),
        ({"reward.json": "{", "reward.txt": "1"}, "reward.json is not JSON"),
    ],
)
def test_what_is_no_reward_is_unresolved_and_says_why(rewards, why):
    with pytest.raises(NoReward) as fault:
        read_reward(run(rewards))
    assert why in str(fault.value)
    grade = grade_evidence(SPEC, "x", run(rewards, code=127))
    assert grade.status == "unresolved" and "reward" not in grade
    assert why in grade.reason and grade.reason.endswith("exit code 127; the log ends with 'no such program'")


GOOD = {"reward.txt": "1"}


@pytest.mark.parametrize(
    ("changes", "status", "why"),
    [
        ({"tests_changed": "/tests/test.sh"}, "tampered", "the run changed /tests/test.sh"),
        ({"findings": ["it names reward.txt"]}, "suspect", "it names reward.txt"),
        ({"timed_out": True, "limit": "wall"}, "timeout", "longer than 600 s"),
        ({"limit": "memory"}, "unresolved", "the script met its memory limit"),
        ({"reward_fault": "reward.txt is no plain file"}, "unresolved", "no plain file"),
        ({"ended": "not_applied", "reason": "no way"}, "apply_failed", "no way"),
        ({"ended": "infra_error", "reason": "lost"}, "infra_error", "lost"),
        ({"code": 137}, "unresolved", "a signal ended the script: exit code 137"),
        ({"limit": "output"}, "resolved", ""),
        ({"code": 1}, "resolved", ""),
        ({"tests_changed": "/tests/test.sh", "reference": True}, "resolved", ""),
    ],
)
def test_a_reward_of_1_is_not_all(changes, status, why):
    grade = grade_evidence(SPEC, "x", run(GOOD, **changes))
    assert grade.status == status and why in grade.reason


def test_a_run_that_changes_its_verifier_and_fails_is_unresolved():
    grade = grade_evidence(SPEC, "x", run({"reward.txt": "0"}, tests_changed="/tests/test.sh"))
    assert (grade.status, grade.reward) == ("unresolved", 0)
