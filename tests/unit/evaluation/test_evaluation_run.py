"""Evaluations with an earlier journal or with tasks that cannot run here; the table of running attempts."""

import io
from dataclasses import replace

import httpx
import pytest
from rich.console import Console

from swelab.evaluation import preconditions
from swelab.evaluation.attempt_result import attempt_result
from swelab.evaluation.attempt_run import Running, _table
from swelab.evaluation.benchmark_rows import Benchmark, Source
from swelab.evaluation.command_line import parse, plan_of
from swelab.evaluation.evaluation_plan import Plan, gpus_of_a_server, policy_of, scaffold_of, with_servers
from swelab.evaluation.evaluation_run import IDENTITY, check_identity, forget, unpaid, without_archive
from swelab.evaluation.preconditions import context, own_words
from swelab.evaluation.result_files import summary, table
from swelab.grading.grading_stage import lost_grade
from swelab.jobs.journal import Journal, read_journal
from swelab.outcomes import RolloutEnd
from swelab.records import InputError, write_bytes, write_json, write_jsonl
from swelab.records.attempt_records import Grade, Trajectory
from swelab.rollouts.rollout_stage import lost_rollout
from tests.conftest import make_repos, make_task


def plan(folder, **further):
    (folder / "oracle.yaml").write_text("{kind: scripted, scaffold: demo}")
    name, policy = policy_of(str(folder / "oracle.yaml"), sampling={})
    scaffold_name, scaffold = scaffold_of("demo")
    given = {"policy": policy, "policy_name": name, "scaffold": scaffold, "scaffold_name": scaffold_name}
    return Plan(Source(str(folder / "rows.jsonl")), folder / "out", **given, **further)


def attempt(task, end=RolloutEnd.SUBMITTED, status="", **grade):
    mark = {"policy": "p", "subset": "s"}
    rollout = lost_rollout(task, "the model did not answer") | {"outcome": end}
    trajectory = Trajectory.of(rollout | mark)
    if not status:
        return attempt_result(trajectory, 0, lost_grade(task, end), "x", 2.0, **grade)
    verdict = Grade(instance_id=task.instance_id, status=status, resolved=status == "resolved")
    return attempt_result(trajectory | {"model_patch": "diff"}, 0, verdict, "x", 2.0)


def test_losses_are_told_apart_and_counted_with_words(tmp_path):
    tasks = [make_task() | {"instance_id": name} for name in "abcde"]
    done = [
        attempt(tasks[0], status="resolved"),
        attempt(tasks[1], status="unresolved"),
        attempt(tasks[2], RolloutEnd.MODEL_LOST),
        attempt(tasks[3], RolloutEnd.SANDBOX_LOST, final=True),
    ]
    found = summary(plan(tmp_path), Benchmark(tasks, {"line 9": "cut"}, 9), tasks, done, None, 3.0)
    assert (found["total"], found["resolved"], found["errors"], found["resolve_rate"]) == (4, 1, 2, 0.25)
    assert (
        found["without_infra_errors"]["total"] == 2 and found["without_infra_errors"]["resolve_rate"] == 0.5
    )
    assert found["infrastructure"] == {"model_lost": 1, "row that cannot be used": 1}
    assert not found["complete"] and found["attempts_left"] == 1
    assert [each.is_lost for each in done] == [False, False, True, False]
    lines = "\n".join(table(found))
    for told in (
        "| resolved | 1 of 4, 25.0%", "| without the 2 lost to infrastructure | 1 of 2, 50.0%",
        "| lost: model_lost | 1 |", "| rows refused, not counted | 1 |", "| attempts left | 1 |",
    ):  # fmt: skip
        assert told in lines


def test_without_an_attempt_there_is_no_rate_and_the_line_says_what_to_raise(tmp_path):
    tasks = [make_task() | {"instance_id": name} for name in "ab"]
    waits = [attempt(task, RolloutEnd.BUDGET_SPENT) for task in tasks]
    found = summary(plan(tmp_path), Benchmark(tasks, {}, 2), tasks, waits, None, 3.0)
    assert found["resolve_rate"] is None and found["interval"] is None and found["attempts_left"] == 2
    assert "| resolved | 0 of 2, no rate: nothing was attempted |" in table(found)
    told = str(unpaid(waits))
    assert told.startswith("the model did not answer; 2 of 2 attempts wait: raise --budget-dollars")
    paid = attempt(tasks[0], status="resolved")
    paid.usage.update(cost=0.25)
    assert "1 of 2 attempts wait; an attempt costs $0.2500 on average: raise" in str(unpaid([paid, waits[1]]))
    assert unpaid([paid]) is None


