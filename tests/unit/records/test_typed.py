"""Typed records: attributes, rows that are written as they were read, and schemas made from classes."""

import pytest

from scripts.write_schemas import RECORDS
from swelab.records import InputError, as_record, line, read_records, write_jsonl
from swelab.records.attempt_records import Grade, ListedTests, Prediction, Trajectory
from swelab.records.score_records import Comparison
from swelab.records.task_records import KeptTask, Lock, Task
from swelab.records.typed import schema

ODD = '{"z": null, "model_name_or_path": "p", "further": {"b": 1.0, "a": 1' + "0" * 40 + "}, "
ODD += '"model_patch": "caf\\udce9", "instance_id": "a", "outcome": "submitted"}\n'
GRADE = Grade.of({"instance_id": "a", "status": "resolved", "resolved": True})


def test_a_row_is_written_again_byte_by_byte(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(ODD)
    (_, row), *_ = read_records([path], Prediction)
    assert row.model_patch == "caf\udce9" and row.sample == 0 and row["further"]["a"] == 10**40
    write_jsonl(tmp_path / "again.jsonl", [row])
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


def test_records_inside_records_are_typed():
    tests = {"FAIL_TO_PASS": {"success": ["t"], "failure": []}}
    grade = as_record(GRADE | {"tests_status": tests}, Grade, "it")
    assert isinstance(grade.tests_status.FAIL_TO_PASS, ListedTests)
    assert grade.tests_status.FAIL_TO_PASS.success == ["t"] and grade.tests_status.PASS_TO_PASS is None
    kept = {"instance_id": "a", "task": "0", "place": "1", "seconds": 2}
    lock = Lock.of({"kept": [kept], "flaky": []})
    assert isinstance(lock.kept[0], KeptTask) and lock.kept[0].place == "1" and lock.unjudged == ()


def test_a_record_that_is_made_holds_what_it_was_given_in_order():
    grade = Grade(status="resolved", resolved=True, instance_id="a")
    assert line(grade) == b'{"status": "resolved", "resolved": true, "instance_id": "a"}\n'
    assert grade.outcome == "submitted" and "outcome" not in grade
    assert Comparison.of({"from": "base", "to": "sft"}).from_policy == "base"


def test_a_record_cannot_be_set_by_attribute():
    with pytest.raises(AttributeError):
        Grade.of(GRADE).resolved = False


@pytest.mark.parametrize(
    "change, words",
    [
        ({"status": "won"}, ["rows.jsonl", "field status", "'won'", "valid grade"]),
        ({"tests_status": {"FAIL_TO_PASS": {"success": []}}}, ["tests_status.FAIL_TO_PASS", "'failure'"]),
        ({"seconds": -1}, ["field seconds", "minimum of 0"]),
        ({"resolved": "yes"}, ["field resolved", "'boolean'"]),
    ],
)
def test_a_fault_names_file_field_and_expectation(change, words):
    with pytest.raises(InputError) as caught:
        as_record(GRADE | change, Grade, "rows.jsonl")
    assert all(word in str(caught.value) for word in words), caught.value


def test_every_field_has_a_sentence():
    def properties(node):
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from properties(each)
        if isinstance(node, dict) and isinstance(node.get("properties"), dict) and node.get("description"):
            yield from node["properties"].items()

    for record in RECORDS:
        document = schema(record)
        assert not [name for name, told in properties(document) if not told.get("description")], record


def test_kinds_are_named_after_their_classes():
    assert [Trajectory.kind(), Task.kind()] == ["trajectory", "task"]
    assert {record.kind() for record in RECORDS} >= {"sft_row", "sft_pair", "verified_score", "lock"}
