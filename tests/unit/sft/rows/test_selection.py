"""Gates between resolved trajectories and rows: criteria, choice, over-long conversations, their counts."""

import hashlib
import io
import itertools
import json
import subprocess
import sys
from collections import Counter

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.records import check, read_json, write_json, write_jsonl
from swelab.records.attempt_records import Message, Trajectory
from swelab.records.training_records import RowMessage, SftRow
from swelab.rollouts.recorded_trajectories import read_recording
from swelab.sft.rows.chat_template import ChatTemplate, PlainRows
from swelab.sft.rows.dataset import GradeFacts, build_dataset, exchanges, spans
from swelab.sft.rows.lengths import ChatTokenizer, Length, stats
from swelab.sft.rows.selection import Candidate, choose, edits_tests
from swelab.sft.rows.styles import Style
from tests.toy_checkpoint import make_checkpoint
from tests.unit.recorded_runs import (
    PATCH,
    acted,
    asked,
    mini_text,
    seen,
    system,
    trajectory,
    usual,
    write_mini,
    write_run,
)
from tests.unit.sft.rows.test_dataset import trajectory as spoken

TEMPLATE = """{% if tools %}<|im_start|>system
{{ messages[0].content }}
Tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant
{{ m.content }}{% for call in m.tool_calls or [] %}
[call {{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}<|im_end|>
{% elif m.role == 'system' %}{% if not tools %}<|im_start|>system
{{ m.content }}<|im_end|>
{% endif %}{% else %}<|im_start|>user
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}"""
"""A template that we wrote. Real models have similar ones."""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = make_checkpoint(tmp_path_factory.mktemp("base") / "toy")
    write_json(folder.parent / "toy.json", {})
    settings = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", settings | {"chat_template": TEMPLATE})
    return folder


@pytest.fixture(scope="module")
def tokenizer(base):
    return ChatTokenizer(base)


def selection(**changes):
    return recipes.complete(SFT, {"base": "x", "selection": changes}, "r").selection


def build(rows, tokenizer, style=None, template=None, thoughts=None, **changes):
    grades = {("scripted", "", row.instance_id): GradeFacts("resolved", True, None) for row in rows}
    chosen = selection(**{"max_tokens": 10_000, **changes})
    return build_dataset(iter(rows), grades, chosen, tokenizer, io.BytesIO(), style, template, thoughts)


def recorded(tmp_path, content, name="a"):
    if "messages" in content:
        path = write_mini(tmp_path, name, content) / f"{name}.traj.json"
    else:
        path = write_run(tmp_path, name, content) / f"{name}.traj"
    return Trajectory.of(read_recording(path) | {"policy": "scripted", "subset": "s"})


@pytest.mark.parametrize(
    ("change", "criteria", "reason"),
    [
        ({"outcome": "cost_limit"}, {"outcomes": ["submitted"]}, "ended_by_cost_limit"),
        ({"model_patch": " \n"}, {"nonempty_patch": True}, "no_patch"),
        ({"model_patch": PATCH.replace("pkg/a.py", "tests/a.py")}, {"no_test_edits": True}, "edits_tests"),
    ],
)
def test_criteria_are_off_until_asked_for(tokenizer, change, criteria, reason):
    rows = [spoken("a", 0, **change), spoken("b", 1, model_patch=PATCH)]
    assert build(rows, tokenizer).facts(9)["kept"] == 2
    facts = build(rows, tokenizer, **criteria).facts(9)
    assert facts["dropped"] == {reason: 1} and facts["kept"] == 1
    gates = {gate["gate"]: gate for gate in facts["gates"]}
    assert gates["criteria"] == {"gate": "criteria", "in": 2, "out": 1, "dropped": {reason: 1}}


def test_gates_add_up(tokenizer):
    rows = [spoken("a", n) for n in (1, 1, 2, 3)] + [spoken("b", 4), spoken("lost", outcome="not_recorded")]
    rows[3]["messages"][1]["content"] += " again" * 900
    told = build(rows, tokenizer, max_tokens=600).facts(600)
    assert [gate["in"] for gate in told["gates"][1:]] == [gate["out"] for gate in told["gates"][:-1]]
    assert (
        told["gates"][0]["in"] == told["trajectories"] == 6 and told["gates"][-1]["out"] == told["kept"] == 2
    )
    assert told["dropped"] == {"duplicate": 1, "not_recorded": 1, "over_per_instance": 1, "too_long": 1}


