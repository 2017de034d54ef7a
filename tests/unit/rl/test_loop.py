"""From groups to a batch: the advantage with which each token is trained."""

import pytest

from swelab.models.token_turn import TokenTurn
from swelab.records.task_records import Task
from swelab.rl.failures import treat
from swelab.rl.loop import batch_of
from swelab.rl.method import Group
from swelab.rl.rewards import REWARDS
from swelab.rl.rollouts import RolledOut, RolloutRequest
from tests.rl_recipe import rl_recipe

RECIPE = rl_recipe(rollouts={"prompts": 1, "samples": 2})
TASK = Task.of({"instance_id": "x"})
TURNS = (
    TokenTurn((1, 2), (3, 4), (-0.1, -0.2), "stop", ((0, "0"),)),
    TokenTurn((1, 2, 3, 4, 5), (6,), (-0.3,), "stop", ((0, "0"),)),
)


def rollout(sample, resolved, votes=()):
    grade = {"status": "resolved" if resolved else "unresolved", "resolved": resolved}
    trajectory = {"outcome": "submitted", "messages": []}
    return RolledOut(RolloutRequest(0, sample, TASK), trajectory, grade, TURNS, {"run": 1, "grade": 1}, votes)


def group(recipe, *rollouts):
    attempts = [each.attempt(REWARDS[recipe.method.reward], recipe.coefficient) for each in rollouts]
    treated = treat(attempts, recipe.method.failures, recipe.method.keep_constant)
    return Group(list(rollouts), attempts, treated)


def advantages(recipe, *rollouts):
    return [list(each.advantages) for each in batch_of([group(recipe, *rollouts)], recipe)]


def test_all_tokens_of_a_rollout_have_its_advantage_and_what_it_read_has_none():
    found = advantages(RECIPE, rollout(0, True), rollout(1, False))
    assert found == [[0, 0, 0.5, 0.5, 0, 0.5], [0, 0, -0.5, -0.5, 0, -0.5]]


def test_a_group_that_is_dropped_trains_nothing():
    assert advantages(RECIPE, rollout(0, True), rollout(1, True)) == []


def test_a_judge_parts_rollouts_that_ended_alike():
    recipe = rl_recipe(judge={"policy": "rater", "coefficient": 0.5})
    found = advantages(recipe, rollout(0, True, ((1, 1), (1, None))), rollout(1, True, ((-1, 1), (-1, -1))))
    # Rewards: 1 + 0.5 x 1 = 1.5 and 1 + 0.5 x mean(0, -1) = 0.75; minus their mean of 1.125.
    assert found[0][2:4] == pytest.approx([0.375] * 2) and found[1][5] == pytest.approx(-0.375)


def test_each_step_has_an_advantage_of_its_own():
    recipe = rl_recipe(method={"advantage": "step-wise"}, judge={"policy": "rater"})
    found = advantages(recipe, rollout(0, True, ((1,), (1,))), rollout(1, False, ((1,), (1,))))
    # The first steps score 1 + 1 and 0 + 1, the second steps too: mean 1.5, deviation 0.5.
    assert found[0] == pytest.approx([0, 0, 1, 1, 0, 1], abs=1e-4)
    found = advantages(recipe, rollout(0, True, ((-1,), (1,))), rollout(1, False, ((0,), (None,))))
    # First steps: 1 - 1 and 0 + 0, equal. Second: 1 + 1, and 0 + 1 because the judge did not answer.
    assert found[0] == pytest.approx([0, 0, 0, 0, 0, 1], abs=1e-4)
    assert found[1] == pytest.approx([0, 0, 0, 0, 0, -1], abs=1e-4)
