"""Scores of several runs, every pair of policies, reports of others, and the page that shows them."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.compare import compare as told
from scripts.compare import plan
from swelab.lineage import Wildcards
from swelab.records import InputError, check, read_json, write_json
from swelab.records.attempt_records import Usage
from swelab.records.score_records import VerifiedScore
from swelab.scores.report.html_page import render
from swelab.scores.report.report_data import gather
from swelab.scores.score import score
from swelab.scores.statistics.other_harnesses import on_one_benchmark, read_result
from swelab.scores.statistics.permutation_test import holm
from swelab.scores.verified_score import compare, score_experiment
from tests.unit.finished_experiment import build
from tests.unit.report_page import Page
from tests.unit.scores.test_score import LOST, E, R, U, make_report, make_score, make_tasks

ROOT = Path(__file__).resolve().parents[3]


def make_runs(rows: list[list[str]], policy: str = "base") -> dict:
    """Returns the score of runs whose verdicts are given by task."""
    tasks = make_tasks(len(rows))
    reports = []
    for sample, statuses in enumerate(zip(*rows, strict=True)):
        report = make_report(tasks, list(statuses), policy)
        reports.append(report | ({"sample": sample} if sample else {}))
    return score(tasks, reports, policy, "mini")


ROWS = [[R, R, R], [R, U, E], [U, U, U], [R, LOST, U], [U, R, R]]


def test_a_score_of_several_runs():
    record = make_runs(ROWS)
    assert (record["resolved"], record["total"], record["benchmark"]["size"]) == (7, 15, 5)
    assert record["resolve_rate"] == pytest.approx(7 / 15)
    assert record["infra_errors"] == 1 and record["without_infra_errors"]["total"] == 14
    assert record["without_infra_errors"]["resolve_rate"] == 0.5
    assert sum(record["statuses"].values()) == 15 and record["outcomes"] == {"submitted": 15}
    assert [run["resolved"] for run in record["runs"]] == [3, 2, 2]
    assert [run["infra_errors"] for run in record["runs"]] == [0, 1, 0]
    assert record["spread"]["lowest"] == 0.4 and record["spread"]["highest"] == 0.6
    assert record["spread"]["sd"] == pytest.approx(0.11547005)
    within = (0 + 1 / 3 + 0 + 1 / 3 + 1 / 3) / 5
    assert record["spread"]["expected_sd"] == pytest.approx((within / 5) ** 0.5)
    assert record["pass_at"]["3"]["rate"] == 0.8 and record["pass_all"]["3"]["rate"] == 0.2
    assert record["pass_at"]["1"]["rate"] == pytest.approx(7 / 15)
    assert list(record["instances"].values()) == ROWS
    assert set(record["detectable"]["runs"]) == {"1", "3", "5", "10"}
    assert record["repos"]["swelab/o__r.00000000"]["tasks"] == 5


def test_a_score_of_one_run_says_no_more_than_is_known():
    record = make_score([R, U, U, LOST])
    assert not {"runs", "spread", "pass_at", "pass_all", "usage"} & set(record)
    assert record["instances"]["o__r.00000000.func_pm_op__00000000"] == R
    (limits,) = record["detectable"]["runs"].values()
    assert limits["same_tasks_hard"] is None and 0 < limits["unrelated"] <= 1
    nothing = make_score([U] * 40)["detectable"]["runs"]["1"]
    assert 0.05 < nothing["unrelated"] < 0.2  # not 0, because a rate of 0 is not known to be 0


def test_reports_of_runs_come_in_order():
    tasks = make_tasks(2)
    reports = [make_report(tasks, [R, U]), make_report(tasks, [R, R])]
    with pytest.raises(InputError, match="sample 1: it is of sample 0; expected one report a sample"):
        score(tasks, reports, "base", "mini")


def spent(**changes) -> dict:
    told = {"calls": 2, "prompt_tokens": 100, "completion_tokens": 20, "cost": 0.5}
    return Usage.of({**told, **changes})


@pytest.mark.parametrize(
    ("odd", "tokens", "cost"),
    [({}, 240 / 3, 1.0 / 3), ({"cost": None}, 240 / 3, None), ({"prompt_tokens": None}, None, 1.0 / 3)],
)
def test_tokens_and_cost_of_a_resolved_task(odd, tokens, cost):
    tasks = make_tasks(4)
    names = [task["instance_id"] for task in tasks]
    usage = {name: spent(prompt_tokens=40, cost=0.25) for name in names} | {names[0]: spent(
        prompt_tokens=40, cost=0.25) | odd}  # fmt: skip
    record = score(tasks, make_report(tasks, [R, R, R, U]), "base", "mini", [usage])["usage"]
    assert (record["tokens_per_resolved"], record["cost_per_resolved"]) == (tokens, cost)
    assert record["cost_known"] == (3 if "cost" in odd else 4)
    assert not {"seconds", "seconds_known"} & set(record)
    none = score(tasks, make_report(tasks, [U] * 4), "base", "mini", [usage])["usage"]
    assert none["tokens_per_resolved"] is None and none["cost_per_resolved"] is None


def test_seconds_of_the_attempts_that_have_them():
    tasks = make_tasks(3)
    usage = {task["instance_id"]: spent() for task in tasks}
    usage[tasks[0]["instance_id"]] |= {"seconds": 2.5}
    usage[tasks[1]["instance_id"]] |= {"seconds": 0.25}
    record = score(tasks, make_report(tasks, [R, R, U]), "base", "mini", [usage])["usage"]
    assert (record["seconds"], record["seconds_known"]) == (2.75, 2)


def test_runs_are_compared_by_task():
    test = compare(make_runs(ROWS), make_runs([[R, R], [R, R], [U, U], [R, U], [LOST, LOST]], "sft"))
    assert test["runs"] == {"from": 3, "to": 2} and test["excluded_infra_errors"] == 1
    assert test["pairs"] == 4 and test["discordant"] == {"gained": 1, "lost": 0}
    assert (test["both"], test["neither"]) == (2, 1)  # the lost attempt of the fourth task is left out
    assert test["difference"] == pytest.approx((2 / 3) / 4) and test["p_value"] == 1
    mixed = compare(make_score([R, U, U, U, U]), make_runs(ROWS, "sft"))
    assert mixed["runs"] == {"from": 1, "to": 3} and mixed["pairs"] == 5
    lost = compare(make_runs([[LOST, LOST]]), make_runs([[R, R]], "sft"))
    assert lost["pairs"] == 0 and lost["p_value"] is None
    with pytest.raises(InputError, match="only in the second"):
        compare(make_runs([[R, R]]), make_runs([[R, R], [R, R]], "sft"))


def test_every_two_of_several_policies_are_compared_with_holms_correction():
    scores = [
        make_score([R] * good + [U] * (30 - good), policy)
        for policy, good in (("a", 5), ("b", 14), ("c", 18))
    ]
    record = score_experiment(scores, ("a", "c"))
    check({**record, "manifest": read_manifest()}, VerifiedScore, "test")
    pairs = record["pairwise"]
    assert [(test["from"], test["to"]) for test in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [test["p_adjusted"] for test in pairs] == holm([test["p_value"] for test in pairs])
    assert record["comparison"]["p_value"] == pairs[1]["p_value"] < pairs[1]["p_adjusted"]
    assert "pairwise" not in score_experiment(scores[:2], ("a", "b"))


def read_manifest() -> dict:
    empty = {"packages": {}, "recipes": {}, "files": [], "missing": [], "stages": {}}
    return {"rule": "r", "code": {"commit": "", "dirty": False}, "experiment": "e", **empty}


def write(path: Path, content: dict) -> str:
    write_json(path, content)
    return path.name


def said(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "scripts.compare", *arguments]
    done = subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_the_script_says_in_a_sentence_whether_a_difference_is_noise(tmp_path):
    few = write(tmp_path / "few.json", make_score([R] * 10 + [U] * 40, "few"))
    more = write(tmp_path / "more.json", make_score([R] * 12 + [U] * 38, "more"))
    many = write(tmp_path / "many.json", make_score([U] * 10 + [R] * 40, "many"))
    code, text = said(tmp_path, few, more, many)
    assert code == 0
    assert (
        "more resolves 4.0 points more than few on 50 tasks (1 run against 1 run): not told from noise."
        in text
    )
    assert "many resolves 60.0 points more than few" in text and ": more than noise. 95% interval +" in text
    assert "Holm's correction over 3 comparisons" in text
    assert plan(500, 0.3, 0.4)[1] == "  1 run each: 5.1 to 8.1 points"
    code, text = said(tmp_path)
    assert code == 2 and text.startswith("error: nothing to compare; expected results, or --tasks 500")


def bench_report(resolved: int, size: int = 20, **changes) -> dict:
    """Returns a report as SWE-bench's harness writes it."""
    ids = [f"astropy__astropy-{number}" for number in range(size)]
    return {
        "total_instances": size,
        "submitted_instances": size,
        "submitted_ids": ids,
        "incomplete_ids": [],
        "resolved_ids": ids[:resolved],
        "unresolved_ids": ids[resolved:],
        "schema_version": 2,
        **changes,
    }


