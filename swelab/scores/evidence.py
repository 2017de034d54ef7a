"""What the report shows, read from the results of one experiment.

Trajectories and grades are streamed, shard by shard; only counts and the sampled trajectories stay
in memory, so that 50,000 instances need no more than 50 do.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from swelab.grading.report import validation
from swelab.records import InputError, Record, check, read_json, read_jsonl
from swelab.scores.layout import Layout
from swelab.scores.trajectories import PATCH_CHARACTERS, cut, sample, tokens, turns, view, visible, with_grade
from swelab.shards import attempt_name
from swelab.tasks.locks import read_kept, read_lock

DROPPED = 50
"""Tasks that validation left out that are named in the page, at most, of each kind in each subset."""
GROUPS = {"op": "Mutation operator", "repo": "Repository"}
"""Fields of a task that resolve rates are broken down by."""


@dataclass
class Run:
    """One policy on one subset; counts are of attempts, one a task and sample."""

    policy: str
    subset: str
    scored: bool
    report: Record
    turns: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    groups: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    shown: list[Record] = field(default_factory=list)
    samples: int = 1

    @property
    def total(self) -> int:
        return self.report["total_instances"]

    @property
    def resolved(self) -> int:
        return self.report["resolved_instances"]


@dataclass
class Evidence:
    """All that the report shows. `labels` maps a policy's name to what a reader sees.

    `gates` holds, by subset, {"figures": see `swelab.grading.report.validation`, "flaky": rows of the
    lock, "broken": rows}, rows bounded in number; a subset that was not validated is not there.
    """

    layout: Layout
    verified: Record
    labels: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    tasks: dict[str, dict[str, Record]] = field(default_factory=dict)
    gates: dict[str, Record] = field(default_factory=dict)
    losses: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    manifests: dict[Path, Record] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def experiment(self) -> Record:
        return self.layout.experiment

    def label(self, policy: str) -> str:
        return self.labels.get(policy, policy)

    def scored(self, subset: str) -> list[Run]:
        return [run for run in self.runs if run.subset == subset and run.scored]

    @property
    def expert_runs(self) -> list[Run]:
        return [run for run in self.runs if not run.scored]

    def manifest(self, path: Path) -> Record:
        """The stage's manifest at `path`, or {}."""
        return self.manifests.get(path, {})


def gather(layout: Layout, verified: Path, limit: int, seed: int) -> Evidence:
    """Reads everything about an experiment: at most `limit` trajectories of a run are kept whole.

    Raises InputError when scores, tasks, reports, rollouts or grades are missing or contradict one
    another. What a report can do without (locks, losses, lengths, manifests) is listed in `missing`.
    """
    record = read_json(verified)
    check(record, "verified_score", verified)
    evidence = Evidence(layout, record, policy_labels(layout))
    for subset in layout.subsets:
        lock = gather_gate(evidence, subset)
        rows = read_kept(layout.tasks(subset), lock)
        groups = {task["instance_id"]: groups_of(task) for task in rows}
        chosen = sample(groups, limit, seed)
        shown = read_kept(layout.tasks(subset), lock, chosen.__contains__)
        evidence.tasks[subset] = {task["instance_id"]: task_view(task) for task in shown}
        evidence.runs += [
            read_run(layout, policy, subset, scored, groups, chosen)
            for policy, mine, scored in layout.runs
            if mine == subset
        ]
    gather_training(evidence)
    return evidence


def gather_gate(evidence: Evidence, subset: str) -> Path | None:
    """The lock of a subset, None when there is none; its figures go into `gates`. Raises InputError."""
    file = evidence.layout.lock(subset)
    if not present(file, evidence):
        return None
    lock = read_lock(file)
    named = {part: lock.get(part, [])[:DROPPED] for part in ("flaky", "broken", "unjudged")}
    evidence.gates[subset] = {"figures": validation(lock), **named}
    return file


def policy_labels(layout: Layout) -> dict[str, str]:
    """What readers call each policy: a script is called a scripted policy, whatever its recipe is named."""
    names = dict.fromkeys(policy for policy, _, _ in layout.runs)
    scripted = [name for name in names if layout.recipe("policy", name).get("kind") == "scripted"]
    several = len(scripted) > 1
    return {name: f"scripted policy ({name})" if several else "scripted policy" for name in scripted}


def task_view(task: Record) -> Record:
    """What the viewer shows of a task beside its trajectories."""
    return {
        "op": visible(str(task.get("op", ""))),
        "repo": repo_name(task),
        "function": visible(str(task.get("function", ""))),
        "bug": cut(task["patch"], PATCH_CHARACTERS),
    }


