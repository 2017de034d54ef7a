"""Rejection sampling: the selected trajectories, their order, and counts of all dropped ones."""

import hashlib
import io
import json
import sys

import pytest

from swelab.configs.kinds.sft import Selection
from swelab.records import InputError, read_json, read_jsonl, sha256_file, write_jsonl
from swelab.records.attempt_records import Grade, Trajectory
from swelab.sft.rows.dataset import build_dataset, grade_facts, load_verdicts
from swelab.sft.rows.lengths import ChatTokenizer, distribution
from tests.conftest import run_program
from tests.toy_checkpoint import conversations, make_checkpoint

SELECTION = {"max_tokens": 1000, "per_instance": 1, "malformed_turns": "drop"}
PATCH = "--- a\n+++ b\n"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("base") / "toy")


@pytest.fixture(scope="module")
def tokenizer(base):
    return ChatTokenizer(base)


def trajectory(name, number=0, **changes):
    turns = conversations(number + 1)[number]["messages"]
    messages = [{**turn, "extra": {"cost": 0}} for turn in turns]
    messages.append(
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": PATCH}}
    )
    row = {
        "instance_id": name,
        "policy": "scripted",
        "subset": "drill",
        "outcome": "submitted",
        "model_patch": PATCH,
        "messages": messages,
        "info": {},
        "trajectory_format": "mini-swe-agent-1.1",
    }
    return Trajectory.of({**row, **changes})


def grade(name, status="resolved", **changes):
    patch = hashlib.sha256(PATCH.encode()).hexdigest()
    row = Grade.of(
        {"instance_id": name, "policy": "scripted", "status": status, "resolved": status == "resolved"}
    )
    return row | {"patch_sha256": patch, **changes}


def build(trajectories, grades, tokenizer, **changes):
    verdicts = {(row.policy, "", row.instance_id): grade_facts(row) for row in grades}
    return build_dataset(
        iter(trajectories), verdicts, Selection(**SELECTION | changes), tokenizer, io.BytesIO()
    )


def test_a_resolved_conversation_is_kept_whole_but_for_the_exit(tokenizer):
    (row,) = build([trajectory("a")], [grade("a")], tokenizer).rows()
    assert row == {
        "messages": conversations(1)[0]["messages"],
        "instance_id": "a",
        "policy": "scripted",
        "resolved": True,
    }


