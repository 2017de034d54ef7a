"""Several files of rows as one, compared with swesmith's combine_trajs and its recorded output."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from swelab.records import InputError
from swelab.sft.rows.combine import combine
from swelab.sft.rows.styles import style_of_row

ROOT = Path(__file__).resolve().parents[4]
WROTE = "6007f367a4318b383f05cec35dc26e04f5903bdb8b8e8fd9cdc59de113de9239"
"""SHA-256 of the output of swesmith 0.0.9's combine_trajs for `files`, three per instance, seed 24."""


@pytest.fixture
def files(tmp_path):
    """Two files of 40 instances with one to five rows each."""
    draw = random.Random(3)
    names = [f"o__r{n % 3}.0123abcd.{('pr', 'func_pm_x', 'lm_rewrite_')[n % 3]}_{n}" for n in range(40)]
    paths = [tmp_path / "a.xml.jsonl", tmp_path / "b.xml.jsonl"]
    for path in paths:
        rows = [
            {"messages": [{"role": "user", "content": f"\u00e9 {name} {n}"}], "instance_id": name,
             "resolved": n != 1, "patch": path.name}
            for name in names for n in range(draw.randint(1, 5))
        ]  # fmt: skip
        draw.shuffle(rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


def run(*options):
    command = [sys.executable, "-m", "scripts.combine_trajs", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.full
def test_rows_and_their_order_are_those_that_the_peer_once_wrote(files, tmp_path):
    output = tmp_path / "all.jsonl"
    done = run(*files, "-o", output)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(output.read_bytes()).hexdigest() == WROTE
    told = json.loads((tmp_path / "metadata__all.json").read_text())
    rows = [json.loads(text) for text in output.read_text().splitlines()]
    total = sum(len(path.read_text().splitlines()) for path in files)
    assert told["num_trajs"] == len(rows) == total - told["dropped"]["over_per_instance"]
    assert set(told["bug_types_dist"]) == {"pr", "func_pm", "lm_rewrite_"}
    counts = {
        name: sum(row["instance_id"] == name for row in rows) for name in (r["instance_id"] for r in rows)
    }
    assert max(counts.values()) == 3 and len(counts) == 40


def test_only_resolved_rows(files, tmp_path):
    facts = combine(files, tmp_path / "all.jsonl", 99, 0, resolved_only=True)
    rows = [json.loads(text) for text in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert all(row["resolved"] for row in rows) and facts["dropped"]["unresolved"] > 10
    assert facts["dropped"]["over_per_instance"] == 0


def test_another_seed_draws_otherwise(files, tmp_path):
    written = set()
    for seed in (1, 2, 1):
        combine(files, tmp_path / "all.jsonl", 3, seed)
        written.add((tmp_path / "all.jsonl").read_bytes())
    assert len(written) == 2


def test_faults_are_one_line(files, tmp_path):
    bad = tmp_path / "bad.jsonl"
    for data, fault in [
        (b"{", "not JSON"),
        (b"[]", "a list"),
        (b'{"instance_id": 3}', "no text instance_id"),
        (b"\xff", "not UTF-8"),
    ]:
        bad.write_bytes(data)
        with pytest.raises(InputError, match=fault) as error:
            combine([bad], tmp_path / "all.jsonl", 1, 0)
        assert "\n" not in str(error.value) and not (tmp_path / "all.jsonl").exists()
    for options, fault in [
        ([tmp_path / "none", "-o", tmp_path / "x"], "cannot be read"),
        ([files[0], "-o", files[0]], "is one of the files"),
        ([files[0], "-o", tmp_path / "x", "-m", 0], "at least 1"),
    ]:
        done = run(*options)
        assert done.returncode == 2 and fault in done.stderr and len(done.stderr.splitlines()) == 1


def test_two_styles_of_actions_are_not_mixed(tmp_path):
    texts = {"a": "<function=bash>\nls\n</function>", "b": "```\nls\n```"}
    for name, text in texts.items():
        row = {"messages": [{"role": "assistant", "content": text}], "instance_id": name}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    done = run(*(tmp_path / f"{name}.jsonl" for name in texts), "-o", tmp_path / "all.jsonl")
    assert done.returncode == 2 and not (tmp_path / "all.jsonl").exists()
    assert "actions are written as xml (" in done.stderr and "a.jsonl, line 1) and ticks (" in done.stderr


@pytest.mark.parametrize(
    ("message", "style"),
    [
        ({"content": "<function=bash>\n</function>\n```\nls\n```"}, "xml"),
        ({"content": "I look.\n\n```\nls\n```"}, "ticks"),
        ({"content": "<b>", "tool_calls": [{"id": "call_1"}]}, "tool"),
        ({"content": '{"command": "ls"}'}, "text"),
        ({"content": "```json\n{}\n```;"}, "text"),
        ({"content": None}, "text"),
    ],
)
def test_style_of_a_row(message, style):
    """An observation that quotes another form does not decide, and an unknown form is no `ticks`."""
    quote = {"role": "user", "content": "<function=bash>"}
    assert style_of_row([quote, {"role": "assistant", **message}]) == style
