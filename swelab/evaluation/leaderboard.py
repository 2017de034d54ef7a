"""Writes an evaluation as a submission folder for SWE-bench's leaderboard (repository SWE-bench/experiments).

The folder contains predictions, metadata.yaml, README.md with the checklist, `logs/<id>/`, `trajs/<id>.traj`
and results. It contains no hidden test and no path of this machine. Unknown fields are marked `TO BE FILLED
IN`.

A claim of the checklist that is not known to be true is left unticked, with the reason.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from swelab.agents.agent import step_limit_of
from swelab.configs.kinds.scaffold import Scaffold
from swelab.evaluation.attempt_folders import ROWS
from swelab.grading.run_cache import Archive
from swelab.grading.swesmith_reports import write_instance
from swelab.outcomes import LOST_GRADES, GradeEnd
from swelab.records import InputError, Record, read_json, read_jsonl, write_bytes, write_json, write_jsonl
from swelab.rollouts.predictions import read_predictions

SPLITS = {"lite": 300, "multilingual": 300, "verified": 500, "test": 2294}
"""Number of tasks in each split of the leaderboard that is graded from files (huggingface.co/SWE-bench)."""
INSTANCE = re.compile(r"[A-Za-z0-9_.+-]+__[A-Za-z0-9_.+-]+-[0-9]+")
"""Pattern of a SWE-bench id: <owner>__<repository>-<pull request number>."""
ONCE = "Is a pass@1 submission (does not attempt the same task instance more than once)"
TESTS = "Does not use SWE-bench test knowledge (`PASS_TO_PASS`, `FAIL_TO_PASS`)"
HINTS = "Does not use the `hints` field in SWE-bench"
WEB = (
    "Does not have web-browsing OR has taken steps to prevent lookup of SWE-bench solutions via web-browsing"
)


def check_ids(ids: Iterable[str]) -> None:
    """Raises InputError if an id does not have the form of a SWE-bench id."""
    if strangers := sorted(name for name in ids if not INSTANCE.fullmatch(name)):
        what = f"{len(strangers)} tasks are of no benchmark of the leaderboard, such as {strangers[0]}"
        raise InputError(what, expected="ids such as django__django-11099")


def missing_tasks(ids: Collection[str]) -> str:
    """Returns "" if the number of tasks is the size of a split. Otherwise returns a text with the sizes of
    all splits."""
    if len(ids) in SPLITS.values():
        return ""
    sizes = ", ".join(f"{name} {size}" for name, size in SPLITS.items())
    return f"{len(ids)} tasks are no whole split ({sizes}): the leaderboard counts the others as not resolved"


def steps(limit: int | None) -> str:
    """Describes a limit of model calls. 0 means no limit, and None means an unknown limit."""
    if limit is None:
        return "limit of steps not known"
    return f"at most {limit} steps" if limit else "no limit of steps"


def checklist(summary: Record, scaffold: Record) -> str:
    """Returns the leaderboard's checklist as Markdown. A box is ticked if the claim is known to be true.
    summary: contains statements_naming_tests, if known. scaffold: the recipe."""
    agent = scaffold.get("agent")
    reasons = {ONCE: "", TESTS: _test_knowledge(summary, scaffold), HINTS: "", WEB: ""}
    if not agent or agent == "swe-agent":
        reasons[WEB] = "not known: the sandboxes are not swelab's, which have no network"
    lines = (
        f"- [{' ' if why else 'x'}] {claim}{f' ({why})' if why else ''}" for claim, why in reasons.items()
    )
    return "\n".join(lines)


def _test_knowledge(summary: Record, scaffold: Record) -> str:
    """Returns why a submission cannot claim that it used no test knowledge. Returns "" if it can."""
    naming = summary.get("statements_naming_tests")
    if naming is None:
        return "not known: nobody counted the statements that name a test to repair"
    if naming:
        return f"no: {len(naming)} statements name a test to repair, such as that of {naming[0]}"
    if "eval" in scaffold.get("tools", ()):
        return "no: the agent's tool `eval` runs the files with the tests to repair"
    return ""


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
TO_FILL = "TO BE FILLED IN"
README = """# {name}

