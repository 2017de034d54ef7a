"""A user's own model folder: linked, checked first, and fine-tuned by the trainer that supports it."""

import json
import shutil

import pytest
import torch
import transformers

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.files.weights import check_weights, header
from swelab.records import write_jsonl
from swelab.sft.train.own_model import take_folder
from swelab.sft.train.training import fine_tune
from tests.conftest import run_python
from tests.toy_checkpoint import CONTEXT, VOCAB, conversations, make_checkpoint

pytestmark = pytest.mark.full

SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": CONTEXT,
    "eos_token_id": VOCAB - 1,
    "tie_word_embeddings": False,
}
FAMILIES = {"qwen3": transformers.Qwen3Config, "llama": transformers.LlamaConfig}
TRAIN = {"epochs": 2, "batch_size": 4, "lr": 0.01, "warmup_steps": 0, "threads": 1, "device": "cpu"}


def model_of(family, folder):
    """Saves a small model as its author's program would: transformers' own files and the toy tokenizer."""
    make_checkpoint(folder)
    if family == "qwen2":
        return folder
    for name in ("model.safetensors", "config.json", "generation_config.json", "vocab.json", "merges.txt"):
        (folder / name).unlink()
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(FAMILIES[family](**SHAPE)).save_pretrained(folder)
    return folder


@pytest.fixture
def mine(tmp_path):
    return lambda family: model_of(family, tmp_path / "Mein Modell" / family)


def sft(trainer, **train):
    settings = {"base": "mine", "trainer": trainer, "train": TRAIN | train}
    return recipes.complete(SFT, settings, "recipe")


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_a_folder_is_fine_tuned(mine, tmp_path, family):
    folder = mine(family)
    taken = take_folder(folder, tmp_path / "models" / "mine")
    linked = tmp_path / "models" / "mine"
    assert {path.name for path in linked.iterdir()} == set(taken["files"]) and taken["digest"]
    assert all(path.is_symlink() and path.resolve().parent == folder.resolve() for path in linked.iterdir())
    config = check_weights(linked)
    shapes = [tensor["shape"] for tensor in header(linked / "model.safetensors").values()]
    assert config.weights == sum(torch.Size(shape).numel() for shape in shapes)
    data = tmp_path / "data.jsonl"
    write_jsonl(data, conversations(16))
    manifest, loss = fine_tune(linked, data, sft("trl"), tmp_path / "work", tmp_path / "checkpoint")
    assert loss[-1]["loss"] < 0.8 * loss[0]["loss"] and manifest["steps"] == len(loss) == 8
    assert manifest["parity"]["conversations"] == 16 and manifest["base"]["digest"] == taken["digest"]
    weights = tmp_path / "checkpoint/model.safetensors"
    made = weights.stat()
    selected = sft("trl").plain() | {"selection": {"per_instance": 3}}  # it gave the same rows
    again = recipes.complete(SFT, selected, "recipe")
    told, curve = fine_tune(linked, data, again, tmp_path / "work", tmp_path / "checkpoint")
    assert weights.stat().st_mtime_ns == made.st_mtime_ns and curve == loss
    assert told["recipe"]["selection"]["per_instance"] == 3
    assert {**told, "recipe": None} == {**manifest, "recipe": None}
    load = transformers.AutoModelForCausalLM.from_pretrained
    before, after = load(folder).state_dict(), load(tmp_path / "checkpoint").state_dict()
    assert before.keys() == after.keys() and not torch.equal(
        before["lm_head.weight"], after["lm_head.weight"]
    )


def edited(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "spoil, words",
    [
        (
            lambda f: edited(f, "config.json", architectures=["GPT2LMHeadModel"]),
            ["GPT2LMHeadModel", "one of"],
        ),
        (lambda f: (f / "tokenizer.json").unlink(), ["tokenizer.json", "no such file"]),
        (lambda f: (f / "model.safetensors").write_bytes(b"short"), ["not a safetensors file"]),
        (lambda f: edited(f, "config.json", num_key_value_heads=4), ["has other shapes of", "k_proj"]),
        (lambda f: edited(f, "tokenizer_config.json", chat_template="{{ messages }}"), ["is not ChatML"]),
        (
            lambda f: edited(
                f,
                "tokenizer_config.json",
                chat_template="{% for m in messages %}<|im_start|>{{ m.role }}\n"
                "{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
                "{{ m.content }}<|im_end|>\n{% endfor %}",
            ),
            ["adds to or leaves out of a turn's text"],
        ),
    ],
)
def test_what_is_refused_before_anything_runs(mine, tmp_path, spoil, words):
    folder, output = mine("qwen2"), tmp_path / "taken"
    spoil(folder)
    (tmp_path / "mine.yaml").write_text(f"source: folder\npath: {folder}\n")
    given = ["--recipe", tmp_path / "mine.yaml", "--output", output, "--manifest", tmp_path / "taken.json"]
    done = run_python("-m", "scripts.take_model", *given)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not output.exists()
    for word in words:
        assert word in done.stderr


def test_an_edited_folder_is_taken_anew(mine, tmp_path):
    folder = mine("qwen2")
    first = take_folder(folder, tmp_path / "taken")
    shutil.copyfile(model_of("qwen2", tmp_path / "other") / "config.json", folder / "config.json")
    edited(folder, "config.json", rope_theta=700.0)
    second = take_folder(folder, tmp_path / "taken")
    assert first["digest"] == second["digest"] and first["files"] != second["files"]
