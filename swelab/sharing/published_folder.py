"""Writes everything that an experiment publishes into one folder: data set, model, leaderboard submissions,
archive."""

import json
import os
import shutil
import subprocess
import tarfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import yaml

from swelab.configs import kinds
from swelab.configs.kinds.model import Model
from swelab.configs.kinds.policy import weights_of
from swelab.evaluation.leaderboard import Submission, check_ids, used_of, write_submission
from swelab.grading.run_cache import Archive
from swelab.jobs.provenance import sha256_of
from swelab.lineage import KINDS, Wildcards, find, pattern, weights_paths
from swelab.outcomes import GradeEnd
from swelab.records import InputError, Record, atomic, read_records, write_bytes
from swelab.records.attempt_records import Grade, Trajectory
from swelab.scores.report.attempts import PACKED
from swelab.scores.report.html_page import render
from swelab.scores.report.report_data import gather
from swelab.scores.report.trajectories import text_of_line
from swelab.scores.verification import WITHHELD
from swelab.sharing.dataset_folder import write_dataset
from swelab.sharing.experiment_files import FinishedExperiment, read_finished
from swelab.sharing.privacy import Private
from swelab.tasks.hidden_tests import names_a_test
from swelab.tasks.task_rows import read_tasks

TEXT = (".json", ".jinja", ".txt", ".md")
README = """---
{front}---
# {policy}

Weights of the policy `{policy}` of the experiment `{experiment}`: a model that repairs software by shell
commands, with the prompts and limits of the scaffold `{scaffold}` (`configs/scaffolds/{scaffold}.yaml` in the
archive below). {commit}

The folder loads in transformers. To let the model act on tasks, in a clone of swelab:

    .venv/bin/python -m scripts.evaluate --model FOLDER --data TASKS --scaffold {scaffold} --output-dir OUT

## Score

A task is resolved if the tests that judge it pass.

| benchmark | resolved | rate | 95 % interval | lost to infrastructure, counted as not resolved |
|---|---|---|---|---|
{scores}
{comparison}
## Recipe

```yaml
{recipe}```

## Data

{data}

## Reproduce

With the archive `{archive}`, which holds the code and every file behind the score:

    tar xzf {archive} && cd {folder}
    make setup
    .venv/bin/snakemake results/verified_score.json --forceall --config experiment={experiment}

Instead of the third line, `.venv/bin/python -m scripts.verify results/verified_score.json` checks the files.
"""


