"""Writes the data behind a score as a data set in Hugging Face layout: tasks, attempts, SFT rows, and a card.

Scored tasks are written without answers. Trajectories of a hidden set are excluded, because a patch may be
the answer.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from swelab.configs import kinds
from swelab.configs.experiment import parts_of
from swelab.lineage import Wildcards
from swelab.records import Record, atomic, read_json, read_jsonl, read_records, write_bytes
from swelab.records.attempt_records import Grade, Trajectory
from swelab.sharing.experiment_files import FinishedExperiment
from swelab.sharing.privacy import Private
from swelab.tasks.task_rows import read_tasks

Columns = Mapping[str, str]
"""Maps each column to its type: text, number, flag, texts or turns."""
AT_ONCE = 1000


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]], columns: Columns, private: Private) -> int:
    """Writes the given columns of rows. Private keys and paths are replaced. Returns the number of rows.
    Values in a text column that are not strings are written as JSON."""
    import pyarrow
    import pyarrow.parquet

    text = pyarrow.string()
    turn = pyarrow.struct([(name, text) for name in TURN])
    types = {
        "text": text,
        "number": pyarrow.int64(),
        "flag": pyarrow.bool_(),
        "texts": pyarrow.list_(text),
        "turns": pyarrow.list_(turn),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    count = 0
    with atomic(path) as stream, pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for some in _batches(rows):
            plain = [
                {name: _value(row.get(name), kind, private) for name, kind in columns.items()} for row in some
            ]
            writer.write_table(pyarrow.Table.from_pylist(plain, schema))
            count += len(plain)
    return count


TURN = ("role", "content", "tool_calls")
"""Fields of a message. Values that are not strings are written as JSON, and missing values as ""."""


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    some: list[Mapping[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _value(value: Any, kind: str, private: Private) -> Any:
    if kind == "turns":
        return [{name: _text(turn.get(name), private) for name in TURN} for turn in value or []]
    if kind == "texts":
        return [_text(each, private) for each in value or []]
    return _text(value, private) if kind == "text" else value


def _text(value: Any, private: Private) -> str:
    if value is None:
        return ""
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return private.clean(plain.encode("utf-8", "backslashreplace").decode())


TASK = {
    "instance_id": "text",
    "subset": "text",
    "repo": "text",
    "base_commit": "text",
    "image_name": "text",
    "problem_statement": "text",
    "test_cmd": "text",
}
ANSWER = {"patch": "text", "test_patch": "text", "FAIL_TO_PASS": "texts", "PASS_TO_PASS": "texts"}
"""Columns that only unscored tasks have."""
ATTEMPT = {
    "instance_id": "text",
    "policy": "text",
    "subset": "text",
    "sample": "number",
    "outcome": "text",
    "status": "text",
    "resolved": "flag",
    "model_patch": "text",
    "messages": "turns",
}
SFT_ROW = {
    "instance_id": "text",
    "policy": "text",
    "sample": "number",
    "messages": "turns",
    "tools": "text",
    "weights": "text",
}
ABOUT = (
    "Tasks for software-engineering agents, attempts at them with their verdicts, and the rows "
    "that a model was trained on."
)
NO_LICENCE = "as its publisher says"
MEANS = """
A **policy** is a model in a scaffold, or a script. Each attempt at a task begins in a fresh copy of the
task's repository, and is judged by the task's tests.

* **tasks**: a row is a task. `problem_statement` is what is asked, `test_cmd` runs its tests. In the
  split `train`, `FAIL_TO_PASS` and `PASS_TO_PASS` are the tests that judge, and `patch` is the repair;
  in tasks that swelab made (`image_name` begins with `swelab/`) `patch` is the bug, which the repair
  takes back.
* **trajectories**: a row is an attempt. `messages` are its turns, `outcome` says how it ended,
  `model_patch` what it changed; `status` and `resolved` are the verdict. The split `evaluation` has
  attempts at scored tasks.
* **sft**: a row is a training conversation, made from an attempt. Only turns of the assistant are
  learned, and of these not those whose weight in `weights` is 0.

The repositories are not here. Those of tasks that swelab made are in `{archive}`, in `results/repos`.
"""
REASONS = {
    "breaks_too_many": "the bug breaks more tests than the recipe allows",
    "broken": "the right repair is not judged as resolved, or no repair is",
    "empty_patch": "the attempt changed nothing",
    "flaky": "the right repair is not judged as resolved each time",
    "function_full": "the function has as many tasks as the recipe allows",
    "function_too_long": "the function has more lines than the recipe allows",
    "survived": "no test notices the bug",
    "too_long": "more tokens than the recipe allows",
    "unresolved": "the tests do not pass",
}
"""Maps a reason's short name to an explanation."""


def write_dataset(finished: FinishedExperiment, to: Path, private: Private) -> None:
    """Writes the data set into the folder `to`."""
    counts = Counter[tuple[str, str]]()
    scored = [each for each in finished.subsets if each in finished.recipe.benchmarks]
    taught = [each for each in finished.subsets if each not in scored]
    runs = {"train": list(finished.runs(False)), "evaluation": list(finished.runs(True))}
    tables = {
        ("tasks", "train"): (_tasks(finished, taught), TASK | ANSWER),
        ("tasks", "heldout"): (_tasks(finished, scored), TASK),
        ("trajectories", "train"): (_attempts(finished, runs["train"]), ATTEMPT),
        ("trajectories", "evaluation"): (_attempts(finished, runs["evaluation"]), ATTEMPT),
        ("sft", "train"): (_sft_rows(finished), SFT_ROW),
    }
    for (name, split), (rows, columns) in tables.items():
        path = to / name / f"{split}.parquet"
        if count := write_parquet(path, rows, columns, private):
            counts[name, split] = count
        else:
            path.unlink()
    write_bytes(to / "README.md", card(finished, counts, private).encode())


