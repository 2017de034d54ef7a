"""Exit statuses of mini-swe-agent and SWE-agent, from the programs' own words and figures."""

import pytest
from minisweagent import exceptions

from swelab.agents import mini
from swelab.agents.exit_status import MINI, SWE_AGENT, mini_end, swe_agent_end
from swelab.outcomes import FINAL_ROLLOUTS, RolloutEnd

LONG = "Input length (70001 tokens) exceeds the maximum allowed length (53682 tokens)."


def mini_info(status="LimitsExceeded", calls=3, cost=0.5, **limits):
    stats = {"api_calls": calls, "instance_cost": cost}
    return {"exit_status": status, "model_stats": stats, "config": {"agent": limits}}


@pytest.mark.parametrize(
    ("info", "end"),
    [
        (mini_info(step_limit=3, cost_limit=0), "step_limit"),
        (mini_info(step_limit=3, cost_limit=3.0), "step_limit"),
        (mini_info(step_limit=0, cost_limit=0.5), "cost_limit"),
        (mini_info(step_limit=250, cost_limit=0.4), "cost_limit"),
        (mini_info(step_limit=3, cost_limit=0.4), "cost_limit"),
        (mini_info(), "step_limit"),
        ({"exit_status": "LimitsExceeded"}, "step_limit"),
        (mini_info(calls=None, cost="much", step_limit=3, cost_limit=3), "step_limit"),
        ({"exit_status": "LimitsExceeded", "config": None, "model_stats": [1]}, "step_limit"),
        (mini_info("Submitted", cost_limit=0.1), "submitted"),
        (mini_info("AuthenticationError"), "model_lost"),
        (mini_info("TimeExceeded"), "time_limit"),
        (mini_info("RepeatedFormatError"), "malformed"),
        (mini_info("ContextWindowExceededError"), "context_limit"),
        (mini_info("CalledProcessError"), "sandbox_lost"),
        (mini_info("BadRequestError") | {"exception_str": f"OpenAIException - {LONG}"}, "context_limit"),
        (
            mini_info("BadRequestError") | {"traceback": f"Traceback:\n  a\nb.BadRequestError: {LONG}\n"},
            "context_limit",
        ),
        (mini_info("BadRequestError") | {"exception_str": "messages.2: text is empty"}, "model_lost"),
        (mini_info("BadRequestError") | {"exception_str": "blocked by content filtering"}, "model_refused"),
        (mini_info("ContentPolicyViolationError"), "model_refused"),
    ],
)
def test_how_mini_ended(info, end):
    assert mini_end(info) == end


@pytest.mark.parametrize(
    ("status", "patch"), [("exit_cost", ""), ("submitted (exit_cost)", "diff"), ("submitted (exit_cost)", "")]
)
@pytest.mark.parametrize(
    ("limits", "end"),
    [
        ({"per_instance_call_limit": 2, "per_instance_cost_limit": 0}, "step_limit"),
        ({"per_instance_call_limit": 2, "per_instance_cost_limit": 3.0}, "step_limit"),
        ({"per_instance_call_limit": 0, "per_instance_cost_limit": 0.4}, "cost_limit"),
        ({"per_instance_call_limit": 100, "per_instance_cost_limit": 0.4}, "cost_limit"),
        ({"per_instance_cost_limit": 3.0, "total_cost_limit": 1.0}, "cost_limit"),
        ({}, "cost_limit"),
        (None, "cost_limit"),
    ],
)
def test_which_limit_ended_a_run_of_swe_agent(status, patch, limits, end):
    info = {"exit_status": status, "model_stats": {"instance_cost": 0.5, "api_calls": 3}}
    settings = {"agent": {"model": limits}} if limits is not None else None
    assert swe_agent_end(info, settings, patch, "") == end


@pytest.mark.parametrize(
    ("words", "patch", "end"),
    [
        ("litellm.BadRequestError: the content_filter was triggered", "", "model_refused"),
        ("litellm.BadRequestError: the content_filter was triggered", "diff", "submitted"),
        ("litellm.APIError: down", "", "model_lost"),
    ],
)
def test_a_filter_that_ended_a_run_of_swe_agent(words, patch, end):
    assert swe_agent_end({"exit_status": "submitted (exit_error)"}, None, patch, words) == end


def test_every_word_is_the_end_of_a_result():
    assert set(MINI.values()) | set(SWE_AGENT.values()) <= set(FINAL_ROLLOUTS)
    assert all(
        isinstance(swe_agent_end({"exit_status": word}, None, "", ""), RolloutEnd) for word in SWE_AGENT
    )
    assert swe_agent_end({"exit_status": None}, None, "", "") is None
    assert swe_agent_end({"exit_status": "early_exit"}, None, "", "") is None


def test_every_word_with_which_mini_stops_by_itself_is_known():
    """mini ends on these exceptions. A format error or a user's message does not end it."""
    kinds = {kind for kind in vars(exceptions).values() if isinstance(kind, type)}
    flow = {kind for kind in kinds if issubclass(kind, exceptions.InterruptAgentFlow)}
    goes_on = {exceptions.InterruptAgentFlow, exceptions.FormatError, exceptions.UserInterruption}
    assert {kind.__name__ for kind in flow - goes_on} | {"RepeatedFormatError"} <= MINI.keys()


@pytest.mark.parametrize("kind", mini.FAULTS)
def test_what_ends_a_live_run_ends_a_recorded_one_alike(kind):
    """mini-swe-agent writes the name of the exception. An exhausted budget is never recorded as an end."""
    end = mini.FAULTS[kind]
    assert end in set(RolloutEnd)
    if end != RolloutEnd.BUDGET_SPENT:
        assert mini_end({"exit_status": kind.__name__}) == end
