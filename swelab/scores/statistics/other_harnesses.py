"""Reads verdicts from score files and other harnesses' reports, so that any two results can be compared."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swelab.outcomes import GradeEnd
from swelab.records import InputError, Record, as_record, read_json
from swelab.records.report_records import Report
from swelab.records.score_records import Score
from swelab.records.typed import TypedRecord, field

RESOLVED = ("resolved_ids", "ids_resolved", "resolved")
"""Keys of the list of resolved instances in files of SWE-bench, SWE-smith and the leaderboard."""
OTHERS = tuple(
    """
unresolved_ids ids_unresolved submitted_ids completed_ids incomplete_ids empty_patch_ids error_ids
infra_failure_ids ambiguous_failure_ids no_generation no_logs
""".split()
)
"""Keys of lists of instances that are in the benchmark and do not count as resolved."""


class Result(TypedRecord):
    """A policy's verdicts, as far as a file contains them."""

    policy: str = field("name of the policy")
    hash: str | None = field("hash of the benchmark, if the file has it")
    named: bool = field("whether the file names every instance of the benchmark")
    size: int | None = field("size of the benchmark, if known")
    instances: dict[str, str | list[str]] = field(
        "maps each instance id to a status, or to one status per run"
    )


def read_result(path: Path) -> Result:
    """Reads a policy's verdicts from a file or folder. Raises InputError.

    path: a score or report of ours; a report of SWE-bench's harness, sb-cli or SWE-smith; a folder with one
    of these files per run; or the folder of an evaluation.
    """
    if not path.is_dir():
        return _one(path)
    if (path / "score.json").is_file():
        return _one(path / "score.json")
    if (path / "evaluation.json").is_file():
        raise InputError("this evaluation is not over", path, "its command to have ended; it goes on")
    files = sorted(each for each in path.iterdir() if each.suffix == ".json")
    if not files:
        raise InputError("no *.json", path, "a report a run")
    runs = [_one(each) for each in files]
    if len({(run.hash, run.size) for run in runs}) > 1:
        raise InputError("its runs are of different benchmarks", path, "one benchmark")
    names = sorted(known_ids(runs))
    instances: Record = {name: [] for name in names}
    for file, run in zip(files, runs, strict=True):
        if any(isinstance(status, list) for status in run.instances.values()):
            raise InputError("a score of several runs", file, "one run a file")
        for name in names:
            instances[name].append(run.instances.get(name, GradeEnd.UNRESOLVED))
    policies = {run.policy for run in runs}
    fields = {
        "policy": policies.pop() if len(policies) == 1 else path.name,
        "hash": runs[0].hash,
        "named": all(run.named for run in runs),
        "size": runs[0].size,
        "instances": instances if len(runs) > 1 else {name: row[0] for name, row in instances.items()},
    }
    return Result.of(fields)


def known_ids(results: Iterable[Result]) -> set[str]:
    """Returns all instances that at least one of the results names."""
    return {name for result in results for name in result.instances}


def _one(path: Path) -> Result:
    content: Any = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"a {type(content).__name__}", path, "a score or a report")
    if "benchmark" in content and "instances" in content:
        score = as_record(content, Score, path)
        told = {"policy": score.policy, "instances": score.instances}
        size = len(score.instances)
        return Result.of({**told, "hash": score.benchmark.hash, "named": True, "size": size})
    if isinstance(content.get("instances"), dict):
        report = as_record(content, Report, path)
        statuses = {name: row.status for name, row in report.instances.items()}
        statuses |= dict.fromkeys(report.incomplete_ids, GradeEnd.UNRESOLVED)
        facts = {"policy": report.policy, "hash": report.get("tasks_digest"), "instances": statuses}
        return Result.of({**facts, "named": True, "size": len(statuses)})
    return _foreign(content, path)


def _foreign(content: Record, path: Path) -> Result:
    lists = {name: content[name] for name in (*RESOLVED, *OTHERS) if isinstance(content.get(name), list)}
    for name, ids in lists.items():
        if not all(isinstance(each, str) for each in ids):
            raise InputError(f"{name} is no list of instance ids", path)
    listed = next((name for name in RESOLVED if name in lists), None)
    if listed is None:
        raise InputError("no list of resolved instances", path, f"one of {', '.join(RESOLVED)}, or a score")
    statuses = {name: GradeEnd.UNRESOLVED for ids in lists.values() for name in ids}
    statuses |= dict.fromkeys(lists.get("infra_failure_ids", []), GradeEnd.INFRA_ERROR)
    statuses |= dict.fromkeys(lists[listed], GradeEnd.RESOLVED)
    size = content.get("total_instances", content.get("total"))
    if not isinstance(size, int) or isinstance(size, bool):
        size = None
    if size is not None and size < len(statuses):
        raise InputError(f"names {len(statuses)} instances of {size}", path)
    told = {"policy": path.stem, "hash": None, "instances": dict(sorted(statuses.items()))}
    return Result.of({**told, "named": size == len(statuses), "size": size})


def on_one_benchmark(results: Iterable[tuple[Path, Result]]) -> list[str]:
    """Adds instances to the results, so that all name the same instances.

    Returns the necessary assumptions as text.

    An instance that a report does not name counts as not resolved. Raises InputError if the results cannot be
    of the same benchmark, or if no result has the benchmark's size.
    """
    pairs = list(results)
    hashes = {result.hash for _, result in pairs if result.hash}
    if len(hashes) > 1:
        raise InputError("the results are of different task sets", pairs[-1][0], "one benchmark")
    names = known_ids(result for _, result in pairs)
    sizes = {result.size for _, result in pairs if result.size}
    if len(sizes) > 1:
        raise InputError(
            f"results on {' and '.join(map(str, sorted(sizes)))} tasks", pairs[-1][0], "the same tasks"
        )
    for path, result in pairs:
        strangers = sorted(names - set(result.instances)) if result.named else []
        if strangers:
            raise InputError(
                f"does not have {strangers[0]} and {len(strangers) - 1} more", path, "the same tasks"
            )
    if not sizes:
        raise InputError(
            "no result says how many tasks there are", pairs[0][0], "total_instances in one of them"
        )
    size = sizes.pop()
    notes = []
    names |= {f"unnamed task {number}" for number in range(size - len(names))}
    for path, result in pairs:
        runs = max((len(row) for row in result.instances.values() if isinstance(row, list)), default=0)
        missing = names - set(result.instances)
        filler: str | list[str] = [GradeEnd.UNRESOLVED] * runs if runs else GradeEnd.UNRESOLVED
        result.instances.update(dict.fromkeys(sorted(missing), filler))
        if missing:
            notes.append(f"{path}: {len(missing)} of {size} tasks are not named and count as not resolved")
    return notes
