"""Loaders of broken files give one line with file, line and field, and leave nothing half-written."""

import json

import pytest

from swelab.jobs.journal import Journal, read_journal
from swelab.records import InputError, digest, read_json, read_jsonl, write_json, write_jsonl
from swelab.records.task_records import Task
from swelab.rollouts.predictions import load_predictions
from swelab.tasks.task_rows import read_tasks

TASK = Task.of(
    {
        "instance_id": "o__r.12345678.func_pm_op__abcd1234",
        "repo": "swelab/o__r.12345678",
        "patch": "--- a/x\n+++ b/x\n",
        "problem_statement": "x fails",
        "FAIL_TO_PASS": ["tests/test_x.py::test_x"],
        "PASS_TO_PASS": [],
        "image_name": "swelab/r",
    }
)


def fault(function, *arguments):
    with pytest.raises(InputError) as caught:
        function(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def tasks_file(tmp_path, rows):
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(rows))
    return path


def test_tasks_are_read_with_their_extra_keys(tmp_path):
    rows = list(read_tasks(tasks_file(tmp_path, [TASK | {"extra": 1}])))
    assert rows[0]["extra"] == 1


def test_missing_and_broken_json(tmp_path):
    assert "no such file" in fault(read_json, tmp_path / "none.json")
    path = tmp_path / "x.json"
    path.write_text('{"a": 1,\n oops}')
    assert "line 2" in fault(read_json, path)
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-16" in fault(read_json, path)


def test_truncated_jsonl_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": ')
    text = fault(lambda: list(read_jsonl(path)))
    assert "line 2" in text and "cut short" in text
    path.write_text("[1]\n")
    assert "a list" in fault(lambda: list(read_jsonl(path)))
    path.write_bytes(b'{"a": "\xff"}\n')
    assert "UTF-8" in fault(lambda: list(read_jsonl(path)))


def test_writing_is_atomic(tmp_path):
    path = tmp_path / "out.jsonl"
    write_jsonl(path, [{"a": 1}])

    def rows():
        yield {"a": 2}
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_jsonl(path, rows())
    assert path.read_text() == '{"a": 1}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


def test_lone_surrogates_survive(tmp_path):
    path = tmp_path / "out.jsonl"
    write_jsonl(path, [{"patch": "caf\udce9"}])
    assert next(read_jsonl(path))["patch"] == "caf\udce9"
    write_json(path, {"patch": "\ud800"})
    assert read_json(path)["patch"] == "\ud800"


def test_digest_ignores_key_order():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


PREDICTION = {"instance_id": "a", "model_name_or_path": "m", "model_patch": None}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([PREDICTION]),
        json.dumps({"a": PREDICTION}),
        json.dumps({"a": {k: v for k, v in PREDICTION.items() if k != "instance_id"}}),
        json.dumps(PREDICTION) + "\n" + json.dumps(PREDICTION | {"instance_id": "b"}) + "\n",
        json.dumps(PREDICTION) + "\n",
    ],
)
def test_predictions_in_every_shape(tmp_path, text):
    path = tmp_path / "preds.json"
    path.write_text(text)
    assert load_predictions(path)["a"]["model_patch"] is None


def test_journal_recovers_a_cut_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.append({"key": "a", "n": 1})
        journal.append({"key": "b", "n": 2})
        journal.append({"key": "a", "n": 3})
    path.write_bytes(path.read_bytes() + b'{"key": "c", "n"')
    with Journal(path) as journal:
        assert sorted(journal) == ["a", "b"]
        assert journal.get("a")["n"] == 3
        journal.append({"key": "c", "n": 4})
        assert journal.get("c")["n"] == 4
    assert len(path.read_text().splitlines()) == 4


def test_journal_is_for_one_process(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path):
        assert "in use" in fault(Journal, path)


def test_a_damaged_line_of_a_journal_counts_as_absent(tmp_path, capsys):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        for key in "abc":
            journal.append({"key": key, "value": 1})
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged in (
        lines[1][:5] + b"\n",
        b"\0" * 30 + b"\n",
        b"\n",
        b"[]\n",
        b'{"key": 1}\n',
        lines[1][:9] + lines[2],
    ):
        path.write_bytes(lines[0] + damaged + lines[2])
        with Journal(path) as journal:
            assert list(journal) == ["a", "c"] and journal.get("c")["value"] == 1
            journal.append({"key": "b", "value": 2})
        assert "journal.jsonl: 1 damaged lines (the first is line 2)" in capsys.readouterr().err
        with Journal(path) as journal:
            assert list(journal) == ["a", "c", "b"] and journal.get("b")["value"] == 2
        assert [row["key"] for row in read_journal(path)] == ["a", "c", "b"]
        capsys.readouterr()


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text("oops\n")
    assert "damaged" in fault(Journal, path)
    assert path.read_text() == "oops\n"
