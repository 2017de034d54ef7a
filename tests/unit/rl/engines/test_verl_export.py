"""The parts of verl's checkpoint that become ours."""

import json

import numpy
import pytest
from safetensors.numpy import save_file

from swelab.records import InputError, read_json
from swelab.rl.engines.verl_export import dtype_of, export, newest_step


def write(path, **tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)


@pytest.fixture
def start(tmp_path):
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", "torch_dtype": "bfloat16"}))
    (folder / "tokenizer.json").write_text("{}")
    write(folder / "model.safetensors", w=numpy.zeros(2, "float32"))
    return folder


def test_weights_are_verls_and_all_else_is_the_starts(tmp_path, start):
    made = tmp_path / "global_step_3/actor/huggingface"
    for number in (1, 2):
        write(made / f"model-0000{number}-of-00002.safetensors", w=numpy.ones(2, "float32"))
    (made / "model.safetensors.index.json").write_text("{}")
    (made / "config.json").write_text(json.dumps({"written": "by verl"}))
    (made / "tokenizer.json").write_text('{"written": "by verl"}')
    target = tmp_path / "checkpoint-00003"
    target.mkdir()
    (target / "old").touch()
    export(tmp_path / "global_step_3", start, target)
    assert sorted(path.name for path in target.iterdir()) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    assert read_json(target / "config.json") == {"model_type": "qwen2", "torch_dtype": "float32"}
    assert (target / "tokenizer.json").read_text() == "{}"


def test_a_checkpoint_without_weights_in_our_layout_is_refused(tmp_path, start):
    with pytest.raises(InputError, match="no weights in Hugging Face layout"):
        export(tmp_path / "global_step_3", start, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_of_two_types_are_refused(tmp_path):
    write(tmp_path / "w.safetensors", a=numpy.zeros(1, "float32"), b=numpy.zeros(1, "float16"))
    with pytest.raises(InputError, match="weights of types"):
        dtype_of(tmp_path / "w.safetensors")


def test_the_newest_checkpoint_is_what_verl_says_last(tmp_path):
    assert newest_step(tmp_path) == 0
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("12")
    assert newest_step(tmp_path) == 12
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("")
    assert newest_step(tmp_path) == 0
