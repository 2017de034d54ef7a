"""Metrics of a step compared with values worked out by hand."""

import pytest

from swelab.configs.kinds.rl import Failures
from swelab.models.token_turn import TokenTurn
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records.task_records import Task
from swelab.rl.failures import Attempt, Tally, treat
from swelab.rl.metrics import of_agents, of_groups, of_rewards, of_rollout, of_turns
from swelab.rl.rollouts import RolledOut, RolloutRequest

TURN = TokenTurn([1, 2], [3, 4, 5, 6], [-1.0] * 4, "stop", ((0, "7"), (3, "8")))
MESSAGES = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "task"},
    {"role": "assistant", "content": "a", "extra": {"seconds": 100.0, "actions": [{}, {}]}},
    {"role": "tool", "content": "o", "extra": {"seconds": 50.0}},
    {"role": "tool", "content": "o", "extra": {"seconds": 10.0}},
    {"role": "assistant", "content": "b", "extra": {"seconds": 20.0, "actions": [{}]}},
]
DONE = RolledOut(
    RolloutRequest(0, 0, Task.of(Task.of({"instance_id": "x"}))),
    {"outcome": "submitted", "messages": MESSAGES},
    {"status": "resolved", "resolved": True},
    (TURN, TURN),
    {"run": 400.0, "grade": 100.0},
)


def test_what_a_rollout_reports():
    found = of_rollout(DONE)
    assert (found["turns"], found["tool_calls"], found["total_time"]) == (2, 3, 500)
    assert (found["model_query_time_sum"], found["env_execution_time_sum"]) == (120, 60)
    assert (found["time_per_turn"], found["model_query_time_avg"], found["env_execution_time_avg"]) == (
        200,
        60,
        30,
    )
    assert found["model_time_ratio"] == pytest.approx(0.24) and found["env_time_ratio"] == pytest.approx(0.12)
    assert found["eval_time_ratio"] == pytest.approx(0.2)


def test_a_figure_that_nobody_reported_is_left_out():
    assert of_agents([{"tool_calls": 47}, {}]) == {"agent/tool_calls_mean": 47, "agent/tool_calls_sum": 47}
    assert of_agents([{"tool_calls": 0}, {"tool_calls": 4}])["agent/tool_calls_mean"] == 2, "a real 0 counts"
    assert of_agents([]) == {} == of_turns([], "1")


def test_the_names_of_the_agents_figures():
    assert sorted(of_agents([of_rollout(DONE)])) == sorted(
        f"agent/{name}"
        for name in (
            *(
                f"{key}_{of}"
                for key in (
                    *("turns", "total_time", "eval_time"),
                    *("model_query_time_sum", "env_execution_time_sum"),
                )
                for of in ("mean", "min", "max")
            ),
            *("turns_sum", "tool_calls_mean", "tool_calls_sum", "agent_run_time_mean", "time_per_turn"),
            *("model_query_time_avg", "env_execution_time_avg"),
            *("model_time_ratio", "env_time_ratio", "eval_time_ratio"),
        )
    )


def test_rates_and_rewards():
    group = [
        Attempt(RolloutEnd.SUBMITTED, GradeEnd.RESOLVED, 1.0, 5),
        Attempt(RolloutEnd.SUBMITTED, GradeEnd.TAMPERED, 0.0, 5),
        Attempt(RolloutEnd.MALFORMED, GradeEnd.EMPTY_PATCH, 0.0, 5),
        Attempt(RolloutEnd.SANDBOX_LOST, None, None, 0),
    ]
    tally = Tally()
    tally.add(group, treat(group, Failures()))
    found = of_rewards(group, tally)
    assert found["rate/resolved"] == pytest.approx(1 / 3) == found["reward/mean"]
    assert found["rate/lost"] == 0.25 == found["rate/tampered"] == found["rate/masked"]
    assert (found["end/submitted"], found["end/sandbox_lost"]) == (0.5, 0.25)
    assert "reward/mean" not in of_rewards(group[3:], Tally())


def test_tasks_by_how_many_of_their_attempts_solve_them():
    good = Attempt(RolloutEnd.SUBMITTED, GradeEnd.RESOLVED, 1.0, 5)
    bad = Attempt(RolloutEnd.STEP_LIMIT, GradeEnd.UNRESOLVED, 0.0, 5)
    lost = Attempt(RolloutEnd.SANDBOX_LOST, None, None, 0)
    found = of_groups([[good, good], [good, lost], [bad, bad], [bad, good], [lost, lost]])
    assert found == {
        "groups_solved/none": 1,
        "groups_solved/all": 2,
        "groups_solved/some": 1,
        "groups_solved/lost": 1,
    }


def test_tokens_of_older_weights_are_stale():
    assert of_turns([DONE], "8") == {
        "tokens/sampled": 8,
        "tokens/sampled_mean": 8,
        "tokens/last_prompt_mean": 2,
        "staleness": 0.75,
    }
    assert of_turns([DONE], "7")["staleness"] == 0.25
