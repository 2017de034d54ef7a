"""Computes the figures of a training step. A figure that no rollout reported is omitted, not set to 0.

The figures with the prefix `agent/` have the names and definitions of Miles' SWE agent example.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev

from swelab.models.token_turn import TokenTurn
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records import InputError, Record, read_jsonl
from swelab.rl.failures import Attempt, Tally
from swelab.rl.rewards import zero_or_one
from swelab.rl.rollouts import RolledOut

Reported = Mapping[str, float]
_DROPPED = "groups_dropped/"
_EACH: Mapping[str, Callable[[list[float]], float]] = {"mean": fmean, "min": min, "max": max}
_SPREAD = ("turns", "total_time", "model_query_time_sum", "env_execution_time_sum", "eval_time")
"""Figures of rollouts that are reported as mean, minimum and maximum."""
_ALL: dict[str, tuple[Callable[[list[float]], float], str]] = {
    **{f"{key}_{name}": (over, key) for key in _SPREAD for name, over in _EACH.items()},
    "turns_sum": (sum, "turns"),
    "tool_calls_mean": (fmean, "tool_calls"),
    "tool_calls_sum": (sum, "tool_calls"),
    "agent_run_time_mean": (fmean, "agent_run_time"),
    **{
        name: (fmean, name)
        for name in (
            *("time_per_turn", "model_query_time_avg", "env_execution_time_avg"),
            *("model_time_ratio", "env_time_ratio", "eval_time_ratio"),
        )
    },
}


def of_rollout(done: RolledOut) -> dict[str, float]:
    """Returns the figures of one rollout, with times in seconds, or {} if the policy never answered."""
    messages = done.trajectory["messages"]
    answers = [message for message in messages if message["role"] == "assistant"]
    if not done.turns:
        return {}
    calls = [action for message in answers for action in message.get("extra", {}).get("actions", [])]
    query_seconds = _seconds(answers)
    ran = _seconds(message for message in messages if message["role"] in ("user", "tool"))
    figures: dict[str, float] = {
        "turns": len(done.turns),
        "tool_calls": len(calls),
        "agent_run_time": done.seconds["run"],
        "eval_time": done.seconds["grade"],
        "total_time": done.seconds["run"] + done.seconds["grade"],
        "model_query_time_sum": query_seconds,
        "env_execution_time_sum": ran,
    }
    turns, total = len(done.turns), max(figures["total_time"], 1e-6)
    return figures | {
        "time_per_turn": figures["agent_run_time"] / turns,
        "model_query_time_avg": query_seconds / turns,
        "env_execution_time_avg": ran / turns,
        "model_time_ratio": query_seconds / total,
        "env_time_ratio": ran / total,
        "eval_time_ratio": figures["eval_time"] / total,
    }


def of_agents(reports: Iterable[Reported]) -> dict[str, float]:
    """Returns the `agent/` figures of a step. Each is computed over the rollouts that reported it."""
    given = list(reports)
    found = {}
    for name, (over, key) in _ALL.items():
        if values := [report[key] for report in given if key in report]:
            found[f"agent/{name}"] = float(over(values))
    return found


def of_rewards(attempts: Sequence[Attempt], tally: Tally) -> dict[str, float]:
    """Returns figures about rewards, and the share of rollouts that ended in each way. Each share is relative
    to all rollouts. Only the resolve rate excludes rollouts that were lost to infrastructure."""
    rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
    played = [attempt for attempt in attempts if not attempt.lost]
    trained = tally.groups - tally.dropped.total()
    figures: dict[str, float] = {"rollouts": len(attempts), "groups": tally.groups, "groups_trained": trained}
    if rewards:
        figures |= {"reward/mean": fmean(rewards), "reward/std": pstdev(rewards)}
    if played:
        figures["rate/resolved"] = fmean(attempt.grade == GradeEnd.RESOLVED for attempt in played)
    if attempts:
        figures |= {
            "rate/lost": tally.lost / len(attempts),
            "rate/masked": tally.masked / len(attempts),
            "rate/suspect": fmean(attempt.grade == GradeEnd.SUSPECT for attempt in attempts),
            "rate/tampered": fmean(attempt.grade == GradeEnd.TAMPERED for attempt in attempts),
        }
        for end in RolloutEnd:
            if count := sum(attempt.end == end for attempt in attempts):
                figures[f"end/{end}"] = count / len(attempts)
    return figures | {f"{_DROPPED}{reason}": count for reason, count in sorted(tally.dropped.items())}


def of_groups(groups: Iterable[Sequence[Attempt]]) -> dict[str, float]:
    """Counts a step's tasks by whether none, all or some of their attempts resolved them. Attempts that were
    lost to infrastructure do not count. A task with only lost attempts is counted as lost."""
    counts = dict.fromkeys(("none", "all", "some"), 0.0)
    lost = 0.0
    for group in groups:
        solved_ones = [attempt.grade == GradeEnd.RESOLVED for attempt in group if not attempt.lost]
        if not solved_ones:
            lost += 1
        else:
            counts["all" if all(solved_ones) else "some" if any(solved_ones) else "none"] += 1
    return {f"groups_solved/{name}": count for name, count in counts.items()} | {"groups_solved/lost": lost}


def check_trained(path: Path) -> None:
    """Raises InputError if no step of a training run trained a token. path: the run's metrics, one line per
    step."""
    lines = [line for line in read_jsonl(path) if "train/tokens" in line]
    if not any(line["train/tokens"] for line in lines):
        what = f"no step trained anything: {untrained_reason(lines)}"
        wanted = "tasks that are solved sometimes (`source: attempted`), or more `rollouts.samples`"
        raise InputError(what, path, wanted)


def untrained_reason(lines: Iterable[Mapping[str, float]]) -> str:
    """Returns a message that says why groups were not trained. lines: figures of the steps."""
    dropped, groups = Counter[str](), 0.0
    for line in lines:
        groups += line["groups"]
        for name, count in line.items():
            if name.startswith(_DROPPED):
                dropped[name.removeprefix(_DROPPED)] += int(count)
    told = [f"{count} were dropped as {reason}" for reason, count in sorted(dropped.items())]
    return f"of {groups:.0f} groups {', '.join(told) or 'none had a token to train'}"


def of_judge(rollouts: Iterable[RolledOut], spent: Mapping[str, float]) -> dict[str, float]:
    """Returns the judge's figures: the mean score of a turn, the share of turns without a score, and the
    judge's usage in this process."""
    scores = [score for done in rollouts if done.votes for score in done.scores]
    if not scores:
        return {}
    known = [score for score in scores if score is not None]
    found = {"judge/unjudged": 1 - len(known) / len(scores)}
    found |= {f"judge/{name}": float(value) for name, value in sorted(spent.items())}
    return found | ({"judge/score_mean": fmean(known)} if known else {})


