"""The verified score: scores on each benchmark side by side, and their paired comparison."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Protocol

from swelab.configs.recipes import nearest
from swelab.outcomes import LOST_GRADES
from swelab.records import InputError, Record, read_record
from swelab.records.score_records import Comparison, Score, VerifiedScore
from swelab.scores.score import count_attempts
from swelab.scores.statistics.one_rate import CONFIDENCE, round_digits
from swelab.scores.statistics.paired_rates import (
    POWER,
    detectable_difference,
    mcnemar_exact,
    pair,
    paired_interval,
)
from swelab.scores.statistics.permutation_test import (
    difference_interval,
    found_difference,
    holm,
    share_differences,
    sign_flip,
)

POLICY_FIELDS = tuple(
    """
resolve_rate interval resolved total infra_errors without_infra_errors statuses outcomes runs spread pass_at
pass_all detectable usage
""".split()
)
RUN_METHODS = {
    "test": "paired permutation (sign flips of differences by task), exact, two-sided",
    "interval": "Newcombe 1998 method 10 with intervals over tasks and runs (Zou and Donner 2008)",
}
NO_PAIRS = {
    **dict.fromkeys(("p_value", "difference", "interval", "minimum_detectable_difference")),
    "discordant": {"gained": 0, "lost": 0},
    "both": 0,
    "neither": 0,
    "pairs": 0,
}


class PolicyVerdicts(Protocol):
    """A policy's verdicts: a score, or another harness's report."""

    @property
    def policy(self) -> str:
        """Name of the policy."""

    @property
    def instances(self) -> Mapping[str, str | list[str]]:
        """Maps an instance id to its status. With several runs, maps it to a list with one status per run."""


def compare(first: PolicyVerdicts, second: PolicyVerdicts) -> Comparison:
    """Returns the paired test and the interval of the difference between two score records.

    A pair is excluded (and counted as excluded) if one of its attempts was lost to infrastructure. With
    several runs, a pair is excluded if infrastructure lost all attempts of one side. If no pair is left,
    p_value, difference, interval and minimum_detectable_difference are null. Raises InputError with the ids
    that only one side has.
    """
    if any(isinstance(status, list) for each in (first, second) for status in each.instances.values()):
        return compare_runs(first, second)
    sides = [
        {name: status == "resolved" for name, status in each.instances.items()} for each in (first, second)
    ]
    pair(*sides)
    lost = {
        name for each in (first, second) for name, status in each.instances.items() if status in LOST_GRADES
    }
    side_verdicts = [{name: verdict for name, verdict in side.items() if name not in lost} for side in sides]
    names = {"from": first.policy, "to": second.policy}
    methods = {"test": "McNemar exact, two-sided", "interval": "Newcombe 1998 (paired), method 10"}
    settings = {"confidence": CONFIDENCE, "power": POWER, "methods": methods}
    if not side_verdicts[0]:
        return Comparison.of({**names, **NO_PAIRS, "excluded_infra_errors": len(lost), **settings})
    pairs = pair(*side_verdicts)
    fields = {
        **names,
        "p_value": mcnemar_exact(pairs.gained, pairs.lost),
        "difference": pairs.difference,
        "interval": list(paired_interval(pairs)),
        "discordant": {"gained": pairs.gained, "lost": pairs.lost},
        "both": pairs.both,
        "neither": pairs.neither,
        "pairs": pairs.total,
        "excluded_infra_errors": len(lost),
        "minimum_detectable_difference": detectable_difference(pairs),
        **settings,
    }
    return Comparison.of(fields)


def compare_runs(first: PolicyVerdicts, second: PolicyVerdicts) -> Comparison:
    """Like `compare`, for several runs of a policy.

    A task is compared by its share of resolved attempts. `gained` and `lost` count tasks whose share rises or
    falls. Tasks with equal shares count in `neither` if no attempt resolved them, and otherwise in `both`.
    """
    sides = [statuses_of(each) for each in (first, second)]
    pair(*(dict.fromkeys(side, True) for side in sides))
    counts = [{name: count_attempts(row, lost=False) for name, row in side.items()} for side in sides]
    names = sorted(name for name in counts[0] if counts[0][name][1] and counts[1][name][1])
    before, after = ([side[name] for name in names] for side in counts)
    common = {
        "from": first.policy,
        "to": second.policy,
        "runs": {"from": runs_of(sides[0]), "to": runs_of(sides[1])},
    }
    settings = {"confidence": CONFIDENCE, "power": POWER, "methods": RUN_METHODS}
    lost = len(counts[0]) - len(names)
    if not names:
        return Comparison.of({**common, **NO_PAIRS, "excluded_infra_errors": lost, **settings})
    moved = share_differences(before, after)
    fields = {
        **common,
        "p_value": sign_flip(moved),
        "difference": round_digits(sum(d / n - c / m for (c, m), (d, n) in zip(before, after)) / len(names)),
        "interval": list(difference_interval(before, after)),
        "discordant": {"gained": sum(each > 0 for each in moved), "lost": sum(each < 0 for each in moved)},
        "both": sum(not each and c > 0 for each, (c, _) in zip(moved, before)),
        "neither": sum(not each and c == 0 for each, (c, _) in zip(moved, before)),
        "pairs": len(names),
        "excluded_infra_errors": lost,
        "minimum_detectable_difference": found_difference(before, after),
        **settings,
    }
    return Comparison.of(fields)


def statuses_of(score: PolicyVerdicts) -> dict[str, list[str]]:
    """Maps an instance id to its verdicts in a score, one for each run."""
    return {name: row if isinstance(row, list) else [row] for name, row in score.instances.items()}


def runs_of(statuses: dict[str, list[str]]) -> int:
    """Returns the number of runs of a score."""
    return max(map(len, statuses.values()), default=1)


def all_pairs(policies: Sequence[PolicyVerdicts]) -> list[Comparison]:
    """Compares every two scores. Adds `p_adjusted`: Holm's correction for all pairs."""
    found = [compare(*two) for two in combinations(policies, 2)]
    adjusted = iter(holm([each.p_value for each in found if each.p_value is not None]))
    return [each | {"p_adjusted": None if each.p_value is None else next(adjusted)} for each in found]