@pytest.mark.parametrize(
    ("name", "is_test"),
    [
        ("tests/a.py", True),
        ("pkg/test_a.py", True),
        ("pkg/a_test.go", True),
        ("pkg/conftest.py", True),
        ("src/Test/x.c", True),
        ("pkg/testing/a.py", True),
        ("pkg/latest.py", False),
        ("pkg/contest.py", False),
        ("tested/a.py", False),
    ],
)
def test_which_files_are_tests(name, is_test):
    assert edits_tests(f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n") is is_test


def candidate(instance, number):
    length = Length(tokens=10 + number, assistant_tokens=5, turns=1)
    digest = hashlib.sha256(f"{instance}{number}".encode()).hexdigest()
    return Candidate(instance, length.tokens, f"p{number % 2}", digest, length, ((0, length), (9, length)))


def test_at_most_k_of_an_instance_and_each_as_likely():
    """In any order and any runs. Rows that one conversation was split into count as one."""
    pool = [candidate(name, number) for name in ("a", "b") for number in range(8)]
    drawn = Counter()
    for seed in range(400):
        settings = selection(per_instance=3, choice="random", seed=seed)
        fates = list(choose(pool[:: 1 if seed % 2 else -1], settings))
        kept = [each for each, fate in fates if fate == "kept"]
        assert Counter(each.instance_id for each in kept) == {"a": 3, "b": 3}
        assert Counter(fate for _, fate in fates)["over_per_instance"] == 10
        again = {each.digest for each, fate in choose(pool, settings) if fate == "kept"}
        assert again == {each.digest for each in kept}
        drawn.update((each.instance_id, each.tokens) for each in kept)
    assert len(drawn) == 16 and all(110 < count < 190 for count in drawn.values()), drawn
    shortest = [each.tokens for each, fate in choose(pool, selection(per_instance=3)) if fate == "kept"]
    assert sorted(shortest) == [10, 10, 11, 11, 12, 12]
    fewer = [fate for _, fate in choose(pool[:2], selection(per_instance=3, choice="random"))]
    assert fewer == ["kept", "kept"]


def test_spans():
    """Every kind of over-length, compared with the recipe's policy for it."""
    for *sizes, answer in itertools.product([1, 2, 5], repeat=5):
        spoken = [max(1, size - answer) for size in sizes[1:]]
        for limit in range(1, 16):
            costs, room = sizes[1:], limit - sizes[0]
            assert spans(sizes, spoken, "drop", limit) == []
            fits = [n for n in (1, 2, 3) if sum(costs[: n - 1]) + spoken[n - 1] <= room]
            assert spans(sizes, spoken, "keep_truncate", limit) == ([(0, fits[-1])] if fits else [])
            left = spans(sizes, spoken, "truncate_left_of_last_turn", limit)
            fits = [n for n in range(3) if sum(costs[n:]) <= room]
            assert left == ([(fits[0], 3)] if fits else [])
            split = spans(sizes, spoken, "split", limit)
            if max(costs) > room:
                assert split == []
            else:
                assert [n for start, end in split for n in range(start, end)] == [0, 1, 2]
                assert all(sum(costs[start:end]) <= room for start, end in split)


def long_run(turns=12):
    said = [
        m
        for n in range(turns)
        for m in (acted(f"Step {n}.", "bash", {"command": f"ls {n}"}), seen("x " * 20))
    ]
    return trajectory([system(), asked(), *said, acted("Done.", "submit", {}), seen(PATCH)])


@pytest.mark.parametrize("style", ["xml", "tool"])
def test_over_long_conversations(tmp_path, base, tokenizer, style):
    row = recorded(tmp_path, long_run())
    settings = {"style": Style(style), "template": ChatTemplate(base)}
    (whole,) = build([row], tokenizer, **settings).rows()
    head, limit = 2, (1800 if style == "tool" else 500)

    def rows(policy):
        built = build([row], tokenizer, **settings, max_tokens=limit, over_long=policy)
        assert all(length.tokens <= limit for length in built.lengths())
        return [found["messages"] for found in built.rows()], built.facts(limit)

    assert rows("drop")[1]["dropped"] == {"too_long": 1}
    (kept,), facts = rows("keep_truncate")
    assert kept == whole["messages"][: len(kept)] and 3 <= len(kept) < len(whole["messages"])
    assert kept[-1]["role"] == "assistant" and facts["notes"] == {"keep_truncate_rows": 1}
    one_more = ChatTemplate(base).plain(whole["messages"][: len(kept) + 2], whole.get("tools", []))
    assert tokenizer.measure(one_more).tokens > limit
    (left,), facts = rows("truncate_left_of_last_turn")
    assert left[:head] == whole["messages"][:head] and left[-1] == whole["messages"][-1]
    assert left[head:] == whole["messages"][-len(left[head:]) :] and 2 < len(left) < len(whole["messages"])
    pieces, facts = rows("split")
    assert len(pieces) > 1 and facts["kept"] == 1 and facts["rows"] == len(pieces)
    assert facts["notes"] == {"split_rows": len(pieces)}
    turns = [m for m in whole["messages"] if m["role"] == "assistant"]
    assert [m for piece in pieces for m in piece if m["role"] == "assistant"] == turns
    assert all(piece[:head] == whole["messages"][:head] for piece in pieces)
    built = build([row], tokenizer, **settings, max_tokens=limit, over_long="split")
    assert [found["part"] for found in built.rows()] == [[n + 1, len(pieces)] for n in range(len(pieces))]


@pytest.mark.parametrize("style", ["text", "tool", "xml"])
@pytest.mark.parametrize(
    ("thoughts", "beside", "inside"),
    [(None, [0, 0], True), ("keep", [1, 1], True), ("last", [0, 1], False), ("drop", [0, 0], False)],
)
def test_a_recipe_chooses_which_thoughts_are_trained(tmp_path, tokenizer, style, thoughts, beside, inside):
    first = acted("<think>inside</think>Look.", "bash", {"command": "ls"}) | {"reasoning_content": "beside"}
    last = acted("Done.", "submit", {}) | {"thinking_blocks": [{"type": "thinking", "thinking": "beside"}]}
    row = recorded(tmp_path, trajectory([system(), asked(), first, seen("x"), last, seen(PATCH)]))
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content }}{{ m.content }}"
    template += "{% for call in m.tool_calls %}{{ call }}{% endfor %}{{ tools }}<|im_end|>\n{% endfor %}"
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": template})
    if style == "text":
        row["messages"] = [each | ({"role": "user"} if each.role == "tool" else {}) for each in row.messages]
    chosen = None if style == "text" else Style(style)
    built = build([row], tokenizer, chosen, ChatTemplate(tmp_path), thoughts=thoughts)
    (found,) = built.rows()
    turns = [each for each in found.messages if each.role == "assistant"]
    assert [each.reasoning_content == "beside" for each in turns] == list(map(bool, beside))
    assert ("inside" in turns[0].content) == inside and "Look." in turns[0].content
    plain = PlainRows(tmp_path).of(found)
    assert built.lengths()[0].tokens == len(tokenizer.encode(plain)[0])


