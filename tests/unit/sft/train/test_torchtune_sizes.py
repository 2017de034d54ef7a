"""A torchtune configuration for a model other than that of its weights."""

import pytest

from swelab.records import read_json, write_json
from swelab.sft.train.torchtune_file import faults
from tests.toy_checkpoint import make_checkpoint


@pytest.fixture
def config(tmp_path):
    """A configuration whose model has the sizes of its checkpoint."""
    folder = make_checkpoint(tmp_path / "toy")
    (tmp_path / "data.jsonl").write_text("{}\n")
    held = read_json(folder / "config.json")
    model = {
        "_component_": "torchtune.models.qwen2.qwen2",
        "vocab_size": held["vocab_size"],
        "num_layers": held["num_hidden_layers"],
        "num_heads": held["num_attention_heads"],
        "num_kv_heads": held["num_key_value_heads"],
        "embed_dim": held["hidden_size"],
        "intermediate_dim": held["intermediate_size"],
        "max_seq_len": 512,
        "tie_word_embeddings": True,
    }
    return {
        "model": model,
        "tokenizer": {"path": str(folder / "vocab.json"), "merges_file": str(folder / "merges.txt")},
        "checkpointer": {"checkpoint_dir": str(folder), "checkpoint_files": ["model.safetensors"]},
        "dataset": {"data_files": str(tmp_path / "data.jsonl")},
    }


def test_sizes_of_another_model_are_refused_each_in_a_line(config):
    assert faults(config) == []
    held = config["model"].copy()
    config["model"] |= {"vocab_size": 500, "num_layers": 9, "intermediate_dim": 80}
    found = faults(config)
    where = f"{config['checkpointer']['checkpoint_dir']}/config.json"
    for name, key, wanted in (
        ("vocab_size", "vocab_size", 500),
        ("num_hidden_layers", "num_layers", 9),
        ("intermediate_size", "intermediate_dim", 80),
    ):
        assert f"model: {name} is {wanted}, and {held[key]} in {where}" in found
    assert len(found) == 3


def test_a_model_that_torchtune_does_not_know_is_refused(config):
    config["model"] = {"_component_": "torchtune.models.qwen2_5.qwen9"}
    (fault,) = faults(config)
    assert fault.startswith("model: torchtune.models.qwen2_5.qwen9 cannot be made: ") and "\n" not in fault


def test_special_tokens_without_a_row_or_of_another_id_are_refused(config):
    """torchtune's own tokenizer has the published model's ids, even if the folder has others."""
    config["tokenizer"]["_component_"] = "torchtune.models.qwen2_5.qwen2_5_tokenizer"
    (fault,) = faults(config)
    assert fault.startswith("tokenizer: <|im_start|> has the id 151644 (")
    path = f"{config['checkpointer']['checkpoint_dir']}/config.json"
    write_json(path, read_json(path) | {"vocab_size": 152064})
    del config["model"]
    found = faults(config)
    assert any(
        "<|im_start|> has the id 151644, and " in fault and "tokenizer.json has " in fault for fault in found
    )