def results(*paths: Path) -> tuple[list[dict], list[str]]:
    found = [read_result(path) for path in paths]
    return found, on_one_benchmark(list(zip(paths, found, strict=True)))


def test_reports_of_other_harnesses_can_be_compared(tmp_path):
    full = bench_report(9, infra_failure_ids=["astropy__astropy-19"])
    bare = {"resolved": bench_report(4)["resolved_ids"], "no_generation": ["astropy__astropy-7"]}
    smith = {"ids_resolved": bench_report(6)["resolved_ids"], "ids_unresolved": [], "total": 20}
    paths = [tmp_path / f"{name}.json" for name in ("full", "bare", "smith")]
    for path, content in zip(paths, (full, bare, smith), strict=True):
        write_json(path, content)
    (first, second, third), notes = results(*paths)
    assert first["instances"].keys() == second["instances"].keys() == third["instances"].keys()
    assert len(notes) == 2 and "15 of 20 tasks are not named and count as not resolved" in notes[0]
    test = compare(second, first)
    assert test["discordant"] == {"gained": 5, "lost": 0} and test["excluded_infra_errors"] == 1
    assert any("smith resolves 10.0 points more than bare on 20 tasks" in each for each in told(paths[1:]))


def test_a_folder_holds_the_runs_of_a_policy(tmp_path):
    for run, resolved in enumerate((5, 7, 6)):
        write_json(tmp_path / f"ours/{run}.json", bench_report(resolved))
    write_json(tmp_path / "theirs.json", bench_report(3))
    text = "\n".join(told([tmp_path / "theirs.json", tmp_path / "ours"]))
    assert "(3 runs against 1 run)" in text and "ours: 30.0% [" in text and "(paired permutation)" in text
    assert "10 runs each: " in "\n".join(told([tmp_path / "ours"]))
    write_json(tmp_path / "ours/9.json", bench_report(3, size=21))
    with pytest.raises(InputError, match="its runs are of different benchmarks"):
        read_result(tmp_path / "ours")


