"""Reads the data of the report from the results of one experiment.

Trajectories and grades are streamed, shard by shard (`attempts`). Only counts and a limited number of
attempts stay in memory.
"""

import csv
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swelab.configs import kinds
from swelab.configs.kinds.experiment import Experiment
from swelab.grading.swebench_report import validation
from swelab.lineage import Wildcards
from swelab.records import InputError, Record, read_json, read_jsonl, read_record
from swelab.records.report_records import Report, ReportValidation
from swelab.records.score_records import VerifiedScore
from swelab.records.task_records import DroppedTask, Task
from swelab.scores.report.attempts import (
    LISTED,
    PACKED,
    PACKED_BYTES,
    ListedAttempts,
    Selection,
    names_of,
    read_attempts,
)
from swelab.scores.report.rl_training import RlTraining, read_rl_training
from swelab.scores.report.stage_times import StageRuns, jobs_of, names_behind
from swelab.scores.report.trajectories import PATCH_CHARACTERS, in_order, truncate, visible
from swelab.tasks.validation_lock import read_kept, read_lock

STEP_COLUMNS = ("step", "loss", "lr", "grad_norm", "tokens_per_second")
"""Figures of a training step that the page draws."""


def read_steps(losses: Path) -> list[Record]:
    """Reads the figures of each training step.

    The source is `metrics.tsv` next to the losses if that file exists, otherwise the losses. Values are
    numbers, or absent. Raises InputError if a row has no step or no loss.
    """
    metrics = losses.with_name("metrics.tsv")
    if losses.name == "loss.jsonl" and metrics.is_file():
        rows: Iterable[Record] = read_table(metrics)
    else:
        rows, metrics = read_jsonl(losses), losses
    known = ({name: as_number(row.get(name)) for name in STEP_COLUMNS} for row in rows)
    found = [{name: value for name, value in row.items() if value is not None} for row in known]
    if any("step" not in row or "loss" not in row for row in found):
        raise InputError("a row without a step or a loss", metrics, "numbers")
    return found


def read_lengths(path: Path) -> list[int]:
    """Reads token counts of the kept conversations from a table with the columns tokens and fate.
    Raises InputError if a row has no number of tokens."""
    try:
        return [int(row["tokens"]) for row in read_table(path) if row.get("fate", "kept") == "kept"]
    except (KeyError, TypeError, ValueError):
        raise InputError("a row without a number of tokens", path, "a table with a column 'tokens'") from None


