"""Ratings of difficulty by a real HTTP service that answers well, badly, or not at all."""

import json
import threading

import pytest
import yaml

from scripts import rate_difficulty
from swelab import patience
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, RATER
from swelab.jobs import thread_pool
from swelab.jobs.lost_instances import ShardLost
from swelab.models import BudgetSpent
from swelab.records import check, read_jsonl, write_json
from swelab.records.task_records import Difficulty
from swelab.tasks.criteria import read_ratings
from swelab.tasks.difficulty import Ratings, rate_tasks, read_word
from tests.json_service import json_service
from tests.unit.models.chat.test_served_models import answer, fault
from tests.unit.tasks.test_datasets_source import row

RATER = recipes.load_named(RATER, "difficulty")


@pytest.fixture
def service(monkeypatch):
    """A service whose answers in `script` are chosen by a word of the issue. `asked` has its requests."""
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    monkeypatch.setattr(thread_pool, "RETRY_SECONDS", (0.01,))

    lock = threading.Lock()

    def reply(_path, _headers, body):
        issue = body["messages"][1]["content"]
        with lock:
            server.asked.append(body)
            return server.script[next(word for word in server.script if word in issue)].pop(0)

    with json_service(reply) as server:
        server.script, server.asked = {}, []
        yield server


def task(number, word):
    return row(number, problem_statement=f"The issue is {word}.")


def policy(service, **changes):
    settings = {"kind": "checkpoint", "scaffold": "swe", "weights": "none"}
    settings |= {"endpoint": service.url, **changes}
    return recipes.complete(POLICY, settings, "it")


def rate(service, tmp_path, tasks, rater=RATER, **changes):
    rated = rate_tasks(
        iter(tasks),
        rater=rater,
        policy_name="p",
        policy=policy(service, **changes),
        progress=tmp_path / "journal.jsonl",
        workers=3,
    )
    counts = Ratings()
    records = list(counts.count(rated))
    for record in records:
        check(record, Difficulty, "it")
    return records, counts.facts


def test_words_become_ratings_with_the_issue_and_the_patch_asked_for(service, tmp_path):
    service.script = {
        "ALPHA": [answer("easy")],
        "BETA": [answer(" Medium.\n")],
        "GAMMA": [answer("**hard**")],
    }
    tasks = [task(1, "ALPHA"), task(2, "BETA"), task(3, "GAMMA")]
    records, facts = rate(service, tmp_path, tasks)
    assert [record["instance_id"] for record in records] == [each["instance_id"] for each in tasks]
    assert [(record["difficulty"], record["rating"]) for record in records] == [
        ("easy", 1),
        ("medium", 5),
        ("hard", 9),
    ]
    assert facts["mean_rating"] == 5.0 and facts["outcomes"] == {"rated": 3} and not facts["asked_again"]
    for body in service.asked:
        assert body["temperature"] == 0
        assert tasks[0]["patch"].strip() in body["messages"][1]["content"]


def test_an_answer_that_is_no_word_is_asked_for_again_and_never_a_rating(service, tmp_path):
    service.script = {
        "ALPHA": [answer("It is not easy at all."), answer("hard")],
        "BETA": [answer("easy or medium"), answer(""), answer("7")],
    }
    records, facts = rate(service, tmp_path, [task(1, "ALPHA"), task(2, "BETA")])
    assert [(r["outcome"], r["rating"], r["attempts"]) for r in records] == [
        ("rated", 9, 2),
        ("unreadable", None, 3),
    ]
    assert records[1]["answer"] == "7" and records[0]["usage"] == {
        "prompt_tokens": 14,
        "completion_tokens": 6,
    }
    assert facts["outcomes"] == {"rated": 1, "unreadable": 1} and facts["asked_again"] == 2
    again = next(
        b for b in service.asked if "ALPHA" in b["messages"][1]["content"] and len(b["messages"]) > 2
    )
    assert [m["role"] for m in again["messages"]] == ["system", "user", "assistant", "user"]
    assert "easy, medium, hard" in again["messages"][-1]["content"]


def test_a_later_run_asks_only_for_what_is_not_rated(service, tmp_path):
    service.script = {"ALPHA": [answer("easy")], "BETA": [answer("?")] * 3}
    tasks = [task(1, "ALPHA"), task(2, "BETA")]
    rate(service, tmp_path, tasks)
    service.script, before = {"BETA": [answer("medium")]}, len(service.asked)
    records, _ = rate(service, tmp_path, tasks)
    assert [record["rating"] for record in records] == [1, 5]
    assert len(service.asked) == before + 1
    assert rate(service, tmp_path, tasks)[0] == records  # nothing is asked
    service.script = {"ALPHA": [answer("hard")]}
    assert (
        rate(service, tmp_path, tasks[:1], rater=RATER.model_copy(update={"attempts": 2}))[0][0]["rating"]
        == 9
    )