def test_a_folder_of_our_reports_is_called_as_their_policy(tmp_path):
    tasks = make_tasks(3)
    for sample, statuses in enumerate(([R, U, U], [R, R, LOST])):
        report = make_report(tasks, statuses, "mine")
        write_json(tmp_path / f"drill/report.s{sample}.json", report)
    found = read_result(tmp_path / "drill")
    assert found["policy"] == "mine" and found["instances"]["o__r.00000000.func_pm_op__00000002"] == [U, LOST]
    write_json(tmp_path / "drill/z.json", make_runs(ROWS[:3], "mine"))
    with pytest.raises(InputError, match="z.json: a score of several runs"):
        read_result(tmp_path / "drill")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "a list; expected a score or a report"),
        ({}, "no list of resolved instances; expected one of resolved_ids"),
        ({"resolved_ids": [1]}, "resolved_ids is no list of instance ids"),
        (bench_report(3, total_instances=2), "names 20 instances of 2"),
        (bench_report(3, size=21), "results on 20 and 21 tasks"),
        ({"resolved_ids": ["other"], "total_instances": 20}, "does not have other and 0 more"),
        ({"benchmark": {}, "instances": {}}, "a valid score"),
    ],
)
def test_results_that_cannot_be_compared_are_one_line(tmp_path, content, message):
    write_json(tmp_path / "good.json", bench_report(3))
    write_json(tmp_path / "odd.json", content)
    with pytest.raises(InputError, match=message):
        results(tmp_path / "good.json", tmp_path / "odd.json")


def test_results_without_a_size_or_of_two_task_sets_are_refused(tmp_path):
    for name in "ab":
        write_json(tmp_path / f"{name}.json", {"resolved": ["x"]})
    with pytest.raises(InputError, match="no result says how many tasks there are"):
        results(tmp_path / "a.json", tmp_path / "b.json")
    write_json(tmp_path / "one.json", make_score([R, U]))
    write_json(tmp_path / "two.json", make_score([R, U, U]))
    with pytest.raises(InputError, match="different task sets"):
        results(tmp_path / "one.json", tmp_path / "two.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no \\*.json"):
        read_result(tmp_path / "empty")


@pytest.fixture(scope="module")
def page_and_score(tmp_path_factory) -> tuple[str, dict]:
    root = tmp_path_factory.mktemp("runs")
    build(root, train=12, heldout=24, samples={"sft": 3, "base": 2, "scripted": 2})
    at = Wildcards({"experiment": "demo"}, root / "configs", root / "results")
    verified = root / "results/verified_score.json"
    return render(gather(at, verified, 100, 0)), read_json(verified)


def test_the_page_shows_runs(page_and_score):
    html, verified = page_and_score
    text = " ".join(" ".join(Page(html).texts).split())
    sft = verified["policies"]["sft"]
    assert sft["total"] == 72 and f"{sft['resolved']} of 72 in 3 runs" in text
    assert "attempts at train tasks" in text and "Paired permutation test, exact" in text
    assert (
        "attempted by base twice, by sft 3 times" in text
        and "drill-heldout and forge-heldout 2 and 3 times" in text
    )
    for name in (
        "Runs of the same tasks",
        "Several attempts at a task",
        "Detectable differences, in points",
        "Tokens, cost and time of attempts",
    ):
        assert name in text, name
    assert f"{100 * sft['pass_at']['3']['rate']:.1f}%" in text
    assert f"{round(sft['usage']['tokens_per_resolved']):,}" in text