{resolved} of {total} resolved, {rate:.2%} (95 % interval {low:.1%} to {high:.1%}), one attempt at each task.

Report: {report}. People: {authors}.

| | |
|---|---|
| model | `{model}` |
| scaffold | `{scaffold}`, {steps} |
| tasks | {tasks} |
| lost to infrastructure, counted as not resolved | {errors} |

{checklist}
"""


def write_leaderboard(
    folder: Path, to: Path, name: str, details: Record, clean: Callable[[str], str] = str, max_lost: int = 0
) -> Path:
    """Writes the submission for the evaluation in `folder`. Returns its folder, `to`/<date>_<name>.

    details: site, report, authors, org, os_model, os_system, if known. clean: removes private parts from a
    text. max_lost: maximum number of attempts lost to infrastructure. Raises InputError if the evaluation is
    unfinished, has several attempts at each task, or lost more attempts. Raises InputError if a task is not
    in SWE-bench, or if `name` cannot be part of a folder name. Raises InputError if the submission's folder
    exists and is not empty.
    """
    summary = read_json(folder / "summary.json")
    if not isinstance(summary, dict) or not summary.get("complete"):
        raise InputError(
            "this evaluation is not finished", folder, "one in which every attempt has a verdict"
        )
    if summary["samples"] != 1:
        raise InputError(
            f"{summary['samples']} attempts at each task", folder, "one: the leaderboard wants pass@1"
        )
    if summary["errors"] > max_lost:
        raise InputError(
            f"{summary['errors']} of {summary['total']} attempts were lost to infrastructure",
            folder,
            f"at most {max_lost} (--max-lost): the command of the evaluation tries lost attempts again",
        )
    if not NAME.fullmatch(name):
        raise InputError(f"--name {name!r}", expected="letters, digits and . _ + -")
    out = to / f"{time.strftime('%Y%m%d', time.gmtime())}_{name}"
    if out.exists() and any(out.iterdir()):
        raise InputError("this folder exists already", out, "a new folder")
    rows = list(read_jsonl(folder / ROWS))
    check_ids(row["instance_id"] for row in rows)
    first = next((row["run_dir"] for row in rows if row["run_dir"]), "")
    used = read_json(folder / first / "meta.json") if first else {}
    used = {**used, "recipe": read_json(folder / "evaluation.json")["scaffold"]}
    write_submission(out, name, _submissions(folder, rows, clean), summary, used, details)
    return out


@dataclass(frozen=True)
class Submission:
    """An attempt in a submission.

    grade and trajectory are None if they are missing. log: output of the tests.
    """

    instance_id: str
    status: str
    patch: str | None
    grade: Record | None
    log: str
    trajectory: Record | None


def write_submission(
    out: Path, name: str, attempts: Iterable[Submission], summary: Record, used: Record, details: Record
) -> None:
    """Writes the folder of a submission.

    summary: model, data, resolved, total, resolve_rate, interval, errors, and statements_naming_tests if
    known. used: as `used_of` returns it. details: as for `write_leaderboard`.
    """
    rows, predictions = list[Record](), list[Record]()
    for each in attempts:
        resolved = each.status == GradeEnd.RESOLVED
        rows.append({"instance_id": each.instance_id, "status": each.status, "resolved": resolved})
        patch = {"model_name_or_path": name, "model_patch": each.patch or ""}
        predictions.append({"instance_id": each.instance_id, **patch})
        if each.grade and each.status not in LOST_GRADES:
            verdict = {"resolved": resolved, "patch_exists": bool(each.patch)}
            if each.grade.get("tests_status"):
                verdict["tests_status"] = each.grade["tests_status"]
            folder = out / "logs" / each.instance_id
            write_instance(folder, {each.instance_id: verdict}, each.patch, each.log)
        if each.trajectory:
            write_json(out / "trajs" / f"{each.instance_id}.traj", without_notes(each.trajectory))
    write_jsonl(out / "all_preds.jsonl", predictions)
    write_json(out / "results" / "results.json", results(rows))
    meta = metadata(name, str(summary["model"]), details)
    write_bytes(out / "metadata.yaml", yaml.safe_dump(meta, sort_keys=False).encode())
    names = [row["instance_id"] for row in rows]
    write_bytes(out / "README.md", readme(summary, used, name, details, names).encode())


def used_of(name: str, scaffold: Scaffold) -> Record:
    """Returns the argument `used` of `write_submission` for a scaffold. Raises InputError."""
    return {"scaffold": name, "step_limit": step_limit_of(scaffold), "recipe": scaffold.plain()}


def without_notes(trajectory: Record) -> Record:
    """Returns the trajectory without the notes of swelab's grader."""
    kept = ("instance_id", "messages", "trajectory_format")
    info = {name: trajectory["info"].get(name) for name in ("exit_status", "model_stats", "config")}
    return {name: trajectory[name] for name in kept} | {"info": info}


