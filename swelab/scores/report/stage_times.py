"""Collects start, machine, duration and cost of each stage of an experiment, from its job records."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from swelab.console.job_runs import JobRun, read_runs
from swelab.jobs.shards import parse_shard
from swelab.lineage import Wildcards, behind, find
from swelab.records import InputError, Record, read_json

_SAMPLE = re.compile(r"\.s\d+$")
NOT_STAGES = ("report",)
"""Rules that do not contribute to the score."""


@dataclass
class StageRuns:
    """The recorded runs of one rule for one item (a subset, a policy on a subset, a model).

    seconds and cpu_seconds are sums over `runs`. began and ended are in UTC. cost is in dollars. cost and
    tokens are None if a call did not record them.
    """

    rule: str
    names: tuple[str, ...]
    began: datetime
    ended: datetime
    jobs: set[str] = field(default_factory=set)
    runs: int = 0
    failed: int = 0
    seconds: float = 0
    cpu_seconds: float = 0
    machines: list[str] = field(default_factory=list)
    usage: Record = field(default_factory=dict)

    def add(self, job: str, run: JobRun) -> None:
        """Adds one run of a job."""
        began = datetime.fromisoformat(run.started)
        self.began = min(self.began, began)
        self.ended = max(self.ended, began + timedelta(seconds=run.seconds))
        self.jobs.add(job)
        self.runs += 1
        self.failed += run.code != 0
        self.seconds += run.seconds
        self.cpu_seconds += run.cpu_seconds
        if (name := machine_name(run.machine)) not in self.machines:
            self.machines.append(name)


def jobs_of(at: Wildcards) -> list[StageRuns]:
    """Returns an experiment's stages with recorded runs, in the order in which they began."""
    stages = dict[tuple[str, ...], StageRuns]()
    known = {"all", "sandbox"}.union(*names_behind(at).values())
    for rule, names, run in read_runs(at.results / "logs"):
        job = "/".join(names)
        parts = tuple(_SAMPLE.sub("", name) for name in names if not is_shard(name))
        if rule in NOT_STAGES or not known.issuperset(parts):
            continue
        began = datetime.fromisoformat(run.started)
        stages.setdefault((rule, *parts), StageRuns(rule, parts, began, began)).add(job, run)
    for stage in stages.values():
        if stage.rule == "rollout" and len(stage.names) == 2:
            policy, subset = stage.names
            paths = at.samples("predictions.usage", policy=policy, subset=subset)
            stage.usage = total_usage(map(Path, paths))
    return sorted(stages.values(), key=lambda stage: (stage.began, stage.rule, stage.names))


def names_behind(at: Wildcards) -> dict[str, list[str]]:
    """Returns the wildcard values in the paths behind an experiment's score, keyed by wildcard."""
    found: dict[str, dict[str, None]] = {}
    for path in behind(Wildcards(at.names).path("verified_score"), at.configs):
        for wildcard, name in (find(path) or ("", {}))[1].items():
            found.setdefault(wildcard, {})[name] = None
    return {wildcard: list(names) for wildcard, names in found.items()}


def is_shard(name: str) -> bool:
    """Returns whether `name` is the name of a shard, such as 000of002."""
    try:
        return bool(parse_shard(name))
    except InputError:
        return False


def machine_name(machine: Record) -> str:
    """Describes a machine in a few words: processor or GPUs, cores, memory."""
    gpus = machine.get("gpus") or []
    parts = [f"{len(gpus)} \u00d7 {gpus[0]}"] if gpus else []
    parts += [str(machine.get("processor") or machine.get("system", ""))]
    parts += [f"{machine.get('cpus', '?')} cores", f"{machine.get('memory_gib', '?')} GiB"]
    return ", ".join(filter(None, parts))


def total_usage(paths: Iterable[Path]) -> Record:
    """Sums the calls, tokens and dollars of all trajectories. A sum is None if a part is unknown."""
    rows = [row for path in paths if path.is_file() for row in read_json(path).values()]
    if not rows:
        return {}
    found: Record = {}
    for name in ("calls", "prompt_tokens", "completion_tokens", "cost"):
        values = [row.get(name) for row in rows]
        found[name] = None if None in values else sum(values)
    return found
