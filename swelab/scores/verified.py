"""The verified score: benchmark scores side by side, their paired comparison, and what they rest on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from swelab.provenance import manifest
from swelab.recipes import nearest
from swelab.records import InputError, Record, check, read_json, sha256_file
from swelab.scores.layout import Layout
from swelab.scores.statistics import (
    CONFIDENCE,
    POWER,
    detectable_difference,
    mcnemar_exact,
    pair,
    paired_interval,
)

POLICY_FIELDS = (
    "resolve_rate",
    "interval",
    "resolved",
    "total",
    "infra_errors",
    "without_infra_errors",
    "statuses",
    "outcomes",
)


def compare(first: Record, second: Record) -> Record:
    """McNemar's exact test and the interval of the difference between two score records.

    Pairs of which either side was lost to infrastructure are left out and counted. With no pair
    left, p_value, difference, interval and minimum_detectable_difference are null.
    Raises InputError naming ids that only one of the two scores has.
    """
    sides = [
        {name: status == "resolved" for name, status in each["instances"].items()} for each in (first, second)
    ]
    pair(*sides)
    lost = {
        name
        for each in (first, second)
        for name, status in each["instances"].items()
        if status == "infra_error"
    }
    kept = [{name: verdict for name, verdict in side.items() if name not in lost} for side in sides]
    names = {"from": first["policy"], "to": second["policy"]}
    methods = {"test": "McNemar exact, two-sided", "interval": "Newcombe 1998 (paired), method 10"}
    settings = {"confidence": CONFIDENCE, "power": POWER, "methods": methods}
    if not kept[0]:
        empty = dict.fromkeys(("p_value", "difference", "interval", "minimum_detectable_difference"))
        return {**names, **empty, "discordant": {"gained": 0, "lost": 0}, "both": 0, "neither": 0, "pairs": 0,
                "excluded_infra_errors": len(lost), **settings}  # fmt: skip
    pairs = pair(*kept)
    return {
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


def verify(scores: Sequence[Record], comparison: tuple[str, str], benchmark: str = "") -> Record:
    """The verified score without its manifest, from score records of all policies and benchmarks.

    `benchmark` names the headline (default: the first score's); the others follow in order.
    Raises InputError: two scores of one policy on one benchmark, scores of one benchmark on
    different task sets, a compared policy without a score.
    """
    by_benchmark: dict[str, dict[str, Record]] = {}
    for record in scores:
        policies = by_benchmark.setdefault(record["subset"], {})
        if record["policy"] in policies:
            raise InputError(f"{record['policy']} on {record['subset']} is given twice", "scores")
        policies[record["policy"]] = record
    headline = benchmark or next(iter(by_benchmark), "")
    if headline not in by_benchmark:
        hint = nearest(headline, list(by_benchmark))
        raise InputError(f"no score on benchmark {headline!r}{hint}", "scores")
    order = [headline, *(name for name in by_benchmark if name != headline)]
    first, *others = [_side_by_side(by_benchmark[name], comparison) for name in order]
    return {**first, "others": others}


def _side_by_side(policies: dict[str, Record], comparison: tuple[str, str]) -> Record:
    first = next(iter(policies.values()))
    for name, record in policies.items():
        if record["benchmark"] != first["benchmark"]:
            raise InputError(
                f"{name} was scored on {_named(record)}", f"benchmark {first['subset']}", f"{_named(first)}"
            )
        if record.get("validation") != first.get("validation"):
            raise InputError(f"{name} was scored after another validation", f"benchmark {first['subset']}")
    for name in comparison:
        if name not in policies:
            hint = nearest(name, list(policies))
            raise InputError(f"no score of policy {name!r}{hint}", f"benchmark {first['subset']}")
    gate = {"validation": first["validation"]} if "validation" in first else {}
    return {
        "benchmark": first["benchmark"],
        **gate,
        "policies": {name: {key: record[key] for key in POLICY_FIELDS} for name, record in policies.items()},
        "comparison": compare(*(policies[name] for name in comparison)),
    }


def _named(record: Record) -> str:
    return f"{record['benchmark']['size']} tasks with hash {record['benchmark']['hash'][:12]}"


def trail(layout: Layout, scores: Iterable[Path], further: Iterable[Path] = ()) -> Record:
    """A verified score's manifest: code, packages, recipes, the stages' manifests, hashes of all data files.

    `further` are manifests (JSON) beside those of the layout. What the layout names but is not
    there is listed under `missing`. Raises InputError on a missing score and on a file outside the
    working folder, whose path would tell of the machine.
    """
    stages = [*layout.manifests(), *further]
    expected = {from_here(path): path for path in (*scores, *stages, *layout.data())}
    there = {name: path for name, path in sorted(expected.items()) if path.is_file()}
    for path in (*scores, *further):
        if not path.is_file():
            raise InputError("no such file", path)
    return {
        **manifest("verify_score", []),
        "experiment": layout.experiment["name"],
        "recipes": layout.recipes(),
        "files": [
            {"path": name, "sha256": sha256_file(path), "bytes": path.stat().st_size}
            for name, path in there.items()
        ],
        "missing": sorted(expected.keys() - there.keys()),
        "stages": {from_here(path): read_json(path) for path in stages if path.is_file()},
    }


def from_here(path: Path) -> str:
    """`path` from the working folder, with slashes. Raises InputError when it lies elsewhere."""
    here, absolute = Path.cwd(), path.absolute()
    if not absolute.is_relative_to(here):
        raise InputError("outside the working folder", path, f"a file under {here.name}/")
    return absolute.relative_to(here).as_posix()


def load_score(path: Path) -> Record:
    """A score record. Raises InputError when it is not one."""
    record = read_json(path)
    check(record, "score", path)
    return record