def _submissions(folder: Path, rows: Iterable[Record], clean: Callable[[str], str]) -> Iterator[Submission]:
    """Yields the attempts of an evaluation, in the order of `rows`."""
    archive = Archive(folder / "progress" / "runs")
    report = read_json(folder / "report.json")["instances"]
    predictions = {row.instance_id: row for row in read_predictions(folder / "preds.json")}
    kept_rows = (row.get("grade") for row in read_jsonl(folder / "progress/results.jsonl"))
    grades = {grade["instance_id"]: grade for grade in kept_rows if grade}
    for row in rows:
        name = row["instance_id"]
        grade = grades.get(name)
        kept = archive.look(grade["run"]) if grade and grade.get("run") else None
        trajectory = read_json(folder / row["run_dir"] / "traj.json") if row["run_dir"] else None
        told = [predictions[name].model_patch, kept.log if kept else "", trajectory]
        patch, log, trajectory = json.loads(clean(json.dumps(told, ensure_ascii=False)))
        yield Submission(name, report[name]["status"], patch, grade, log, trajectory)


def results(rows: Iterable[Record]) -> dict[str, list[str]]:
    """Lists the instances that were resolved, have an empty patch, or have no log."""
    instance_ids: dict[str, list[str]] = {"no_generation": [], "no_logs": [], "resolved": []}
    for row in rows:
        if row["status"] == GradeEnd.EMPTY_PATCH:
            instance_ids["no_generation"].append(row["instance_id"])
        elif row["status"] in LOST_GRADES:
            instance_ids["no_logs"].append(row["instance_id"])
        elif row["resolved"]:
            instance_ids["resolved"].append(row["instance_id"])
    return {name: sorted(ids) for name, ids in instance_ids.items()}


def metadata(name: str, model: str, details: Record) -> Record:
    """Returns the content of metadata.yaml. Fields without a value are marked `TO BE FILLED IN`."""
    info = {field: details.get(field) or TO_FILL for field in ("authors", "report", "site")}
    tags = {"checked": False, "model": [model], "org": details.get("org") or TO_FILL}
    tags |= {field: bool(details.get(field)) for field in ("os_model", "os_system")}
    return {"info": {"name": name, **info}, "tags": tags | {"system": {"attempts": "1"}}}


def readme(summary: Record, used: Record, name: str, details: Record, tasks: Collection[str]) -> str:
    """Returns the text of README.md with the results and the checklist. tasks: the instance ids."""
    data = Path(summary["data"])
    rows = f"{len(tasks)} of `{data.name if data.is_absolute() or data.exists() else data}`"
    low, high = summary["interval"]
    return README.format(
        name=name,
        model=summary["model"],
        resolved=summary["resolved"],
        total=summary["total"],
        rate=summary["resolve_rate"],
        low=low,
        high=high,
        errors=summary["errors"],
        scaffold=used.get("scaffold", ""),
        steps=steps(used.get("step_limit")),
        tasks="; ".join(filter(None, (rows, missing_tasks(tasks)))),
        checklist=checklist(summary, used.get("recipe", {})),
        report=details.get("report") or TO_FILL,
        authors=details.get("authors") or TO_FILL,
    )
