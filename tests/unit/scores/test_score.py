"""Scores and the verified score: counts, refusals, determinism, and the scripts that write them."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from swelab.grading.swebench_report import build_report, validation
from swelab.records import InputError, check, digest, read_json, write_json
from swelab.records.attempt_records import Grade
from swelab.records.report_records import Report
from swelab.records.score_records import VerifiedScore
from swelab.records.task_records import Task
from swelab.scores.report.report_data import Gate
from swelab.scores.report.text_summary import trust
from swelab.scores.report.validation import sentence
from swelab.scores.score import score
from swelab.scores.verified_score import compare, load_score, score_experiment
from tests.conftest import run_program
from tests.unit.finished_experiment import make_lock

ROOT = Path(__file__).resolve().parents[3]


def make_tasks(number: int) -> list[dict]:
    return [
        Task.of(
            {
                "instance_id": f"o__r.00000000.func_pm_op__{k:08d}",
                "repo": "swelab/o__r.00000000",
                "patch": "diff",
                "problem_statement": "text",
                "FAIL_TO_PASS": ["t"],
                "PASS_TO_PASS": [],
                "image_name": "swelab/r",
            }
        )
        for k in range(number)
    ]


def make_report(tasks: list[dict], statuses: list[str], policy: str = "base", subset: str = "mini") -> dict:
    grades = [
        Grade.of(
            {
                "instance_id": task["instance_id"],
                "status": status,
                "resolved": status == "resolved",
                "outcome": "submitted",
            }
        )
        for task, status in zip(tasks, statuses, strict=True)
    ]
    return build_report(tasks, grades, policy, subset)


def make_score(statuses: list[str], policy: str = "base", subset: str = "mini") -> dict:
    tasks = make_tasks(len(statuses))
    return score(tasks, make_report(tasks, statuses, policy, subset), policy, subset)


R, U, E, LOST = "resolved", "unresolved", "empty_patch", "infra_error"


def test_score_states_the_rate_with_and_without_lost_tasks():
    record = make_score([R, R, U, E, LOST])
    assert (record["resolved"], record["total"], record["resolve_rate"]) == (2, 5, 0.4)
    assert record["infra_errors"] == 1
    assert record["without_infra_errors"]["resolve_rate"] == 0.5
    assert record["without_infra_errors"]["total"] == 4
    assert record["statuses"][E] == 1 and sum(record["statuses"].values()) == 5
    assert record["interval"][0] < 0.4 < record["interval"][1]
    assert record["benchmark"] == {"name": "mini", "hash": digest(make_tasks(5)), "size": 5}


def test_what_the_resolved_rest_on_is_counted():
    tasks = make_tasks(5)
    rows = [Grade(instance_id=task["instance_id"], status=R, resolved=True) for task in tasks]
    told = {"standing": "weakly_witnessed", "reason": "3 bits", "bits": 3.0}
    why = "the patch's code reaches for the test run: a.py:1: imports gc"
    suspect = {"status": "suspect", "resolved": False, "reason": why, "witness": told}
    strong = {"witness": {"standing": "witnessed", "bits": 12.0}}
    changes: list[dict] = [strong, {"witness": told}, {"witness": told}, {}, suspect]
    rows = [row | change for row, change in zip(rows, changes, strict=True)]
    report = build_report(tasks, rows, "base", "mini")
    counts = {"witnessed": 1, "weakly_witnessed": 2, "not_witnessed": 1}
    assert report.witness == counts == score(tasks, report, "base", "mini").witness
    name = tasks[4]["instance_id"]
    assert report.suspect_ids == [name] and name in report.unresolved_ids
    assert report.instances[name] == {"status": "suspect", "reason": why}
    assert report.instances[tasks[1]["instance_id"]].witness == "weakly_witnessed"
    assert score(tasks, report, "base", "mini").statuses["suspect"] == 1
    assert "witness" not in make_report(tasks, [R] * 5) and "witness" not in make_score([R, U])


def test_score_of_nothing_but_lost_tasks_has_no_rate_without_them():
    record = make_score([LOST, LOST])
    assert record["resolve_rate"] == 0
    assert record["without_infra_errors"] == {
        "resolve_rate": None,
        "interval": None,
        "resolved": 0,
        "total": 0,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda report: report.update(policy="other"), "its policy is 'other'"),
        (lambda report: report.update(subset="other"), "its subset is 'other'"),
        (lambda report: report.update(tasks_digest="0" * 64), "another version of the tasks"),
        (lambda report: report["instances"].popitem(), "1 of 3 instances without a grade: o__r.*00002"),
        (lambda report: report["instances"].update(x={"status": R}), "not in the benchmark: x"),
        (lambda report: report["statuses"].update(resolved=3), "contradict the instances"),
        (lambda report: report.update(resolved_instances=9), "resolved_instances is 9"),
        (lambda report: report.pop("instances"), "'instances' is a required property"),
    ],
)
def test_score_refuses_a_report_that_does_not_fit(change, message):
    tasks = make_tasks(3)
    report = make_report(tasks, [R, U, U])
    change(report)
    with pytest.raises(InputError, match=message):
        score(tasks, report, "base", "mini")


def test_score_refuses_no_tasks():
    with pytest.raises(InputError, match="no tasks"):
        score([], make_report([], []), "base", "mini")


def test_compare_leaves_lost_tasks_out_and_counts_them():
    record = compare(make_score([R, U, U, U, LOST]), make_score([R, R, R, LOST, R], "sft"))
    assert record["discordant"] == {"gained": 2, "lost": 0}
    assert (record["both"], record["neither"], record["pairs"]) == (1, 0, 3)
    assert record["excluded_infra_errors"] == 2
    assert record["p_value"] == 0.5
    assert record["difference"] == pytest.approx(2 / 3)


def test_compare_with_no_pair_left():
    record = compare(make_score([LOST, R]), make_score([R, LOST], "sft"))
    assert record["pairs"] == 0 and record["p_value"] is None and record["interval"] is None


def test_verify_refuses_scores_that_cannot_be_compared():
    base, sft = make_score([R, U]), make_score([R, R], "sft")
    with pytest.raises(InputError, match="given twice"):
        score_experiment([base, base], ("base", "sft"))
    with pytest.raises(InputError, match=r"no score of policy 'stf' \(did you mean 'sft'"):
        score_experiment([base, sft], ("base", "stf"))
    with pytest.raises(InputError, match="scored on 3 tasks"):
        score_experiment([base, make_score([R, R, R], "sft")], ("base", "sft"))
    with pytest.raises(InputError, match=r"no score on benchmark 'minj' \(did you mean 'mini'"):
        score_experiment([base, sft], ("base", "sft"), "minj")


def test_compare_names_unpaired_ids():
    base, sft = make_score([R, U]), make_score([R, R], "sft")
    sft["instances"]["stranger"] = R
    with pytest.raises(InputError, match="stranger"):
        compare(base, sft)


EXPERIMENT = """
expert: {policy: scripted, subsets: [train]}
sft: demo
policies: [base, sft]
benchmarks: [drill, forge]
compare: [base, sft]
"""


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """Makes a folder with configs, tasks and reports of two policies on two benchmarks."""
    (tmp_path / "configs/experiments").mkdir(parents=True)
    (tmp_path / "configs/experiments/trial.yaml").write_text(EXPERIMENT)
    (tmp_path / "configs/policies").mkdir()
    for policy in ("base", "sft", "scripted"):
        (tmp_path / f"configs/policies/{policy}.yaml").write_text("{kind: scripted, scaffold: demo}")
    verdicts = {"base": [U] * 18 + [R] * 2, "sft": [R] * 15 + [U] * 5}
    for subset in ("drill", "forge"):
        tasks = make_tasks(20)
        write_json(tmp_path / f"results/tasks/{subset}.json", tasks)
        for policy, statuses in verdicts.items():
            report = make_report(tasks, statuses, policy, subset)
            write_json(tmp_path / f"results/grades/{policy}/{subset}/report.json", report)
    return tmp_path


def run(workplace: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", *arguments]
    return run_program(command, cwd=workplace, env={"PYTHONPATH": str(ROOT)})


def write_scores(workplace: Path) -> list[str]:
    paths = []
    for subset in ("drill", "forge"):
        for policy in ("base", "sft"):
            paths.append(f"results/scores/{policy}/{subset}.json")
            done = run(
                workplace, "scripts.score", "--tasks", f"results/tasks/{subset}.json",
                "--report", f"results/grades/{policy}/{subset}/report.json",
                "--policy", policy, "--subset", subset, "--output", paths[-1],
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    return paths


@pytest.mark.full
def test_scripts_write_a_verified_score_that_is_the_same_twice(workplace):
    paths = write_scores(workplace)
    load_score(workplace / paths[0])
    records = []
    for name in ("one", "two"):
        done = run(
            workplace, "scripts.score_experiment", "--experiment", "trial", "--scores", *paths, "--benchmark",
            "drill", "--compare", "base", "sft", "--output", f"{name}.json",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        records.append(read_json(workplace / f"{name}.json"))
    record = records[0]
    check(record, VerifiedScore, "test")
    assert record["benchmark"]["name"] == "drill"
    assert [other["benchmark"]["name"] for other in record["others"]] == ["forge"]
    assert record["policies"]["sft"]["resolve_rate"] == 0.75
    assert record["comparison"]["discordant"] == {"gained": 15, "lost": 2}
    named = {entry["path"] for entry in record["manifest"]["files"]}
    inputs = {f"results/tasks/{subset}.json" for subset in ("drill", "forge")}
    reports = {
        f"results/grades/{policy}/{subset}/report.json"
        for policy in ("base", "sft")
        for subset in ("drill", "forge")
    }
    assert named == {*paths, *inputs, *reports}
    assert "results/grades/sft/drill/report.manifest.json" in record["manifest"]["missing"]
    assert record["manifest"]["recipes"] == {
        "experiments/trial.yaml": {
            "policies": ["base", "sft"], "benchmarks": ["drill", "forge"], "compare": ["base", "sft"],
        }
    }  # fmt: skip
    bare = [json.dumps({key: each[key] for key in each if key != "manifest"}) for each in records]
    assert bare[0] == bare[1]


def test_the_first_line_of_a_score_tells_what_was_lost(workplace):
    report = make_report(make_tasks(20), [R] * 9 + [LOST] * 2 + [U] * 9, "base", "drill")
    write_json(workplace / "results/grades/base/drill/report.json", report)
    paths = write_scores(workplace)
    told = "(2 of 20 lost to infrastructure, counted as not resolved: 50.0% without them)"
    tasks, output = ("--tasks", "results/tasks/drill.json"), ("--output", "again.json")
    named = ("--report", "results/grades/base/drill/report.json", "--policy", "base", "--subset", "drill")
    first = run(workplace, "scripts.score", *tasks, *named, *output).stdout.splitlines()[0]
    assert first.startswith("base on drill: 9/20 resolved, 45.0% [") and first.endswith(f"] {told}")
    done = run(
        workplace, "scripts.score_experiment", "--experiment", "trial", "--scores", *paths, "--benchmark",
        "drill", "--compare", "base", "sft", "--output", "verified.json",
    )  # fmt: skip
    drill, forge = done.stdout.splitlines()
    assert drill.startswith(f"drill: base 45.0% {told}, sft 75.0%, p = ") and "lost" not in forge


def dropped(task: dict, reason: str, resolved: int) -> dict:
    return {"instance_id": task["instance_id"], "reason": reason, "gold_resolved": resolved}


def test_tasks_validated_by_null_runs_only_are_told_apart():
    tasks = make_tasks(6)
    lock = make_lock(tasks, [dropped(tasks[0], "1 of 2 null runs differ", 0)], [])
    kept = [row | {"validated": "null only", "fails": ["t.py::a"], "collected": 3} for row in lock.kept]
    settings = {"gold_runs": 0, "null_runs": 2}
    told = validation(lock | {"kept": kept, "null_tasks": 6, "settings": settings})
    figures = ("gold_runs", "gold_tasks", "gold_runs_resolved", "null_tasks", "null_kept", "kept", "flaky")
    assert [told[name] for name in figures] == [0, 0, 0, 6, 5, 5, 1]
    gates = SimpleNamespace(gates={"mini": Gate(told, {})}, subsets=["mini"])
    said = sentence(gates, "mini")
    assert "No repair is known of 6 tasks. In 5 of these the same tests failed in every run" in said
    assert (
        "1 flaky, 0 broken (left out). There is no proof that they can be solved." in said
        and "valid;" not in said
    )
    assert trust(told) == " (validated: null only, 5 of 5 tasks: no repair of them is known)"
    assert trust(validation(make_lock(tasks, [], []))) == trust(None) == ""


def test_tasks_whose_answers_are_private_are_told_apart_from_valid_ones():
    tasks = make_tasks(6)
    told = validation(make_lock(tasks, [], [dropped(tasks[0], "timeout", 0)]) | {"private": 3})
    assert (told["gold_tasks"], told["kept"], told["private"]) == (3, 5, 3)
    assert (told["gold_runs_resolved"], told["gold_resolved_each_time"]) == (2 * 3, 2)
    said = sentence(SimpleNamespace(gates={"mini": Gate(told, {})}), "mini")
    assert "3 tasks were not validated, as their answers are private. Validation: 2 of 3 tasks valid;" in said
    alone = validation(make_lock(tasks, [], []) | {"private": 6})
    said = sentence(SimpleNamespace(gates={"mini": Gate(alone, {})}), "mini")
    assert "6 tasks were not validated" in said and "Validation:" not in said
    for policy in ("base", "sft"):
        report = make_report(tasks, [R, U] * 3, policy) | {"validation": alone}
        check(report, Report, "test")
        assert score(tasks, report, policy, "mini")["validation"]["private"] == 6


def test_the_figures_of_validation_go_from_the_lock_into_the_verified_score():
    tasks = make_tasks(6)
    flaky = [dropped(tasks[0], "the gold patch is resolved in 2 of 3 runs", 2)]
    broken = [dropped(tasks[1], "timeout", 0), dropped(tasks[2], "an empty patch is resolved", 3)]
    told = validation(make_lock(tasks, flaky, broken))
    assert told["gold_tasks"] == 6 and told["kept"] == 3 and told["flaky"] == 1 and told["broken"] == 2
    assert told["gold_runs_resolved"] == 3 * 3 + 2 + 0 + 3 and told["gold_resolved_each_time"] == 3 + 1
    assert told["broken_ids"] == [row["instance_id"] for row in broken]
    scores = []
    for policy in ("base", "sft"):
        report = make_report(tasks[3:], [R, U, R], policy) | {"validation": told}
        check(report, Report, "test")
        scores.append(score(tasks[3:], report, policy, "mini"))
    record = score_experiment(scores, ("base", "sft"))
    assert record["validation"] == {key: told[key] for key in told if not key.endswith("_ids")}
    scores[1]["validation"] = scores[1]["validation"] | {"gold_runs": 9}
    with pytest.raises(InputError, match="sft was scored after another validation"):
        score_experiment(scores, ("base", "sft"))
    with pytest.raises(InputError, match="validation kept 9 tasks.*3, as many as there are"):
        score(tasks[3:], report | {"validation": told | {"kept": 9}}, "sft", "mini")