def write_model(finished: FinishedExperiment, to: Path, private: Private) -> str:
    """Writes the weights and the model card into `to`. Returns "", or the reason why this is impossible."""
    policy = Wildcards({"policy": finished.shown}).recipe(kinds.POLICY)
    weights = next(iter(weights_of(policy)), "")
    folder = Path(weights_paths(weights)[0]) if weights else Path()
    if not weights or not folder.is_dir():
        return f"{finished.shown} has no weights here"
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        if path.name.startswith("."):
            continue
        out = to / path.relative_to(folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in TEXT:
            write_bytes(out, private.clean(path.read_text(encoding="utf-8")).encode())
        else:
            shutil.copyfile(path, out)
    write_bytes(to / "README.md", private.clean(card(finished, policy, weights)).encode())
    return ""


def card(finished: FinishedExperiment, policy: kinds.Policy, weights: str) -> str:
    """Returns the text of the model card, README.md."""
    record = finished.score
    both = [record, *record.get("others", [])]
    scores = [
        f"| {each['benchmark']['name']} | {its['resolved']} of {its['total']} | {its['resolve_rate']:.1%} "
        f"| {its['interval'][0]:.1%} to {its['interval'][1]:.1%} | {its['statuses'][GradeEnd.INFRA_ERROR]} |"
        for each in both
        if (its := each["policies"][finished.shown])
    ]
    compared = record["comparison"]
    comparison = ""
    if compared["p_value"] is not None:
        comparison = (
            f"\n`{finished.shown}` minus `{compared['from']}` on {record['benchmark']['name']}: "
            f"{compared['difference'] * 100:+.1f} points, "
            f"p = {compared['p_value']:.2g} ({compared['methods']['test']}).\n"
        )
    code = record["manifest"]["code"]
    changed = " with changes" if code["dirty"] else ""
    commit = f"Made by commit {code['commit']} of swelab{changed}." if code["commit"] else ""
    recipe = {
        key: each
        for key, each in record["manifest"]["recipes"].items()
        if key.startswith(("experiments/", "sft/", "rl/", "models/"))
    }
    return README.format(
        front=yaml.safe_dump(_front(weights), sort_keys=False),
        policy=finished.shown,
        experiment=finished.name,
        archive=finished.archive,
        scaffold=getattr(policy, "scaffold", ""),
        scores="\n".join(scores),
        comparison=comparison,
        recipe=yaml.safe_dump(recipe, sort_keys=True, allow_unicode=True),
        data=_data(finished),
        commit=commit,
        folder=finished.archive.partition(".")[0],
    )


def _front(weights: str) -> dict[str, object]:
    """Returns the metadata of the model card. The licence is `other` unless the weights start from a model
    that swelab made."""
    bases = _bases(weights)
    made_here = bool(bases) and bases[-1][1].source == "drill"
    front: dict[str, object] = {"license": "mit" if made_here else "other", "pipeline_tag": "text-generation"}
    published = [model.repository for _, model in bases if model.source == "hub"]
    return front | ({"base_model": published[0]} if published else {})


def _bases(weights: str) -> list[tuple[str, Model]]:
    """Returns [(name, recipe)] of the base model of the weights, or [] if the weights are a plain folder."""
    word, _, name = weights.partition(":")
    while word in ("sft", "rl"):
        start = (
            Wildcards({"sft": name}).recipe(kinds.SFT).base
            if word == "sft"
            else Wildcards({"rl": name}).recipe(kinds.RL).start
        )
        word, _, name = (start if ":" in start else f"model:{start}").partition(":")
    return [(name, Wildcards({"model": name}).recipe(kinds.MODEL))] if word == "model" and name else []


def _data(finished: FinishedExperiment) -> str:
    """Returns lines about the data on which the weights were trained."""
    lines = [f"- attempts of `{policy}` at `{subset}`" for policy, subset in finished.runs(False)]
    for stage in finished.trail.stages.values():
        if stage.rule.startswith("build_sft") and "kept" in stage:
            lines.append(
                f"- {stage['kept']:,} of {stage['trajectories']:,} trajectories became training rows"
            )
    return "\n".join(lines) or "- none behind this score"


CODE = tuple(
    """
benchmarks configs docs envs examples hosts profiles rules scripts slurm swe-pdb swe-rl swelab tests
CONTRIBUTING.md LICENSE Makefile README.md Snakefile pyproject.toml
""".split()
)
"""The files and folders of the code, for a clone without git."""
JOURNAL = "results/progress/rollout/{policy}/{subset}/{shard}.jsonl"
"""Path of the journal of a shard's rollouts. The journal has the same records as the shard's output."""
INCOMPLETE = ".snakemake/incomplete"
"""An empty folder of Snakemake. Without this folder, Snakemake assumes that its records are from an old
version."""
PAGES = ("page", "published_page")
"""Kinds of files that show patches and attempts of all scored sets."""
BINARY = (".safetensors", ".tar", ".zip", ".bin", ".pt")


def write_archive(finished: FinishedExperiment, to: Path, private: Private) -> None:
    """Writes a gzip-compressed tar to `to`. The tar contains one folder, the clone. Raises InputError with
    the files that contain a key, a path of this machine, or an answer of a hidden set."""
    withheld, top = finished.withheld(), to.name.partition(".")[0]
    hashes = {path: sha256_of(path) for path in sorted(withheld)}
    whole = {*code_files(Path()), *_results(finished)}
    records = {name for name in map(record_path, whole | withheld) if Path(name).is_file()}
    if records and Path(INCOMPLETE).is_dir():
        records.add(INCOMPLETE)
    names = sorted((whole - withheld) | records)
    answers, pages = _answers(finished), _pages(finished, names)
    if faults := [fault for name in names if (fault := _fault(name, private, answers, pages.get(name)))]:
        shown = "; ".join(faults[:3]) + (f" and {len(faults) - 3} more" if len(faults) > 3 else "")
        raise InputError(shown, "archive", "files that may be handed on")
    with (
        atomic(to) as stream,
        tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1, dereference=True) as tar,
    ):
        for name in names:
            tar.dereference = not _within(Path(name))
            if name in pages:
                entry = _nobody(tar.gettarinfo(name, f"{top}/{name}"))
                entry.size = len(pages[name])
                tar.addfile(entry, BytesIO(pages[name]))
                continue
            for place in (name, *_journal(name)):
                tar.add(name, f"{top}/{place}", recursive=False, filter=_nobody)
        data = (json.dumps(hashes, indent=2) + "\n").encode()
        entry = tarfile.TarInfo(f"{top}/{WITHHELD}")
        entry.size, entry.mode = len(data), 0o644
        tar.addfile(entry, BytesIO(data))