@pytest.mark.parametrize(
    ("paid", "told"),
    [
        ({}, "not known"),
        ({"paid": 0.5, "paid_at_most": 0.0}, "not known; paid in all runs $0.5000"),
        ({"paid": 0.5, "paid_at_most": 0.2}, "not known; paid in all runs $0.5000, of it $0.2000 at most"),
        ({"cost": 0.5, "paid": 0.5, "paid_at_most": 0.0}, "$0.5000"),
        ({"cost": 0.4, "paid": 0.5, "paid_at_most": 0.0}, "$0.4000; paid in all runs $0.5000"),
    ],
)
def test_the_cost_of_what_counts_and_the_bill_of_all_runs(tmp_path, paid, told):
    found = summary(plan(tmp_path), Benchmark([], {}, 0), [], [], None, 3.0)
    assert "paid" not in found["usage"]
    assert f"| cost | {told} |" in table(found | {"usage": found["usage"] | paid})


def test_a_name_stands_beside_the_model_and_changes_no_attempt(tmp_path):
    one, named = plan(tmp_path), plan(tmp_path, label="at t=1")
    found = summary(named, Benchmark([], {}, 0), [], [], None, 3.0)
    assert (found["name"], found["model"]) == ("at t=1", "oracle") and one.identity() == named.identity()
    assert table(found)[2:4] == ["| evaluation | at t=1 |", "| model | `oracle` |"]
    given = ["--model", str(tmp_path / "oracle.yaml"), "--data", "d", "--output-dir", str(tmp_path), "--name"]
    assert plan_of(parse("", [*given, "at t=1"]))[0].name == "at t=1" and one.name == "oracle"


def test_a_task_without_its_archive_is_refused_and_the_others_go_on(tmp_path):
    make_repos(tmp_path)
    tasks = [make_task(), make_task() | {"instance_id": "b", "repo_recipe": "gone"}]
    found = Benchmark(list(tasks), {}, 2)
    without_archive(plan(tmp_path, repos=tmp_path / "repos"), found)
    assert [task.repo_recipe for task in found.tasks] == ["calc"]
    assert found.refused["b"].startswith("no such repository archive")
    with pytest.raises(InputError, match="no task can be used"):
        without_archive(plan(tmp_path, repos=tmp_path / "nowhere"), Benchmark(tasks, {}, 2))


def test_a_folder_is_of_one_evaluation(tmp_path):
    own = plan(tmp_path)
    check_identity(own)
    write_json(own.folder / IDENTITY, own.identity())
    check_identity(own)
    name, other = scaffold_of("demo", step_limit=3)
    with pytest.raises(
        InputError, match="holds an evaluation with another scaffold.step_limit .3 here, 8 there"
    ):
        check_identity(replace(own, scaffold=other, scaffold_name=name))


def test_a_model_without_a_price_has_no_limit_in_dollars(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "rows.jsonl").write_text("")
    given = ["--data", str(tmp_path / "rows.jsonl"), "--output-dir", str(tmp_path / "out")]
    own, _ = plan_of(parse("", ["--model", "openai/mine/x", "--api-base", "http://h:1/v1", *given]))
    assert own.scaffold.cost_limit == 0 and own.policy.api_key_env == "OPENAI_API_KEY"
    priced, _ = plan_of(parse("", ["--model", "openai/gpt-4o", *given]))
    assert priced.scaffold.cost_limit is None and priced.scaffold_name == "mini-swebench"


def test_weights_are_spread_over_the_gpus_that_are_there(tmp_path, monkeypatch):
    from swelab import machine

    monkeypatch.setattr(machine, "gpus", lambda: [machine.Gpu("H", 100, 100)] * 8)
    (tmp_path / "mine").mkdir()
    for size, tp in ((60, 1), (150, 4), (10_000, 8)):
        (tmp_path / "mine/model.safetensors").write_bytes(b"x" * size)
        assert gpus_of_a_server(tmp_path / "mine", machine.gpus()) == tp
    (tmp_path / "mine/config.json").write_text('{"max_position_embeddings": 4096}')
    _, policy = policy_of(str(tmp_path / "mine"), sampling={})
    assert policy.context_length == 4096
    assert [with_servers(policy, tp, dp).job.servers for tp, dp in ((2, None), (None, 2), (4, 2))] == [
        4,
        2,
        2,
    ]
    with pytest.raises(InputError, match="8 servers of 2 GPUs each, but this machine has 8 GPUs"):
        with_servers(policy, 2, 8)


