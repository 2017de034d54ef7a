"""Slices of mini-swe-agent's runs are merged completely or not at all, and losses are tried again."""

import json

import pytest

from swelab.outcomes import RolloutEnd
from swelab.records import InputError, read_json, write_json
from swelab.rollouts.mini_program import Program, address, ends, merge_slices, public_task, take_out
from tests.conftest import make_task


def slice_of(folder, **statuses):
    """Makes a folder as the program leaves it: instance -> exit status. None means no trajectory."""
    folder.mkdir()
    rows = {}
    for name, status in statuses.items():
        rows[name] = {"model_name_or_path": "m", "instance_id": name, "model_patch": f"patch of {name}"}
        if status:
            (folder / name).mkdir()
            record = {"info": {"exit_status": status, "submission": ""}}
            (folder / name / f"{name}.traj.json").write_text(json.dumps(record))
    write_json(folder / "preds.json", rows)
    return folder


def test_slices_are_merged_in_the_order_of_the_tasks(tmp_path):
    one = slice_of(tmp_path / "one", c="Submitted", a="LimitsExceeded")
    two = slice_of(tmp_path / "two", b="Submitted")
    found = merge_slices([two, one], ["a", "b", "c"])
    assert [(name, row.model_patch, row.outcome) for name, row in found.items()] == [
        ("a", "patch of a", RolloutEnd.STEP_LIMIT),
        ("b", "patch of b", RolloutEnd.SUBMITTED),
        ("c", "patch of c", RolloutEnd.SUBMITTED),
    ]


def test_what_is_there_twice_or_lost_or_lacking_is_named(tmp_path):
    one = slice_of(tmp_path / "one", a="Submitted", b="APIConnectionError")
    two = slice_of(tmp_path / "two", a="Submitted", x="Submitted")
    with pytest.raises(InputError) as fault:
        merge_slices([one, two], ["a", "b", "c"])
    told = str(fault.value)
    for word in ("1 in two slices, such as a", "1 lost", "such as b", "1 in none, such as c", "such as x"):
        assert word in told
    with pytest.raises(InputError, match="holds no preds.json"):
        merge_slices([tmp_path], ["a"])


def test_lost_attempts_are_taken_out_for_the_next_run(tmp_path):
    folder = slice_of(tmp_path / "one", a="Submitted", b="APIConnectionError", c=None, d="TimeExceeded")
    assert ends(folder)["b"] == RolloutEnd.MODEL_LOST and ends(folder)["d"] == RolloutEnd.TIME_LIMIT
    assert take_out(folder) == ["b", "c"]
    assert list(read_json(folder / "preds.json")) == ["a", "d"] and take_out(folder) == []


def test_the_program_is_given_no_answer_and_no_key(tmp_path):
    row = public_task(make_task() | {"verifier_tar": "x", "solution_tar": "x"})
    answers = {"patch", "FAIL_TO_PASS", "PASS_TO_PASS", "hint", "verifier_tar", "solution_tar"}
    assert not answers & set(row) and row["instance_id"]
    program = Program("http://h:30000", "mine", tmp_path, ("a.yaml",), part="0:5", sandboxes=False)
    command = program.command(tmp_path / "data")
    assert command[command.index("--slice") + 1] == "0:5"
    assert 'model.model_kwargs.api_base="http://h:30000/v1"' in command
    assert command[command.index("--environment-class") + 1] == "docker"
    assert address("http://h/v1/") == "http://h/v1"
    with pytest.raises(InputError, match="--sglang-url"):
        address("h:30000")