def read_table(path: Path) -> list[dict[str, str]]:
    """Yields the rows of a tab-separated file."""
    with open(path, encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def as_number(value: Any) -> float | None:
    """Returns `value` as a number if it is a number or a number's text, otherwise None."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


DROPPED = 50
"""Maximum number of tasks excluded by validation that the page names, for each kind and subset."""
GROUPS = {"op": "Mutation operator", "repo": "Repository"}
"""Fields of a task by which resolve rates are grouped."""


@dataclass
class Run:
    """One policy on one subset. Counts are of attempts: one for each task and sample."""

    policy: str
    subset: str
    scored: bool
    report: Report
    groups: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    attempts: ListedAttempts = field(default_factory=ListedAttempts)
    samples: int = 1

    @property
    def total(self) -> int:
        """Number of attempts, including lost attempts."""
        return self.report.total_instances

    @property
    def resolved(self) -> int:
        """Number of resolved attempts."""
        return self.report.resolved_instances


@dataclass
class Gate:
    """The validation of a subset: its figures, and some of the excluded tasks by kind."""

    figures: ReportValidation
    dropped: dict[str, list[DroppedTask]]


@dataclass
class ReportData:
    """All data of the report.

    models: the models from which the experiment starts. labels: maps a policy to its name for readers. gates:
    maps a subset to its validation. Subsets without a validation are absent.
    """

    at: Wildcards
    experiment: Experiment
    verified: VerifiedScore
    models: list[str]
    labels: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    gates: dict[str, Gate] = field(default_factory=dict)
    training: dict[str, list[Record]] = field(default_factory=dict)
    rewarded: dict[str, RlTraining] = field(default_factory=dict)
    jobs: list[StageRuns] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    manifests: dict[str, Record] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def expert(self) -> str:
        """The policy whose trajectories are training data."""
        return self.experiment.expert.policy

    @property
    def compared_weights(self) -> list[str]:
        """The key `weights` in the recipes of the two compared policies, or '' for a recipe without it."""
        test = self.verified.comparison
        compared = (self.at.recipe(kinds.POLICY, policy) for policy in (test.from_policy, test.to_policy))
        return [getattr(recipe, "weights", "") for recipe in compared]

    @property
    def planned(self) -> list[tuple[str, str, bool]]:
        """(policy, subset, scored) of every run: first the runs on benchmarks, then the expert's runs."""
        plan = self.experiment
        scored = [(policy, subset, True) for subset in plan.benchmarks for policy in plan.policies]
        return scored + [(self.expert, subset, False) for subset in plan.expert.subsets]

    @property
    def subsets(self) -> list[str]:
        """Every subset that has a run, once each: first the benchmarks, then the expert's subsets."""
        return list(dict.fromkeys(subset for _, subset, _ in self.planned))

    def file(self, file: str, **names: str) -> Path:
        """Returns the path of a file of the graph, such as "tasks" or "tasks.manifest"."""
        return Path(self.at.path(file, **names))

    def label(self, policy: str) -> str:
        """Returns a policy's name for readers, or its recipe's name if it has no label."""
        return self.labels.get(policy, policy)

    def scored_runs(self, subset: str) -> list[Run]:
        """Returns the scored runs on one benchmark, in the order of the experiment's policies."""
        return [run for run in self.runs if run.subset == subset and run.scored]

    @property
    def expert_runs(self) -> list[Run]:
        """The runs that make training data. They are not scored."""
        return [run for run in self.runs if not run.scored]

    def manifest(self, file: str, **names: str) -> Record:
        """Returns the manifest of the stage that wrote a file of the graph, or {}."""
        return self.manifests.get(self.at.path(file, **names), {})


def gather(at: Wildcards, verified: Path, limit: int, seed: int, hidden: Collection[str] = ()) -> ReportData:
    """Reads all data of an experiment. At most `limit` trajectories of each run are kept in full.

    hidden: subsets of which no trajectory and no patch may be shown. Raises InputError if scores, tasks,
    reports, rollouts or grades are missing or contradict each other. Locks, losses, lengths and manifests are
    optional; `missing` lists the absent ones.
    """
    record = read_record(verified, VerifiedScore)
    evidence = ReportData(at, at.recipe(kinds.EXPERIMENT), record, names_behind(at).get("model", []))
    evidence.labels = policy_labels(evidence)
    for subset in evidence.subsets:
        gather_runs(evidence, subset, 0 if subset in hidden else limit, seed)
    gather_training(evidence)
    evidence.jobs = jobs_of(at)
    return evidence


def gather_runs(evidence: ReportData, subset: str, limit: int, seed: int) -> None:
    """Adds every run on a subset. Raises InputError as `gather` does."""
    share = max(1, len(evidence.planned))
    lock = gather_gate(evidence, subset)
    file = evidence.file("tasks", subset=subset)
    tasks = {task.instance_id: groups_of(task) for task in read_kept(file, lock)}
    runs, orders = [], []
    for policy, mine, scored in evidence.planned:
        if mine == subset:
            reports = read_reports(evidence.at.samples("report", policy=policy, subset=subset), tasks)
            runs.append(run_of(policy, subset, scored, reports, tasks))
            statuses = ({name: row.status for name, row in each.instances.items()} for each in reports)
            orders.append(in_order(statuses, seed)[: LISTED // share])
    packs = min(limit, PACKED // share)
    chosen = {name for order in orders for name, _ in order[:packs]}
    shown = {task.instance_id: task_view(task) for task in read_kept(file, lock, chosen.__contains__)}
    for run, order in zip(runs, orders, strict=True):
        places = {name: place for place, name in enumerate(names_of(order))}
        wanted = Selection(places, packs, PACKED_BYTES // share)
        names = {**evidence.at.names, "policy": run.policy, "subset": subset}
        run.attempts = read_attempts(replace(evidence.at, names=names), wanted, tasks, shown)
    evidence.runs += runs


def gather_gate(evidence: ReportData, subset: str) -> Path | None:
    """Returns the lock file of a subset, or None. Stores the lock's figures in `gates`. Raises InputError."""
    file = evidence.file("lock", subset=subset)
    if not present(file, evidence):
        return None
    lock = read_lock(file)
    left_out = {part: lock.get(part, [])[:DROPPED] for part in ("flaky", "broken", "unjudged")}
    evidence.gates[subset] = Gate(validation(lock), left_out)
    return file


def policy_labels(evidence: ReportData) -> dict[str, str]:
    """Maps each scripted policy to its name for readers, "scripted policy".
    If there are several scripted policies, the recipe's name follows in brackets."""
    names = dict.fromkeys(policy for policy, _, _ in evidence.planned)
    scripted = [name for name in names if evidence.at.recipe(kinds.POLICY, name).kind == "scripted"]
    several = len(scripted) > 1
    return {name: f"scripted policy ({name})" if several else "scripted policy" for name in scripted}


def task_view(task: Task) -> Record:
    """Returns facts about a task for the viewer: its function and the change that broke it."""
    return {"function": visible(task.function), "bug": truncate(task.patch, PATCH_CHARACTERS)}


def repo_name(task: Task) -> str:
    """Returns a short name of the task's repository."""
    return visible(str(task.repo_recipe or task.repo.rsplit("/", 1)[-1]))


def groups_of(task: Task) -> dict[str, str]:
    """Returns the values of GROUPS for a task.
    Equal values share one object, because there are many tasks."""
    named = {"op": visible(task.op), "repo": repo_name(task)}
    return {name: sys.intern(value) for name, value in named.items()}


def read_reports(paths: Iterable[str], tasks: Mapping[str, Mapping[str, str]]) -> list[Report]:
    """Reads the grading reports of a policy on a subset, one for each sample. Raises InputError if a report
    is missing, or has instances that are not tasks."""
    reports = []
    for path in paths:
        reports.append(report := read_record(path, Report))
        if strangers := sorted(name for name in report.instances if name not in tasks):
            raise InputError(f"{len(strangers)} instances match no task, such as {strangers[0]}", path)
    return reports


def run_of(
    policy: str, subset: str, scored: bool, reports: list[Report], tasks: Mapping[str, Mapping[str, str]]
) -> Run:
    """Counts the results of one policy on one subset, but does not read the attempts. tasks: maps an instance
    id to the values of GROUPS."""
    run = Run(policy, subset, scored, counts_of(reports), samples=len(reports))
    for name in GROUPS:
        table = run.groups.setdefault(name, {})
        for key, verdict in (row for report in reports for row in report.instances.items()):
            table.setdefault(tasks[key][name], Counter())[verdict.status] += 1
    return run


def counts_of(reports: list[Report]) -> Report:
    """Returns the report of one sample, or the sums of several reports."""
    if len(reports) == 1:
        return reports[0]
    totals = ("total_instances", "resolved_instances")
    found: Record = {name: sum(each[name] for each in reports) for name in totals}
    counts = {name: [Counter(each.get(name, {})) for each in reports] for name in ("statuses", "outcomes")}
    return Report.of(found | {name: dict(sum(rows, Counter[str]())) for name, rows in counts.items()})


def gather_training(evidence: ReportData) -> None:
    """Reads losses, lengths and manifests, if they exist. Adds absent files to `missing`."""
    sft, models = evidence.experiment.sft, evidence.models
    made = [model for model in models if evidence.at.recipe(kinds.MODEL, model).source == "drill"]
    losses = {f"Pretraining of {model}": evidence.file("model.loss", model=model) for model in made}
    losses[f"Fine-tuning, {sft}"] = evidence.file("checkpoint.loss", sft=sft)
    for title, file in losses.items():
        if present(file, evidence):
            evidence.training[title] = read_steps(file)
    for name in names_behind(evidence.at).get("rl", []):
        if present(file := evidence.file("rewarded.metrics", rl=name), evidence):
            validation = evidence.file("rewarded.validation", rl=name)
            evidence.rewarded[name] = read_rl_training(file, validation)
    if present(lengths := evidence.file("dataset.lengths", sft=sft), evidence):
        evidence.lengths = read_lengths(lengths)
    files = [evidence.file("tasks.manifest", subset=subset) for subset in evidence.subsets]
    files += [evidence.file("disjoint"), evidence.file("dataset.manifest", sft=sft)]
    files += [evidence.file("model.manifest", model=model) for model in models]
    for file in files:
        if present(file, evidence):
            evidence.manifests[file.as_posix()] = read_json(file)


def present(file: Path, evidence: ReportData) -> bool:
    """Returns whether `file` exists. Otherwise adds it to the missing files."""
    if not file.is_file():
        evidence.missing.append(file.as_posix())
    return file.is_file()
