"""Reads the usage of trajectories: calls, tokens, dollars and time, as far as they were recorded."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from swelab.outcomes import RolloutEnd
from swelab.records.attempt_records import Rollout, Trajectory, Usage

TOKENS = {"prompt_tokens": "tokens_sent", "completion_tokens": "tokens_received"}
"""Maps fields of a message's usage (ours and mini-swe-agent's) to fields of SWE-agent's model_stats."""


def usage_of(trajectory: Rollout) -> Usage:
    """Returns the usage of a trajectory. A value that was not recorded is None. So is the cost of a model
    without a known price, which is recorded as 0."""
    turns = [each.get("extra") or {} for each in trajectory.messages if each.role == "assistant"]
    stats = trajectory.get("info", {}).get("model_stats") or {}
    time = {"seconds": trajectory["seconds"]} if "seconds" in trajectory else {}
    calls = max(len(turns), _number(stats.get("api_calls")) or 0)
    if not calls:
        known = None if trajectory.outcome == RolloutEnd.NOT_RECORDED else 0
        return Usage.of({"calls": 0, **dict.fromkeys((*TOKENS, "cost"), known), **time})
    used = [turn.get("usage") or (turn.get("response") or {}).get("usage") or {} for turn in turns]
    tokens = {
        name: _total([each.get(name) for each in used]) or _number(stats.get(other)) or None
        for name, other in TOKENS.items()
    }
    if thoughts := sum(map(_thought_tokens, used)):
        tokens["reasoning_tokens"] = thoughts
    cost = _number(stats.get("instance_cost")) or sum(_number(turn.get("cost")) or 0 for turn in turns)
    return Usage.of({"calls": int(calls), **tokens, "cost": cost or None, **time})


def _thought_tokens(used: Any) -> int:
    """Returns the tokens of thoughts in a message's usage (ours or mini-swe-agent's), or 0."""
    found = used.get("reasoning_tokens") or (used.get("completion_tokens_details") or {}).get(
        "reasoning_tokens"
    )
    return int(_number(found) or 0)


def _number(value: Any) -> Any:
    """Returns `value` if it can be a count or a price, otherwise None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _total(values: list[Any]) -> int | None:
    """Returns the sum of token counts, or None if a count is unknown or 0, because every call has tokens."""
    return sum(values) if values and all(map(_number, values)) else None


def collect_usage(
    trajectories: Iterable[tuple[str | Path, Trajectory]], usage: dict[str, Usage]
) -> Iterator[tuple[str | Path, Trajectory]]:
    """Yields (path, trajectory) pairs unchanged, and stores each trajectory's usage in `usage` by instance
    id."""
    for path, row in trajectories:
        usage[row.instance_id] = usage_of(row)
        yield path, row