def test_a_context_is_short_by_the_words_of_the_scaffold_and_the_task():
    words = {name: own_words(scaffold_of(name)[1]) for name in ("demo", "mini-swebench", "swe-agent-infer")}
    assert words["demo"] < 50 < 500 < words["mini-swebench"] < words["swe-agent-infer"] == 3000
    tasks = [make_task() | {"instance_id": "short"}, make_task() | {"problem_statement": "word " * 2000}]
    assert context(2048, 96, words["demo"], tasks[:1]).severity == "ok"
    assert "about 1 of 2 problem statements leave no room" in context(2048, 96, words["demo"], tasks).sentence
    assert "about 2 of 2" in context(2048, 1500, words["mini-swebench"], tasks).sentence


def test_another_evaluation_in_a_folder_keeps_images_archives_and_the_bill(tmp_path):
    mine, others = plan(tmp_path), ("pulled.jsonl", "null_runs.jsonl")
    for name in ("repos/mine.tar", "images/layer", "paid/ledger.jsonl", *others, "minutes.json"):
        write_bytes(mine.progress / name, b"{}\n")
    row = {"key": "k", "instance_id": "a"}
    for name in ("results", "rollouts", "visible", "000of001"):
        write_jsonl(mine.progress / f"{name}.jsonl", [row])
    write_bytes(mine.progress / "000of001.swe-agent/a/a.traj", b"{}")
    with Journal(mine.progress / "rollouts.jsonl"), pytest.raises(InputError, match="in use by another"):
        forget(mine, {"a"})
    forget(mine, {"b"})
    names = {
        path.relative_to(mine.progress).as_posix() for path in mine.progress.rglob("*") if path.is_file()
    }
    journals = {f"{name}.jsonl" for name in ("results", "rollouts", "visible", "000of001")}
    assert names == {"repos/mine.tar", "images/layer", "paid/ledger.jsonl", *others, *journals}
    assert not any((mine.progress / name).read_bytes() for name in journals)


def test_only_the_chosen_attempts_of_an_evaluation_are_deleted(tmp_path):
    mine = plan(tmp_path)
    write_json(mine.folder / "evaluation.json", mine.identity())
    rows = [{"key": name, "instance_id": name} for name in "ab"]
    write_jsonl(mine.progress / "000of001.s1.jsonl", rows)
    for name in "ab":
        write_bytes(mine.progress / f"000of001.s1.swe-agent/{name}/{name}.traj", b"{}")
    forget(mine, {"a"})
    assert list(read_journal(mine.progress / "000of001.s1.jsonl")) == rows[1:]
    assert [path.name for path in (mine.progress / "000of001.s1.swe-agent").iterdir()] == ["b"]


@pytest.mark.parametrize(("status", "severity"), [(429, "low"), (401, "FIX")])
def test_a_service_that_is_busy_keeps_no_evaluation_from_starting(monkeypatch, status, severity):
    def refuse(*_):
        raise httpx.HTTPStatusError("", request=None, response=httpx.Response(status, text="not now"))

    monkeypatch.setattr(preconditions, "complete", refuse)
    _, policy = policy_of("openai/mine", api_base="http://h:1/v1", sampling={})
    finding, answer = preconditions.completion(policy, None, preconditions.WORD, {})
    assert (finding.severity, answer) == (severity, None) and "completion: openai/mine: " in finding.sentence


def drawn(running, height=20, width=120):
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(_table(running, height))
    return console.file.getvalue()


def test_each_running_attempt_has_a_line():
    running = Running(4)
    for name in ("django-1", "django-2#1", "flask-3"):
        running.begin(name)
    running.turn("django-1", 1, 0.02, "ls")
    running.turn("django-1", 2, 0.05, "grep -rn 'x' src\nls")
    running.turn("django-1", 3, 0.11, "")  # a response without a command
    running.grading("django-2#1")
    running.end("flask-3", "resolved")
    first, second, third, last = drawn(running).splitlines()
    assert first.split() == ["attempt", "doing", "step", "$", "time", "last", "command"]
    assert second.split()[:4] == ["django-1", "acting", "3", "0.11"] and "grep -rn 'x' src" in second
    assert third.split()[:3] == ["django-2#1", "grading", "0"]
    assert last.strip() == "1 of 4: 1 resolved"