def of_validation(rollouts: Sequence[RolledOut]) -> dict[str, float]:
    """Counts the tasks of a validation that were not lost, those that were resolved, and those that were
    lost. The resolve rate excludes lost tasks."""
    attempts = [done.attempt(zero_or_one) for done in rollouts]
    played = sum(not attempt.lost for attempt in attempts)
    resolved = sum(attempt.grade == GradeEnd.RESOLVED for attempt in attempts)
    found: dict[str, float] = {
        "validation/tasks": played,
        "validation/resolved": resolved,
        "validation/lost": len(attempts) - played,
    }
    return found | ({"validation/resolve_rate": resolved / played} if played else {})


def of_turns(rollouts: Iterable[RolledOut], current: str) -> dict[str, float]:
    """Returns token counts, and the share of tokens that were sampled with weights other than `current`."""
    prompts, sampled, stale = [], [], 0
    for done in rollouts:
        if done.turns:
            prompts.append(len(done.turns[-1].prompt))
            sampled.append(sum(len(turn.sampled) for turn in done.turns))
            stale += sum(_other(turn, current) for turn in done.turns)
    if not sampled:
        return {}
    return {
        "tokens/sampled": float(sum(sampled)),
        "tokens/sampled_mean": fmean(sampled),
        "tokens/last_prompt_mean": fmean(prompts),
        "staleness": stale / max(1, sum(sampled)),
    }


def _other(turn: TokenTurn, current: str) -> int:
    ends = [start for start, _ in turn.versions[1:]] + [len(turn.sampled)]
    return sum(
        end - start for (start, version), end in zip(turn.versions, ends, strict=True) if version != current
    )


def _seconds(messages: Iterable[Record]) -> float:
    return float(sum(message.get("extra", {}).get("seconds", 0.0) for message in messages))