def test_what_there_is_to_learn(tmp_path, tokenizer):
    empty = spoken("a")
    for message in empty["messages"]:
        message["content"] = "" if message["role"] == "assistant" else message["content"]
    half = spoken("b")
    half["messages"][1]["content"] += "\ud800"
    assert build([empty, half], tokenizer).facts(9)["dropped"] == {
        "half_a_character_in_text": 1,
        "nothing_to_learn": 1,
    }
    masked = trajectory([*usual()[:2], acted("Oops.", "bash", "{"), seen("x " * 200), *usual()[2:]])
    row, style = recorded(tmp_path, masked), Style("xml", malformed_turns="mask")
    (whole,) = build([row], tokenizer, style).rows()
    head, first = (sum(tokenizer.sizes(whole["messages"])[n] for n in g) for g in ([0, 1], [2, 3]))
    built = build([row], tokenizer, style, max_tokens=head + first, over_long="split")
    assert built.facts(9)["notes"]["split_without_a_turn_to_learn"] == 1
    assert [length.turns for length in built.lengths()] == [3] and built.lengths()[0].assistant_tokens
    built = build([row], tokenizer, style, max_tokens=head + first, over_long="keep_truncate")
    assert built.facts(9)["dropped"] == {"too_long": 1}


def test_ids_of_calls_do_not_hide_a_duplicate(tmp_path, base, tokenizer):
    text = json.dumps(trajectory())
    runs = [json.loads(text.replace("call_", f"toolu_{number}_")) for number in range(2)]
    rows = [recorded(tmp_path / str(number), run) for number, run in enumerate(runs)]
    assert rows[0]["messages"] != rows[1]["messages"]
    for style in ("xml", "ticks", "tool"):
        built = build(rows, tokenizer, Style(style), ChatTemplate(base), per_instance=2)
        assert built.facts(9)["dropped"] == {"duplicate": 1}