def _tasks(finished: FinishedExperiment, subsets: Iterable[str]) -> Iterator[Record]:
    for subset in subsets:
        for path in finished.paths("lock.kept", subset=subset):
            yield from ({**task, "subset": subset} for task in read_tasks(path))


def _attempts(finished: FinishedExperiment, runs: Iterable[tuple[str, str]]) -> Iterator[Record]:
    for policy, subset in runs:
        of = {"policy": policy, "subset": subset}
        graded = read_records(map(Path, finished.paths("grades.grades", **of)), Grade)
        grades = {(grade.instance_id, grade.sample): grade for _, grade in graded}
        paths = map(Path, finished.paths("trajectories.trajectories", **of))
        for _, row in read_records(paths, Trajectory):
            grade = grades.get((row.instance_id, row.sample))
            verdict = {"status": grade.status, "resolved": grade.resolved} if grade else {}
            yield {**row, "sample": row.sample, **verdict}


def _sft_rows(finished: FinishedExperiment) -> Iterator[Record]:
    for path in finished.paths("dataset.dataset"):
        for row in read_jsonl(path):
            if "messages" in row:  # a preference pair has no messages
                weights = [turn.get("weight", 1) for turn in row["messages"]]
                yield {**row, "sample": row.get("sample", 0), "tools": row.get("tools"), "weights": weights}


def card(finished: FinishedExperiment, counts: Counter[tuple[str, str]], private: Private) -> str:
    """Returns the text of README.md: the content of the data set, its sources, and how many items were
    dropped."""
    configs = [
        f"- config_name: {name}\n  data_files:\n"
        + "".join(
            f"  - split: {split}\n    path: {name}/{split}.parquet\n"
            for each, split in counts
            if each == name
        )
        for name in dict.fromkeys(name for name, _ in counts)
    ]
    lines = ["---", "license: other", "configs:", *map(str.rstrip, configs), "---", ""]
    lines += [f"# Data of the experiment {finished.name}", "", ABOUT, ""]
    lines += ["| table | split | rows |", "|---|---|---|"]
    lines += [f"| {name} | {split} | {count:,} |" for (name, split), count in counts.items()]
    lines += MEANS.format(archive=finished.archive).splitlines()
    lines += ["", "Tasks of the split `heldout` are scored: they have no patch and no tests here.", ""]
    if finished.hidden:
        lines += [f"Hidden, so without trajectories: {', '.join(finished.hidden)}.", ""]
    lines += ["## Sources", "", "| subset | made from | licence |", "|---|---|---|"]
    lines += [
        f"| {subset} | {made} | {licence} |"
        for subset in finished.subsets
        for made, licence in sources(subset)
    ]
    lines += ["", "## Dropped", "", "What the recipes left out on the way, by the step that did."]
    lines += ["", "| set, step | why | how many |", "|---|---|---|", *_drop_rows(finished), ""]
    met = [f"{count:,} times `{what}`" for what, count in sorted(private.met.items())]
    if met:
        lines += [
            f"In place of what names a machine or is secret stands, in all tables, {', '.join(met)}.",
            "",
        ]
    return "\n".join(lines)


def sources(subset: str) -> list[tuple[str, str]]:
    """Returns (source, licence) of each repository or data set from which a subset's tasks are made."""
    recipe = Wildcards({"subset": parts_of(subset)[-1]}).recipe(kinds.SUBSET)
    if recipe.source == "kodcode":
        return [("rows of KodCode", NO_LICENCE)]
    if recipe.source == "harbor":
        return [("task folders of Harbor", NO_LICENCE)]
    if recipe.source == "dataset":
        place = f"{recipe.dataset}@{recipe.revision}" if recipe.dataset else "rows of its maker"
        return [(place, NO_LICENCE)]
    licences = list[tuple[str, str]]()
    for name in getattr(recipe, "repos", None) or []:
        repo = Wildcards({"repo": name}).recipe(kinds.REPO)
        if repo.source == "pypi":
            licences.append((f"{repo.package} {repo.version}", repo.licence))
        elif repo.source == "git":
            licences.append((f"{name} at commit {repo.commit}", NO_LICENCE))
        else:
            licences.append((f"{name}, generated by swelab", "MIT"))
    return licences


def _drop_rows(finished: FinishedExperiment) -> Iterator[str]:
    """Yields table rows that say how many items each step dropped, and why."""
    for path, role, names in finished.kinds:
        if role == "lock.lock":
            lock = read_json(path)
            for part in ("flaky", "broken"):
                if lock[part]:
                    yield f"| {names['subset']}, validation | {_why(part)} | {len(lock[part]):,} |"
    for manifest, stage in finished.trail.stages.items():
        drops = stage.get("drops") if stage.rule.endswith("_tasks") else None
        if stage.rule.startswith("build_sft"):
            drops = stage.get("dropped")
        for reason, count in (drops or {}).items():
            number = count if isinstance(count, int) else len(count)
            yield f"| {Path(manifest).name.partition('.')[0]}, {stage.rule} | {_why(reason)} | {number:,} |"


def _why(reason: str) -> str:
    """Returns a reason, with its explanation if there is one."""
    return f"{reason}: {REASONS[reason]}" if reason in REASONS else reason
