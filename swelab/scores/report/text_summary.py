"""Describes scores and comparisons in sentences, for a terminal."""

import re
from collections.abc import Sequence

from swelab.records.report_records import Validation
from swelab.records.score_records import Comparison, PolicyScore, RunsCompared
from swelab.scores.score import PLANNED_RUNS, Verdicts, count_attempts, detectable, rate_of_runs
from swelab.scores.statistics.multi_run import detectable_differences
from swelab.scores.statistics.paired_rates import POWER
from swelab.scores.verified_score import PolicyVerdicts, all_pairs, compare, runs_of, statuses_of

LEVEL = 0.05
"""p-values at or above this value are called noise."""


def describe(result: PolicyVerdicts) -> str:
    """Returns a result's rate, interval and size, and the number of attempts lost to infrastructure."""
    verdicts = statuses_of(result)
    rate = rate_of_runs(map(count_attempts, verdicts.values()))
    low, high = rate.interval or (0, 1)
    lost = rate.total - sum(count_attempts(row, lost=False)[1] for row in verdicts.values())
    told = f"; {lost} attempts lost to infrastructure, counted as not resolved" if lost else ""
    return (
        f"{result.policy}: {rate.resolve_rate or 0:.1%} [{low:.1%}, {high:.1%}] of {len(verdicts)} tasks, "
        f"{runs(runs_of(verdicts))}{told}"
    )


def losses(score: PolicyScore) -> str:
    """Returns a rate's suffix: the number of attempts lost to infrastructure, and the rate without them.

    Returns '' if no attempt was lost. score: the score of one policy, from its own file or from a verified
    score.
    """
    if not (lost := score.infra_errors):
        return ""
    rest = score.without_infra_errors.resolve_rate
    without = "without them nothing is left" if rest is None else f"{rest:.1%} without them"
    return f" ({lost} of {score.total} lost to infrastructure, counted as not resolved: {without})"


def trust(gate: Validation | None) -> str:
    """Returns the words after a rate if some tasks have no known repair, or '' if all have a gold patch."""
    if not gate or not gate.null_kept:
        return ""
    return f" (validated: null only, {gate.null_kept} of {gate.kept} tasks: no repair of them is known)"


def runs(count: int) -> str:
    """Returns a number of runs in words."""
    return "1 run" if count == 1 else f"{count} runs"


def compare_all(results: Sequence[PolicyVerdicts]) -> list[str]:
    """Returns a sentence on every two results: how much they differ, and whether that may be noise."""
    if len(results) == 2:
        return [comparison_words(compare(*results))]
    return [comparison_words(test, len(results) * (len(results) - 1) // 2) for test in all_pairs(results)]


def comparison_words(test: Comparison, tests: int = 1) -> str:
    """Describes a comparison in words. tests: number of comparisons. With several comparisons, the p-value
    has Holm's correction for that number."""
    first, second = test.from_policy, test.to_policy
    if test.difference is None or test.interval is None:
        return f"{second} and {first}: no task was graded on both sides"
    gap, (low, high) = 100 * test.difference, (100 * limit for limit in test.interval)
    p = test.p_adjusted if tests > 1 else test.p_value
    name = re.split("[,(]", test.methods.test)[0].strip()
    corrected = f", with Holm's correction over {tests} comparisons" if tests > 1 else ""
    more = f"{abs(gap):.1f} points {'more' if gap > 0 else 'less'} than" if round(gap, 1) else "as much as"
    count = test.runs or RunsCompared.of({"from": 1, "to": 1})
    each = f"{runs(count.to_policy)} against {runs(count.from_policy)}"
    smallest = test.minimum_detectable_difference
    power = f" A true difference of {100 * (smallest or 0):.1f} points is found {POWER:.0%} of the time."
    out = test.excluded_infra_errors
    left = f" Tasks lost to infrastructure and left out: {out}." if out else ""
    noise = "more than noise" if p is not None and p < LEVEL else "not told from noise"
    return (
        f"{second} resolves {more} {first} on {test.pairs} tasks ({each}): {noise}. 95% interval "
        f"{low:+.1f} to {high:+.1f} points; p = {p:.2g} ({name}{corrected}).{power if smallest else ''}{left}"
    )


def plan_for(verdicts: Verdicts) -> list[str]:
    """Returns the differences that further runs of these tasks could detect, one line per number of runs."""
    return [
        f"  {runs(int(count))} each: {range_of_points(limits.same_tasks_hard, limits.unrelated)}"
        for count, limits in detectable(verdicts).runs.items()
    ]


def plan_before(tasks: int, rate: float, luck: float) -> list[str]:
    """Like `plan_for`, but without any run so far.

    luck: share of the variance of attempts that is within tasks.
    """
    within = luck * rate * (1 - rate)
    return [
        f"  {runs(count)} each: {range_of_points(*detectable_differences(rate, tasks, count, within))}"
        for count in PLANNED_RUNS
    ]


def range_of_points(least: float | None, most: float) -> str:
    """Formats a range of differences in percentage points."""
    return (
        f"{100 * most:.1f} points or less"
        if least is None
        else f"{100 * least:.1f} to {100 * most:.1f} points"
    )