@pytest.mark.parametrize(
    ("changes", "graded", "reason"),
    [
        ({"outcome": "sandbox_lost", "messages": []}, None, "sandbox_lost"),
        ({"outcome": "model_lost"}, grade("a"), "model_lost"),
        ({}, None, "not_graded"),
        ({}, grade("a", "unresolved"), "unresolved"),
        ({}, grade("a", "empty_patch"), "empty_patch"),
        ({}, grade("a", "apply_failed"), "apply_failed"),
        ({}, grade("a", "timeout"), "timeout"),
        ({}, grade("a", "infra_error"), "infra_error"),
        ({"model_patch": "another"}, grade("a"), "grade_of_another_patch"),
        ({"messages": [{"role": "user", "content": "x"}]}, grade("a"), "no_assistant_turn"),
        ({"messages": [{"role": "assistant", "content": [{"type": "image"}]}]}, grade("a"), "not_plain_text"),
        (
            {"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "x"}]},
            grade("a"),
            "not_plain_text",
        ),
        (
            {"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "x"}]},
            grade("a"),
            "special_token_in_text",
        ),
    ],
)
def test_every_drop_has_its_reason(tokenizer, changes, graded, reason):
    built = build(
        [trajectory("a", **changes), trajectory("b", 1)], [grade("b"), *filter(None, [graded])], tokenizer
    )
    facts = built.facts(1000)
    assert facts["dropped"] == {reason: 1} and facts["kept"] == 1 and facts["trajectories"] == 2


def test_failed_attempts_become_rows_where_nothing_is_filtered(tokenizer):
    """Forged patches and lost attempts do not."""
    ends = ["resolved", "unresolved", "timeout", "tampered", "suspect", "infra_error"]
    rows = [trajectory(end, number) for number, end in enumerate([*ends, "doubtful"])]
    grades = [*(grade(end, end) for end in ends), grade("doubtful", "unresolved", doubt="it forges tests")]
    built = build(rows, grades, tokenizer, unresolved=True)
    assert {row.instance_id: row.resolved for row in built.rows()} == {
        "resolved": True,
        "unresolved": False,
        "timeout": False,
    }
    facts = built.facts(1000)
    assert (facts["kept"], facts["kept_unresolved"]) == (3, 2)
    assert facts["dropped"] == {"tampered": 1, "suspect": 2, "infra_error": 1}


def test_rows_of_witnessed_patches_alone(tokenizer):
    rows = [trajectory(name, count) for count, name in enumerate("abcd")]
    told = [grade(name, witness={"standing": s}) for name, s in zip("ab", ("witnessed", "weakly_witnessed"))]
    grades = [*told, grade("c"), grade("d", "unresolved")]
    assert build(rows, grades, tokenizer).facts(9)["dropped"] == {"unresolved": 1}
    kept = build(rows, grades, tokenizer, evidence="witnessed")
    assert [row.instance_id for row in kept.rows()] == ["a"]
    assert kept.facts(9)["dropped"] == {"not_witnessed": 1, "unresolved": 1, "weakly_witnessed": 1}


def test_limits_duplicates_and_shares_of_an_instance(tokenizer):
    long = trajectory("a", 2)
    long["messages"][1]["content"] += " again" * 400
    rows = [long, trajectory("a", 1), trajectory("a", 1), trajectory("a", 3), trajectory("b", 1)]
    built = build(rows, [grade("a"), grade("b")], tokenizer)
    facts = built.facts(1000)
    assert facts["dropped"] == {"duplicate": 2, "over_per_instance": 1, "too_long": 1}
    assert facts["kept"] + sum(facts["dropped"].values()) == facts["trajectories"] == 5
    assert facts["lengths_of_resolved"]["gt_1000"] == 1 and facts["lengths_of_kept"]["gt_1000"] == 0
    assert build(rows, [grade("a"), grade("b")], tokenizer, per_instance=2).facts(1000)["kept"] == 2


@pytest.mark.parametrize("choice", ["shortest", "random"])
def test_samples_of_an_instance_are_chosen_among_in_whatever_order_they_come(tokenizer, tmp_path, choice):
    rows = [trajectory("a", number % 3) | ({"sample": number} if number else {}) for number in range(5)]
    grades = [grade("a") | ({"sample": number} if number else {}) for number in range(5)]
    grades[1] = grades[1] | {"status": "unresolved", "resolved": False}
    write_jsonl(tmp_path / "g.jsonl", grades)
    selection = Selection(**SELECTION | {"per_instance": 2, "choice": choice, "seed": 3})
    built = []
    for order in (rows, rows[::-1]):
        verdicts = load_verdicts([tmp_path / "g.jsonl"])
        built.append(build_dataset(order, verdicts, selection, tokenizer, io.BytesIO()))
    one, two = (list(each.rows()) for each in built)
    assert one == two and len(one) == 2
    assert built[0].facts(9)["dropped"] == {"duplicate": 1, "over_per_instance": 1, "unresolved": 1}
    assert {row.get("sample", 0) for row in one} < {0, 2, 4}


def test_assistant_tokens_are_those_of_assistant_turns(tokenizer):
    messages = conversations(1)[0]["messages"]
    ids, trained = tokenizer.encode(messages)
    text = tokenizer._tokenizer.decode([i for i, t in zip(ids, trained) if t], skip_special_tokens=False)
    assert text == (
        "<|im_start|>assistant\n```bash\ngrep -n f0 a.py\n```<|im_end|>\n"
        "<|im_start|>assistant\n```bash\necho done\n```<|im_end|>"
    )
    length = tokenizer.measure(messages)
    assert (length.tokens, length.assistant_tokens, length.turns) == (len(ids), sum(trained), 2)


def test_distribution():
    assert distribution([], 5) == {"num_samples": 0, "gt_5": 0}
    facts = distribution(list(range(1, 101)), 90)
    assert (facts["num_samples"], facts["gt_90"], facts["p50"], facts["max"], facts["total"]) == (
        100,
        10,
        51,
        100,
        5050,
    )


@pytest.mark.parametrize("text", ["", "{", '{"added_tokens": []}', '{"version": "1.0"}'])
def test_an_unreadable_tokenizer_is_refused_on_one_line(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError) as error:
        ChatTokenizer(tmp_path)
    assert "\n" not in str(error.value)


def test_one_instance_in_two_subsets(tokenizer, tmp_path):
    rows = [trajectory("a", 0, subset="one"), trajectory("a", 1, subset="two")]
    write_jsonl(tmp_path / "g.jsonl", [grade("a", subset="one"), grade("a", "unresolved", subset="two")])
    built = build_dataset(
        rows, load_verdicts([tmp_path / "g.jsonl"]), Selection(**SELECTION), tokenizer, io.BytesIO()
    )
    assert built.facts(9)["kept"] == 1 and built.facts(9)["dropped"] == {"unresolved": 1}


def test_the_script_writes_equal_bytes_and_counts_that_add_up(base, tmp_path):
    rows = [trajectory(f"i{number}", number) for number in range(12)]
    statuses = ["resolved", "resolved", "unresolved"]
    write_jsonl(tmp_path / "t1.jsonl", rows[:5])
    write_jsonl(tmp_path / "t2.jsonl", rows[5:])
    write_jsonl(tmp_path / "g.jsonl", [grade(r["instance_id"], statuses[n % 3]) for n, r in enumerate(rows)])
    (tmp_path / "system.txt").write_text("Be brief.\n")
    recipe = (
        f"base: toy\nselection: {{max_tokens: 400}}\nrows: {{style: ticks, system: {tmp_path}/system.txt}}\n"
    )
    (tmp_path / "r.yaml").write_text(recipe)
    (base.parent / "toy.json").write_text("{}")

    def run(name, *shards):
        out = tmp_path / name
        done = run_program(
            [sys.executable, "-m", "scripts.build_sft_dataset", "--trajectories", *shards]
            + [
                "--grades",
                tmp_path / "g.jsonl",
                "--base",
                base.parent / "toy.json",
                "--recipe",
                tmp_path / "r.yaml",
            ]
            + ["--dataset", out / "d.jsonl", "--manifest", out / "m.json", "--lengths", out / "l.tsv"]
        )
        assert done.returncode == 0, done.stderr
        return out

    one = run("one", tmp_path / "t1.jsonl", tmp_path / "t2.jsonl")
    two = run("two", tmp_path / "t2.jsonl", tmp_path / "t1.jsonl")
    assert (one / "d.jsonl").read_bytes() == (two / "d.jsonl").read_bytes()
    assert (one / "l.tsv").read_bytes() == (two / "l.tsv").read_bytes()
    facts = read_json(one / "m.json")
    assert (facts["trajectories"], facts["kept"], facts["dropped"]) == (12, 8, {"unresolved": 4})
    assert facts["inputs"]["texts"] == {f"{tmp_path}/system.txt": sha256_file(tmp_path / "system.txt")}
    assert len(list(read_jsonl(one / "d.jsonl"))) == 8
    table = (one / "l.tsv").read_text().splitlines()
    assert (
        table[0].split("\t") == ["instance_id", "tokens", "assistant_tokens", "turns", "fate"]
        and len(table) == 9
    )
    assert json.dumps(facts["lengths_of_resolved"])