def test_exchanges():
    roles = ["system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    assert exchanges([RowMessage.of({"role": role}) for role in roles]) == [[0, 1], [2, 3, 4], [5, 6], [7]]
    assert exchanges([RowMessage.of({"role": "user"})]) == [[0]]


def test_a_masked_turn_is_not_counted(tmp_path, tokenizer):
    bad = trajectory([*usual()[:2], acted("Oops.", "bash", "{"), seen("no"), *usual()[2:]])
    style = Style("xml", malformed_turns="mask")
    built = build([recorded(tmp_path, bad)], tokenizer, style)
    (row,), (length,) = built.rows(), built.lengths()
    check(row, SftRow, "row")
    weights = [m.get("weight", 1) for m in row["messages"] if m["role"] == "assistant"]
    assert weights == [0, 1, 1, 1] and length.turns == 4 and len(length.turn_tokens) == 4
    ids, trained = tokenizer.encode(row.messages)
    assert (len(ids), sum(trained)) == (length.tokens, length.assistant_tokens)
    assert sum(length.turn_tokens[1:]) - tokenizer.newline == length.assistant_tokens
    assert built.facts(9)["notes"] == {"bad_arguments_masked": 1}


def test_a_masked_turn_in_plain_text(tmp_path, tokenizer):
    row = recorded(tmp_path, mini_text())
    told = {"role": "user", "content": "One block.", "extra": {"interrupt_type": "FormatError"}}
    row["messages"][2:2] = [RowMessage(role="assistant", content="?"), Message.of(told)]
    assert build([row], tokenizer).facts(9)["dropped"] == {"malformed_turn": 1}
    (found,) = build([row], tokenizer, malformed_turns="mask").rows()
    assert [m.get("weight") for m in found["messages"] if m["role"] == "assistant"] == [0, None, None]


REFUSALS = [
    ("No replacement was performed, old_str `x` did not appear verbatim in /a.", True),
    ("OBSERVATION:\nThe path /a b does not exist. Please provide a valid path.", True),
    ("OBSERVATION:\nInvalid `view_range`: [9, 2].", True),
    ("bash: line 1: rgrep: command not found\n", True),
    ("exit 1\nNo replacement was performed: nothing changed\n", True),
    ("<returncode>1</returncode>\n<output>\nNo replacement was performed: no\n</output>", True),
    ("The command 'sleep\n999' was cancelled because it took more than 300 seconds.", True),
    ("E   assert 1 == 2\n1 failed", False),
    ("a.py: No replacement was performed", False),
    ("The path is a directory name", False),
]


@pytest.mark.parametrize(("answer", "failed"), REFUSALS)
@pytest.mark.parametrize("style", ["xml", "tool", None])
def test_turns_that_were_not_carried_out_are_masked(tmp_path, base, tokenizer, style, answer, failed):
    turns = [system(), asked(), acted("t", "bash", {"command": "x"}), seen(answer), *usual()[2:]]
    row = recorded(tmp_path, trajectory(turns))
    if style is None:
        row["messages"] = [m | {"role": "user"} if m.role == "tool" else m for m in row.messages]

    def weights(choice):
        chosen = Style(style, failed_turns=choice) if style else None
        built = build([row], tokenizer, chosen, ChatTemplate(base), failed_turns=choice)
        (found,) = built.rows()
        notes = built.facts(9)["notes"].get("failed_masked", 0)
        return [m.get("weight", 1) for m in found["messages"] if m["role"] == "assistant"], notes

    assert weights("learn") == ([1, 1, 1, 1], 0)
    assert weights("mask") == (([0, 1, 1, 1], 1) if failed else ([1, 1, 1, 1], 0))


def test_codes_of_mini_tell_what_was_not_carried_out(tmp_path, tokenizer):
    row = recorded(tmp_path, mini_text())
    for extra, failed in [
        ({"returncode": 127}, True),
        ({"exception_info": "timed out"}, True),
        ({"returncode": 1}, False),
        ({"returncode": 0, "exception_info": ""}, False),
    ]:
        row["messages"][3]["extra"] = extra
        (found,) = build([row], tokenizer, failed_turns="mask").rows()
        assert [m.get("weight", 1) for m in found["messages"][2::2]] == [1 - failed, 1]


def test_tool_calls_are_measured_as_the_template_writes_them(tmp_path, base, tokenizer):
    built = build([recorded(tmp_path, trajectory())], tokenizer, Style("tool"), ChatTemplate(base))
    (row,), (length,) = built.rows(), built.lengths()
    check(row, SftRow, "row")
    plain = ChatTemplate(base).plain(row.messages, row.tools)
    assert [m["role"] for m in plain] == ["system", "user"] + ["assistant", "user"] * 2 + ["assistant"]
    assert plain[2]["content"] == 'Let me look.[call bash {"command": "cat pkg/a.py"}]'
    assert '"str_replace_editor"' in plain[0]["content"]
    assert length.tokens == len(tokenizer.encode(plain)[0])


def test_stats_and_their_validator(tmp_path, tokenizer):
    data, path = tmp_path / "dataset.jsonl", tmp_path / "dataset.stats.json"
    built = build([spoken(f"i{n}", n) for n in range(4)], tokenizer)
    write_jsonl(data, built.rows())
    told = stats(data, built.lengths(), 50, "drop")
    assert told["num_samples"] == 4 and told["gt_50"] == 4 and told["file"] == str(data)
    assert told["per_turn"]["turns_of_a_row"]["max"] == 2 and told["per_turn"]["tokens"]["num_samples"] == 8

    def validate(**changes):
        write_json(path, {**told, **changes})
        command = [
            sys.executable,
            "-m",
            "scripts.validate_len_stats",
            "--data_file",
            data,
            "--stats_file",
            path,
        ]
        done = subprocess.run([*command, "--max_seq_len", "50"], capture_output=True, text=True)
        assert len(done.stderr.splitlines()) == (done.returncode != 0)
        return done.returncode, done.stdout or done.stderr

    code, out = validate(over_long="keep_truncate")
    assert code == 0 and out.splitlines() == [
        f"[validate_len_stats] {text}"
        for text in (
            "Validation passed.",
            f"data_file={data}",
            f"stats_file={path}",
            "over_50=4/4 (100.00%)",
            "policy=keep_all_truncate (training max_seq_len=50)",
        )
    ]
    for change, fault in [
        ({"file": str(path)}, f"match target data file. stats.file = {path} data_file = {data}"),
        ({"file": None}, f"{path}: Invalid stats file: missing string field `file`."),
        ({"num_samples": 3}, "between stats and data file. stats.num_samples = 3 data_file lines = 4"),
        ({"num_samples": "4"}, "Invalid stats file: missing int field `num_samples`."),
        ({"gt_50": None}, "Invalid stats file: missing int field `gt_50`."),
        ({"gt_50": True}, "Invalid stats file: missing int field `gt_50`."),
    ]:
        code, out = validate(**change)
        assert code == 2 and fault in out
    data.rename(tmp_path / "other")
    code, out = validate()
    assert code == 2 and f"Data file not found: {data}" in out
