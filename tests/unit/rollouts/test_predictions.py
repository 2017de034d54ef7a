"""SWE-agent's predictions are merged completely, or an error names the fault."""

import json

import pytest

from swelab.jobs.shards import belongs_to
from swelab.records import InputError, write_json, write_jsonl
from swelab.rollouts.predictions import load_predictions, merge_folders
from tests.conftest import run_python
from tests.unit.recorded_runs import PATCH, trajectory, write_run


def predicted(runs, name, patch=PATCH, **changes):
    row = {"model_name_or_path": "run", "instance_id": name, "model_patch": patch}
    return write_run(runs, name, trajectory(), patch, row | changes)


def fault(*arguments):
    with pytest.raises(InputError) as caught:
        merge_folders(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_all_of_several_folders_in_one_order(tmp_path):
    predicted(tmp_path / "one", "b")
    predicted(tmp_path / "two/deeper", "a", None)
    merged = merge_folders([tmp_path / "one", tmp_path / "two"], ["a", "b"])
    assert list(merged) == ["a", "b"]
    assert merged["a"]["model_patch"] == "" and merged["b"]["model_patch"] == PATCH
    done = run_python("-m", "scripts.merge_preds", tmp_path / "one", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert load_predictions(tmp_path / "one/preds.json") == merged


def test_what_is_amiss_is_named(tmp_path):
    runs = tmp_path / "runs"
    for name in "abcdefg":
        predicted(runs, name)
    predicted(tmp_path / "more", "c")
    assert "1 predicted more than once (c); expected one <id>.pred" in fault([runs, tmp_path / "more"])
    assert "2 without a prediction (x, y)" in fault([runs], [*"abcdefgxy"])
    assert "6 not of the tasks (b, c, d, e, f, ...)" in fault([runs], ["a"])
    write_run(runs, "begun", trajectory(exit_status=None))
    assert "1 without a prediction (begun)" in fault([runs])
    (tmp_path / "none").mkdir()
    assert "holds no prediction" in fault([tmp_path / "none"])
    assert "no such folder" in fault([tmp_path / "absent"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps({"instance_id": "b", "model_name_or_path": "m", "model_patch": ""}), "it is of b"),
        (json.dumps({"instance_id": "a", "model_name_or_path": "m"}), "'model_patch' is a required"),
        ('{"instance_id": "a", "mod', "not JSON"),
    ],
)
def test_a_file_that_is_no_prediction(tmp_path, text, words):
    predicted(tmp_path, "a")
    (tmp_path / "a/a.pred").write_text(text)
    assert words in fault([tmp_path]) and "a.pred" in fault([tmp_path])
    done = run_python("-m", "scripts.merge_preds", tmp_path)
    assert done.returncode == 2 and not (tmp_path / "preds.json").exists()


@pytest.mark.parametrize("layout", [list, lambda rows: {row["instance_id"]: row for row in rows}])
def test_half_a_character_is_a_fault_of_one_prediction(tmp_path, layout):
    """The half character may be in any field. All predictions are read, written and read again."""
    names = ("instance_id", "model_name_or_path", "model_patch")
    half = [dict.fromkeys(names, name) | {name: f"{name}\ud800"} for name in names]
    path = tmp_path / "preds.json"
    write_json(path, layout([*half, dict.fromkeys(names, "whole")]))
    read = load_predictions(path, belongs_to("000of001"))
    assert list(read.values()) == [*half, dict.fromkeys(names, "whole")]
    write_jsonl(tmp_path / "again.jsonl", read.values())
    assert load_predictions(tmp_path / "again.jsonl") == read


@pytest.mark.parametrize("text", ["{}", "{\n}\n", "[]", ""])
def test_a_file_without_a_prediction_is_refused_and_a_part_without_one_is_not(tmp_path, text):
    path = tmp_path / "preds.json"
    path.write_text(text)
    for wanted in (None, lambda name: False):
        with pytest.raises(InputError, match="preds.json: "):
            load_predictions(path, wanted)
    write_json(path, {"a": dict.fromkeys(("model_name_or_path", "model_patch"), "a")})
    assert load_predictions(path, lambda name: False) == {} and load_predictions(path)