def test_losses_are_typed(service, tmp_path):
    service.script = {
        "ALPHA": [fault(400, "This model's maximum context length is 16 tokens")],
        "BETA": [fault(500, "down")] * 100,
        "GAMMA": [answer("hard")],
        "DELTA": [(200, {"choices": ["x"]}), (200, [])],
    }
    tasks = [task(number, word) for number, word in enumerate(service.script)]
    lost = "^2 of 4 instances .*; first .*: model_lost at http://.*: (an|no) answer"
    with pytest.raises(ShardLost, match=lost):
        rate(service, tmp_path, tasks)
    service.script["BETA"] = [fault(500, "down")] * 100
    service.script["DELTA"] = [(200, {"choices": ["x"]}), (200, [])]
    records, facts = rate(service, tmp_path, tasks, max_lost=2)
    outcomes = [record["outcome"] for record in records]
    assert outcomes == ["context_limit", "model_lost", "rated", "model_lost"]
    assert "another form" in records[3]["answer"] or "without choices" in records[3]["answer"]
    assert facts["mean_rating"] == 9.0
    service.script = {"BETA": [answer("easy")]}
    records, _ = rate(service, tmp_path, tasks[1:2])
    assert records[0]["rating"] == 1


def test_a_hosted_rater_keeps_to_its_budget(service, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    settings = {"kind": "hosted", "scaffold": "swe", "model": "openai/toy", "api_key_env": "SOME_KEY"}
    settings |= {"api_base": f"{service.url}/v1", "sampling": {"max_tokens": 16}}
    settings |= {"price": {"input": 1.0, "output": 1.0}}

    def run(budget):
        policy = recipes.complete(POLICY, settings | {"budget_dollars": budget}, "it")
        given = {"rater": RATER, "policy_name": "p", "policy": policy, "workers": 2}
        return list(rate_tasks(iter(tasks), progress=tmp_path / "r/journal.jsonl", **given))

    tasks = [task(1, "ALPHA"), task(2, "BETA")]
    service.script = {"ALPHA": [answer("easy")], "BETA": [answer("?"), answer("hard")]}
    with pytest.raises(BudgetSpent):
        run(0.000001)
    assert not service.asked
    records = run(1.0)
    assert [(record["rating"], record["attempts"]) for record in records] == [(1, 1), (9, 2)]
    assert records[1]["usage"] == {"prompt_tokens": 14, "completion_tokens": 6}
    assert records[1]["cost"] == pytest.approx(20e-6)
    assert run(1.0) == records and len(service.asked) == 3  # each rating is paid for once


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("easy", "easy"),
        ("Difficulty: Hard", "hard"),
        ("<think>easy? no, hard</think>\n\nmedium", "medium"),
        ("<think>easy", ""),
        ("easy, medium", ""),
        ("easyish", ""),
        ("The answer is `hard`.", "hard"),
        ("not hard", ""),
        ("", ""),
    ],
)
def test_a_word_is_read_strictly(text, word):
    assert read_word(text, RATER.ratings) == word


def test_the_script_writes_what_a_subset_is_kept_by(service, tmp_path, monkeypatch):
    service.script = {"ALPHA": [answer("easy")], "BETA": [answer("?")] * 3}
    write_json(tmp_path / "tasks.json", [task(1, "ALPHA"), task(2, "BETA")])
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(policy(service).plain()))
    words = [
        "rate_difficulty", "--tasks", tmp_path / "tasks.json",
        "--rater", "configs/raters/difficulty.yaml", "--policy", tmp_path / "p.yaml",
        "--progress", tmp_path / "journal.jsonl",
        "--output", tmp_path / "r.jsonl", "--manifest", tmp_path / "r.json",
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", [str(word) for word in words])
    rate_difficulty.main()
    assert read_ratings(tmp_path / "r.jsonl") == {task(1, "")["instance_id"]: 1}
    assert [record["outcome"] for record in read_jsonl(tmp_path / "r.jsonl")] == ["rated", "unreadable"]
    assert json.loads((tmp_path / "r.json").read_text())["difficulties"] == {"easy": 1}
