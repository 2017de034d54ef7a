"""Faults of a torchtune configuration that are found before the start, and how it would be run."""

import os
from pathlib import Path

import pytest
import yaml

from swelab.records import InputError
from swelab.sft.train.torchtune_file import data_file, faults, read_torchtune, tune_command
from tests.toy_checkpoint import make_checkpoint

SHIPPED = Path("configs/train/full_ft_qwen_7b_local.yml")


@pytest.fixture
def config(tmp_path):
    model = make_checkpoint(tmp_path / "toy")
    (tmp_path / "data.jsonl").write_text("{}\n")
    return {
        "output_dir": str(tmp_path / "out"),
        "tokenizer": {"path": f"{model}/vocab.json", "merges_file": f"{model}/merges.txt"},
        "checkpointer": {
            "checkpoint_dir": str(model),
            "checkpoint_files": ["model.safetensors"],
            "output_dir": "${output_dir}",
        },
        "dataset": {"data_files": str(tmp_path / "data.jsonl")},
        "device": "cuda",
    }


def written(tmp_path, config):
    path = tmp_path / "config.yml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return path


def test_a_sound_configuration_has_no_fault_and_is_resolved(tmp_path, config):
    found = read_torchtune(written(tmp_path, config))
    assert faults(found) == [] and found["checkpointer"]["output_dir"] == config["output_dir"]
    assert data_file(found) == tmp_path / "data.jsonl"


def test_the_configuration_that_is_shipped_wants_its_paths():
    found = faults(read_torchtune(SHIPPED))
    assert "tokenizer.path: <MODEL_DIR>/vocab.json was never filled in" in found
    assert any("<DATA_FILE>" in fault for fault in found) and any("<OUTPUT_DIR>" in fault for fault in found)


def test_every_fault_is_a_line_of_its_own(tmp_path, config):
    os.truncate(Path(config["checkpointer"]["checkpoint_dir"], "model.safetensors"), 200_000)
    config["checkpointer"]["checkpoint_files"] += ["missing.safetensors"]
    config["tokenizer"] = {"path": "/nowhere/vocab.json"}
    config["dataset"]["data_files"] = [str(tmp_path / "data.jsonl"), "/nowhere/b.jsonl"]
    found = faults(read_torchtune(written(tmp_path, config)))
    assert len(found) == 5 and not any("\n" in fault for fault in found)
    for words in (
        "tokenizer.path: no such file: /nowhere/vocab.json",
        "tokenizer.merges_file: None; expected a path",
        "dataset.data_files: no such file: /nowhere/b.jsonl",
        "missing.safetensors: no such file",
        "expected a whole safetensors file",
    ):
        assert any(words in fault for fault in found), (words, found)


def test_files_named_by_their_number(tmp_path, config):
    named = {"filename_format": "model-{}-of-{}.safetensors", "max_filename": "00002"}
    config["checkpointer"]["checkpoint_files"] = named
    found = faults(read_torchtune(written(tmp_path, config)))
    assert len(found) == 2 and "model-00001-of-00002.safetensors: no such file" in found[0]
    config["checkpointer"]["checkpoint_files"] = {"max_filename": "two"}
    assert "expected a list of files" in faults(config)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [", "not YAML"), ("- a", "a list; expected"), ("a: ${b}", "cannot be read: .*b"), ("", "")],
)
def test_what_is_no_configuration(tmp_path, text, words):
    if not text:
        assert len(faults(read_torchtune(written(tmp_path, text)))) == 5
        return
    with pytest.raises(InputError, match=words) as error:
        read_torchtune(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_it_is_run_as_the_original_runs_it(tmp_path, config):
    path = tmp_path / "c.yml"
    words = tune_command(config, path, 2)[1:]
    assert words[:3] == ["-m", "torchtune._cli.tune", "run"]
    assert words[3:] == [
        *("--nnodes", "1", "--nproc_per_node", "2", "full_finetune_distributed", "--config", str(path))
    ]
    assert "full_finetune_single_device" in tune_command({"device": "cpu"}, path, 1)
    assert "--nproc-per-node=2" in tune_command({"device": "cpu"}, path, 2)


def test_several_files_have_no_statistics():
    with pytest.raises(InputError, match="2 data_files"):
        data_file({"dataset": {"data_files": ["a", "b"]}})
