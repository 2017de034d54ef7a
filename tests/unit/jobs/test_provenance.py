"""A manifest names the files that a stage read, even if they are edited during the stage."""

from pathlib import Path

import pytest

from swelab.jobs.provenance import Stage, manifest_path
from swelab.records import InputError, digest, read_json, sha256_file, write_json


def test_edits_while_a_stage_runs_do_not_change_what_it_says_it_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe, rows = Path("configs/sft/demo.yaml"), Path("rows.json")
    recipe.parent.mkdir(parents=True)
    recipe.write_text("lr: 1.0e-3")
    rows.write_text("[1]")
    used, read = {"lr": 1.0e-3}, sha256_file(rows)
    stage = Stage("train_sft", {recipe: used}, dataset=rows)
    recipe.write_text("lr: 2.0e-3")
    rows.write_text("[2]")
    write_json("made.json", {})
    stage.write(["made.json"])
    told = read_json("made.manifest.json")
    assert told["recipes"] == {"configs/sft/demo.yaml": {"sha256": digest(used), "used": used}}
    assert told["inputs"] == {"dataset": {"rows.json": read}}
    assert told["outputs"] == {"made.json": sha256_file("made.json")}


def test_where_a_stage_ran_stands_in_its_manifest(monkeypatch):
    for name, value in {"BACKEND": "docker", "EXECUTOR": "ray", "WORKERS": "7"}.items():
        monkeypatch.setenv(f"SWELAB_{name}", value)
    monkeypatch.setenv("SLURM_JOB_PARTITION", "gpu")
    told = Stage("grade").record(place={"service": "x at http://there"})["place"]
    assert told == {
        "backend": "docker",
        "executor": "ray",
        "workers": "7",
        "partition": "gpu",
        "service": "x at http://there",
    }


def test_an_input_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Stage("grade", tasks=tmp_path / "nowhere.json")


def test_an_input_in_the_user_s_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/rows.json").write_text("[]")
    inputs = Stage("make_tasks", None, rows="~/own").inputs
    assert list(inputs["rows"]) == [f"{tmp_path}/own"]


@pytest.mark.parametrize(
    "path, manifest",
    [("a/000of001.jsonl", "a/000of001.manifest.json"), ("a/x.lock.json", "a/x.lock.manifest.json"),
     ("a/checkpoint", "a/checkpoint.manifest.json"), ("a/usage.s1.json", "a/usage.s1.manifest.json")],
)  # fmt: skip
def test_a_manifest_lies_where_its_file_does(path, manifest):
    assert manifest_path(path).as_posix() == manifest