def record_path(output: str) -> str:
    """Returns the path of Snakemake's record of an output file. The path is the output's path in base64,
    split into parts that are short enough for file names."""
    most = os.pathconf(".", "PC_NAME_MAX") - 1
    name = urlsafe_b64encode(output.encode()).decode()
    parts = [name[start : start + most] for start in range(0, len(name), most)]
    return "/".join([".snakemake/metadata", *(f"@{part}" for part in parts[:-1]), parts[-1]])


def _journal(name: str) -> Iterator[str]:
    """Yields the journal path of a trajectories file. With the journal, adding a task to the shard costs only
    one more rollout."""
    kind, names = find(name) or ("", {})
    if kind == "trajectories" and name == pattern(kind).format_map(names):
        yield JOURNAL.format_map(names)


def _within(path: Path) -> bool:
    """Returns whether a path is a link to a file in the same folder. Such a link is valid in any clone."""
    return path.is_symlink() and "/" not in os.readlink(path) and path.is_file()


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes the owner from an archive entry, because the owner is a user of this machine."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def code_files(root: Path) -> Iterator[str]:
    """Yields the files that git tracks, and all recipes. Without git, yields all files in the folders of
    CODE."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    for start in ("configs",) if names else CODE:
        names += [
            path.as_posix()
            for path in ([root / start] if (root / start).is_file() else (root / start).rglob("*"))
            if "__pycache__" not in path.parts
        ]
    yield from (name for name in names if name and (root / name).is_file())


def _results(finished: FinishedExperiment) -> Iterator[str]:
    """Yields the files behind the score, further files of the same jobs, and the contents of their folders.

    Files that jobs only wait for are included, such as the result of the check before a training. Without
    this file, adding a task would start the training again.
    """
    experiment = {"experiment": finished.name}
    ends = ("verified_score", "page", "published", "published_page")
    also = [path.format_map(experiment) for kind in ends for path in KINDS[kind].files.values()]
    paths = dict.fromkeys([*finished.trail.files, *finished.trail.stages, *finished.waited_for, *also])
    for path in list(paths):
        kind, names = find(path) or ("", {})
        if kind:
            files = KINDS[kind].files.values()
            paths |= dict.fromkeys(each.format_map({"sample": "", **names}) for each in files)
    for there in filter(Path.exists, map(Path, paths)):
        yield there.as_posix()
        yield from (each.as_posix() for each in (there.rglob("*") if there.is_dir() else ()))


def _pages(finished: FinishedExperiment, names: Iterable[str]) -> dict[str, bytes]:
    """Returns the content of each page among `names` if a subset is hidden, without attempts and patches of
    hidden subsets. Returns {} if no subset is hidden."""
    files = {path.format(experiment=finished.name) for kind in PAGES for path in KINDS[kind].files.values()}
    hidden, pages = finished.hidden, sorted(files.intersection(names))
    if not hidden or not pages:
        return {}
    at = Wildcards({"experiment": finished.name})
    page = render(gather(at, Path(at.path("verified_score")), PACKED, 0, hidden)).encode()
    return dict.fromkeys(pages, page)


def _answers(finished: FinishedExperiment) -> list[str]:
    """Returns the gold patches, test patches, verifier scripts and solutions of hidden sets, escaped as in
    JSON."""
    files = [path for subset in finished.hidden for path in finished.paths("lock.kept", subset=subset)]
    answers = (
        text
        for path in files
        for task in read_tasks(path)
        for text in (task.patch, task.test_patch, task.verifier_tar, task.solution_tar)
    )
    return [json.dumps(text, ensure_ascii=False)[1:-1] for text in answers if text]


def _fault(name: str, private: Private, answers: list[str], content: bytes | None) -> str:
    """Returns the line of a file that must not be published, with the reason. Returns "" if the whole file
    may be published. content: what is published in place of the file."""
    if Path(name).is_dir() or name.endswith(BINARY):
        return ""
    is_result = name.startswith(("results/", ".snakemake/"))  # the code's tests contain fake keys
    raw = open(name, "rb") if content is None else BytesIO(content)
    with TextIOWrapper(raw, encoding="utf-8", errors="replace") as stream:
        lines = map(text_of_line, stream) if name.endswith(".html") else stream
        for number, text in enumerate(lines, 1):
            what = private.secret_in(text, shapes=is_result)
            if not what and is_result and any(answer in text for answer in answers):
                what = "an answer of a hidden set"
            if what:
                return f"{name}, line {number}, holds {what}"
    return ""


RUNS = Path("results/progress/runs")


def write_submissions(finished: FinishedExperiment, to: Path, private: Private) -> list[str]:
    """Writes `<subset>/<date>_<policy>` below `to`. Returns a reason for each subset that has no
    submission."""
    reasons: list[str] = []
    policy = finished.shown
    recipe = Wildcards({"policy": policy}).recipe(kinds.POLICY)
    for record in (finished.score, *finished.score.get("others", [])):
        subset, its = record["benchmark"]["name"], record["policies"][policy]
        tasks = [task for path in finished.paths("lock.kept", subset=subset) for task in read_tasks(path)]
        if reason := _refusal(finished, recipe, subset, (task.instance_id for task in tasks)):
            reasons.append(f"{subset}{reason}")
            continue
        out = to / subset / f"{time.strftime('%Y%m%d', time.gmtime())}_{policy}"
        summary = {"model": policy, "data": subset, "errors": its["statuses"][GradeEnd.INFRA_ERROR]}
        summary |= {name: its[name] for name in ("resolved", "total", "resolve_rate", "interval")}
        summary["statements_naming_tests"] = [task.instance_id for task in tasks if names_a_test(task)]
        attempts = _attempts(finished, policy, subset, private)
        write_submission(out, policy, attempts, summary, _scaffold_facts(recipe), {})
    return reasons


def _refusal(finished: FinishedExperiment, recipe: kinds.Policy, subset: str, ids: Iterable[str]) -> str:
    """Returns why a scored subset has no submission, or "" if it has one."""
    if finished.is_hidden(subset):
        return " is hidden"
    if (recipe.samples or 1) != 1:
        return f": {recipe.samples} attempts at each task; the rule is pass@1"
    try:
        check_ids(ids)
    except InputError as error:
        return f": {error}"
    return ""


def _scaffold_facts(recipe: kinds.Policy) -> Record:
    name = getattr(recipe, "scaffold", None)
    return used_of(name, Wildcards({"scaffold": name}).recipe(kinds.SCAFFOLD)) if name else {}


def _attempts(
    finished: FinishedExperiment, policy: str, subset: str, private: Private
) -> Iterator[Submission]:
    of, archive = {"policy": policy, "subset": subset}, Archive(RUNS)
    paths = map(Path, finished.paths("grades.grades", **of))
    grades = {grade.instance_id: grade for _, grade in read_records(paths, Grade)}
    rows = read_records(map(Path, finished.paths("trajectories.trajectories", **of)), Trajectory)
    for _, row in rows:
        grade = grades[row.instance_id]
        kept = archive.look(grade.run) if grade.run and RUNS.is_dir() else None
        plain = json.loads(private.clean(json.dumps(row)))
        log = private.clean(kept.log if kept else "")
        yield Submission(row.instance_id, grade.status, plain["model_patch"], grade, log, plain)


def write_published(score: Path, to: Path) -> list[str]:
    """Writes the folder `to` completely or not at all. Returns one line for each part that could not be made.

    Sets the working folder to the score's clone. Raises InputError if the score does not pass verification,
    the folder exists, or a file contains something that must not be published.
    """
    to = to.absolute()
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError("this folder exists already", to, "a new folder")
    finished = read_finished(score.absolute())
    if to.is_relative_to(Path("results").absolute()):
        raise InputError("lies in results/", to, "a folder elsewhere: what is in results/ is made by rules")
    private, part = Private.of(Path()), to.with_name(f".{to.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        write_archive(finished, part / finished.archive, private)
        write_dataset(finished, part / "dataset", private)
        reason = write_model(finished, part / "model", private)
        missing_parts = [f"model: {reason}"] if reason else []
        missing_parts += [
            f"leaderboard: {each}" for each in write_submissions(finished, part / "leaderboard", private)
        ]
        if to.exists():
            to.rmdir()
        part.replace(to)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return missing_parts
