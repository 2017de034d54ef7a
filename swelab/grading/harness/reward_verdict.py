"""The verdict of a task's own script, from the reward that it wrote: resolved if the reward is 1."""

import json
from collections.abc import Mapping
from typing import Any

from swelab.grading.evidence import RunEvidence
from swelab.outcomes import GradeEnd

REWARD_FILES = ("reward.json", "reward.txt")
"""Files in /logs/verifier. The first that exists counts, as in Harbor."""
_ENDING = ("cpu", "memory", "disk")
"""Limits that end a script before it has finished judging."""
_SIGNALS = 128
"""A higher exit code means that a signal ended the script before it had finished judging."""


class NoReward(Exception):
    """The script left no readable reward. The message says why."""


def reward_verdict(run: RunEvidence, end: str) -> tuple[str, str, None]:
    """Returns (status, reason, None) for the run of a task's script. end: how the run ended, in words."""
    if run.limit in _ENDING:
        return GradeEnd.UNRESOLVED, f"the script met its {run.limit} limit", None
    if (run.code or 0) > _SIGNALS:
        return GradeEnd.UNRESOLVED, f"a signal ended the script: {end}", None
    try:
        reward = read_reward(run)
    except NoReward as fault:
        return GradeEnd.UNRESOLVED, f"{fault}: {end}", None
    if reward < 1:
        return GradeEnd.UNRESOLVED, f"the reward is {reward:g}", None
    if run.tests_changed and not run.reference:
        return GradeEnd.TAMPERED, f"the run changed {run.tests_changed}, which judges it", None
    return GradeEnd.RESOLVED, "", None


def read_reward(run: RunEvidence) -> float:
    """Returns the reward of a run, from 0 to 1. Raises NoReward.

    The reward is the number in reward.txt or the value of `reward` in reward.json. If reward.json has no such
    key, the reward is the mean of its values.
    """
    if run.reward_fault:
        raise NoReward(run.reward_fault)
    rewards: Mapping[str, str] = run.rewards
    name = next((each for each in REWARD_FILES if each in rewards), "")
    if not name:
        raise NoReward("the script wrote no reward")
    if name == "reward.txt":
        return _in_bounds(_number(rewards[name].strip()), name)
    try:
        values = json.loads(rewards[name])
    except (ValueError, RecursionError):
        raise NoReward("reward.json is not JSON") from None
    if not isinstance(values, dict) or not values:
        raise NoReward("reward.json is no object with rewards")
    read = {key: _in_bounds(value, f"{key[:40]!r} in reward.json") for key, value in values.items()}
    return read["reward"] if "reward" in read else sum(read.values()) / len(read)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _in_bounds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise NoReward(f"{where} is {str(value)[:40]!r}, no number from 0 to 1")
    return float(value)