def repo_name(task: Record) -> str:
    """A short name of the repository that a task is in."""
    return visible(str(task.get("repo_recipe") or task["repo"].rsplit("/", 1)[-1]))


def groups_of(task: Record) -> dict[str, str]:
    """The value of each of GROUPS; equal values are one object, for there are many tasks."""
    named = {"op": visible(str(task.get("op", ""))), "repo": repo_name(task)}
    return {name: sys.intern(value) for name, value in named.items()}


def read_run(
    layout: Layout, policy: str, subset: str, scored: bool, tasks: dict[str, dict[str, str]], chosen: set[str]
) -> Run:
    """Counts of one policy on one subset, and the chosen trajectories with their grades.

    tasks: the values of GROUPS by instance id.

    Raises InputError when the report, the rollouts and the grades do not speak of the same instances.
    """
    reports = []
    for path in layout.reports(policy, subset):
        reports.append(report := read_json(path))
        check(report, "report", path)
        strangers = sorted(set(report["instances"]) - set(tasks))
        if strangers:
            raise InputError(f"{len(strangers)} instances of no task, such as {strangers[0]}", path)
    run = Run(policy, subset, scored, counts_of(reports), samples=len(reports))
    for name in GROUPS:
        table = run.groups.setdefault(name, {})
        for key, verdict in (row for report in reports for row in report["instances"].items()):
            table.setdefault(tasks[key][name], Counter())[verdict["status"]] += 1
    read_attempts(run, layout, chosen)
    return run


def counts_of(reports: list[Record]) -> Record:
    """The report of one sample, or the counts of several together."""
    if len(reports) == 1:
        return reports[0]
    found: Record = {
        name: sum(report[name] for report in reports) for name in ("total_instances", "resolved_instances")
    }
    for name in ("statuses", "outcomes"):
        found[name] = dict(sum((Counter(report.get(name, {})) for report in reports), Counter[str]()))
    return found


def read_attempts(run: Run, layout: Layout, chosen: set[str]) -> None:
    """Turns and tokens of a run's trajectories, and those of the chosen instances with their grades.

    Raises InputError when one of these has no grade.
    """
    policy, subset = run.policy, run.subset
    kept: dict[str, Record] = {}
    for row in rows_of(layout.shards("rollouts", policy, subset)):
        run.turns[turns(row)] += 1
        if used := tokens(row):
            run.tokens[used] += 1
        if row["instance_id"] in chosen:
            kept[attempt_name(row)] = view(row)
    for grade in rows_of(layout.shards("grades", policy, subset)):
        if (name := attempt_name(grade)) in kept:
            run.shown.append(with_grade(kept.pop(name), grade))
    if kept:
        where = layout.reports(policy, subset)[0].parent
        raise InputError(f"{len(kept)} rollouts without a grade, such as {min(kept)}", where)
    run.shown.sort(key=lambda shown: (shown.get("task", shown["id"]), shown.get("sample", 0)))


def rows_of(shards: list[Path]) -> Iterator[Record]:
    """The rows of all shards, streamed."""
    for shard in shards:
        yield from read_jsonl(shard)


def gather_training(evidence: Evidence) -> None:
    """Losses, lengths and manifests, as far as they are there; what is not goes into `missing`."""
    layout = evidence.layout
    for title, file in layout.losses.items():
        if present(file, evidence):
            evidence.losses[title] = [(int(row["step"]), float(row["loss"])) for row in read_jsonl(file)]
    if present(layout.lengths, evidence):
        evidence.lengths = read_lengths(layout.lengths)
    for file in layout.manifests():
        if present(file, evidence):
            evidence.manifests[file] = read_json(file)


def present(file: Path, evidence: Evidence) -> bool:
    """Whether `file` is there; when not, it is listed among what is missing."""
    if not file.is_file():
        evidence.missing.append(file.as_posix())
    return file.is_file()


def read_lengths(path: Path) -> list[int]:
    """Tokens of the conversations that were kept, from a table with the columns tokens and fate.

    Raises InputError when a row has no number of tokens.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"))) for line in lines[1:] if line]
    try:
        return [int(row["tokens"]) for row in rows if row.get("fate", "kept") == "kept"]
    except (KeyError, ValueError):
        raise InputError("a row without a number of tokens", path, "a table with a column 'tokens'") from None


def drops(manifest: Record) -> dict[str, int]:
    """The reasons for which a stage dropped something, with counts; {} when its manifest names none."""
    found: dict[str, int] = {}
    for name in ("dropped", "drops"):
        told = manifest.get(name)
        if isinstance(told, dict):
            found |= {
                str(reason): count for reason, count in told.items() if isinstance(count, int) and count
            }
    return found