def score_experiment(
    scores: Sequence[Score], comparison: tuple[str, str], benchmark: str = ""
) -> VerifiedScore:
    """Returns the verified score without its manifest, from score records of all policies and benchmarks.

    benchmark: the benchmark that comes first; by default that of the first score. Raises InputError if a
    policy has two scores on a benchmark, if scores of a benchmark have different task sets, or if a compared
    policy has no score.
    """
    by_benchmark: dict[str, dict[str, Score]] = {}
    for record in scores:
        policies = by_benchmark.setdefault(record.subset, {})
        if record.policy in policies:
            raise InputError(f"{record.policy} on {record.subset} is given twice", "scores")
        policies[record.policy] = record
    headline = benchmark or next(iter(by_benchmark), "")
    if headline not in by_benchmark:
        hint = nearest(headline, list(by_benchmark))
        raise InputError(f"no score on benchmark {headline!r}{hint}", "scores")
    order = [headline, *(name for name in by_benchmark if name != headline)]
    first, *others = [_side_by_side(by_benchmark[name], comparison) for name in order]
    return VerifiedScore.of({**first, "others": others})


def _side_by_side(policies: dict[str, Score], comparison: tuple[str, str]) -> Record:
    first = next(iter(policies.values()))
    for name, record in policies.items():
        if record.benchmark != first.benchmark:
            raise InputError(
                f"{name} was scored on {_name_of(record)}", f"benchmark {first.subset}", f"{_name_of(first)}"
            )
        if record.get("validation") != first.get("validation"):
            raise InputError(f"{name} was scored after another validation", f"benchmark {first.subset}")
    for name in comparison:
        if name not in policies:
            hint = nearest(name, list(policies))
            raise InputError(f"no score of policy {name!r}{hint}", f"benchmark {first.subset}")
    gate = {"validation": first.validation} if "validation" in first else {}
    return {
        "benchmark": first.benchmark,
        **gate,
        "policies": {
            name: {key: record[key] for key in POLICY_FIELDS if key in record}
            for name, record in policies.items()
        },
        "comparison": compare(*(policies[name] for name in comparison)),
        **({"pairwise": all_pairs(list(policies.values()))} if len(policies) > 2 else {}),
    }


def _name_of(record: Score) -> str:
    return f"{record.benchmark.size} tasks with hash {record.benchmark.hash[:12]}"


def load_score(path: Path) -> Score:
    """Reads a score record. Raises InputError if the file is not a score record."""
    return read_record(path, Score)
