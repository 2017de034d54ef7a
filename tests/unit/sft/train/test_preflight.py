"""The check of a training before a GPU is used: every fault has one line, and all are shown at once."""

import os
import re
import shutil
import sys

import pytest
import yaml
from safetensors.numpy import load_file, save_file

from swelab import machine
from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.files.weights import check_weights, header
from swelab.machine import GIB
from swelab.records import read_json, write_json, write_jsonl
from swelab.sft.rows.lengths import ChatTokenizer, stats
from swelab.sft.train import preflight
from swelab.sft.train.preflight import (
    Training,
    adapter_weights,
    disk_bytes,
    findings,
    longest,
    memory_of,
    rank_memory,
)
from swelab.sft.train.ranks import Ranks, recipe_of, share
from tests.conftest import run_program
from tests.e2e.test_full_size import QWEN_7B
from tests.toy_checkpoint import TEMPLATE, conversations, make_checkpoint

QWEN_32B = QWEN_7B | {
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "hidden_size": 5120,
    "intermediate_size": 27648,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Model, rows and statistics of a training without faults."""
    folder = tmp_path_factory.mktemp("sound")
    base = make_checkpoint(folder / "toy")
    (folder / "toy.json").write_text("{}")
    rows = conversations(10)
    write_jsonl(folder / "d.jsonl", rows)
    tokenizer = ChatTokenizer(base)
    lengths = [tokenizer.measure(row["messages"]) for row in rows]
    write_json(folder / "s.json", {**stats(folder / "d.jsonl", lengths, 400, "drop")})
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "x")
    told = read_json(tmp_path / "x/s.json")
    write_json(tmp_path / "x/s.json", told | {"file": str(tmp_path / "x/d.jsonl")})
    return tmp_path / "x"


def faults(asked):
    return [each.sentence for each in findings(asked)]


def training(folder, **settings):
    selection = {"max_tokens": 400}
    recipe = recipes.complete(SFT, {"base": "toy", "selection": selection, **settings}, "recipe")
    return Training(folder / "toy", folder / "d.jsonl", folder / "s.json", recipe, folder / "work")


def test_nothing_is_wrong_with_a_sound_one(folder):
    assert faults(training(folder)) == []
    assert longest(training(folder)) == read_json(folder / "s.json")["max"]


def change(path, **values):
    write_json(path, read_json(path) | values)


def two_shards(folder):
    """Writes an index whose second shard does not exist, and which puts all tensors in the first."""
    base = folder / "toy"
    (base / "model.safetensors").rename(base / "model-00001-of-00002.safetensors")
    names = list(header(base / "model-00001-of-00002.safetensors"))
    files = dict.fromkeys(names[1:], "model-00001-of-00002.safetensors")
    files[names[0]] = "model-00002-of-00002.safetensors"
    write_json(base / "model.safetensors.index.json", {"weight_map": files})


def a_tensor_elsewhere(folder):
    two_shards(folder)
    base = folder / "toy"
    shutil.copy(base / "model-00001-of-00002.safetensors", base / "model-00002-of-00002.safetensors")
    index = read_json(base / "model.safetensors.index.json")
    index["weight_map"]["model.layers.9.mlp.up_proj.weight"] = "model-00001-of-00002.safetensors"
    write_json(base / "model.safetensors.index.json", index)


def other_names(folder):
    path = folder / "toy/model.safetensors"
    weights = load_file(path)
    save_file({name.replace("model.norm", "model.other"): each for name, each in weights.items()}, path)


WITH_PROMPT = (
    "{% if messages[0].role != 'user' %}<|im_start|>system\nBe good.<|im_end|>\n{% endif %}" + TEMPLATE
)
REFUSES = "{% if messages | length > 2 %}{{ raise_exception('only two turns') }}{% endif %}" + TEMPLATE


HARMS = {
    "no model": (lambda f: shutil.rmtree(f / "toy"), "toy: no such folder"),
    "no weights": (lambda f: (f / "toy/model.safetensors").unlink(), "no weights"),
    "no config": (lambda f: (f / "toy/config.json").unlink(), "config.json: no such file"),
    "a shard cut off": (lambda f: os.truncate(f / "toy/model.safetensors", 100_000), "100000 bytes of"),
    "a shard missing": (two_shards, "model-00002-of-00002.safetensors: no such file"),
    "a tensor not where it should be": (
        a_tensor_elsewhere,
        "1 tensors are not in the files that the index names, such as model.layers.9",
    ),
    "another shape": (lambda f: change(f / "toy/config.json", num_hidden_layers=3), "describes .* weights"),
    "another model": (
        lambda f: change(f / "toy/config.json", architectures=["A"]),
        "expected one of Qwen2ForCausalLM, Qwen3ForCausalLM",
    ),
    "fewer tokens than embedded": (lambda f: change(f / "toy/config.json", vocab_size=300), "token 319"),
    "an end of text that is none": (
        lambda f: change(f / "toy/config.json", eos_token_id=7),
        "eos_token_id 7",
    ),
    "another template": (
        lambda f: change(f / "toy/tokenizer_config.json", chat_template=WITH_PROMPT),
        "the chat template's text is not the text that is trained on",
    ),
    "a template that refuses rows": (
        lambda f: change(f / "toy/tokenizer_config.json", chat_template=REFUSES),
        "the chat template refuses the row: only two turns",
    ),
    "a tokenizer of no class": (
        lambda f: change(
            f / "toy/tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", bos_token=3
        ),
        "transformers cannot read the tokenizer",
    ),
    "weights of other names": (other_names, "lacks 1 weights, such as model.norm.weight"),
    "an activation that torchtune ignores": (
        lambda f: change(f / "toy/config.json", hidden_act="gelu"),
        "hidden_act gelu with trainer: torchtune; expected trainer: trl",
    ),
    "positions that torchtune ignores": (
        lambda f: change(f / "toy/config.json", rope_scaling={"type": "yarn", "factor": 4.0}),
        "rope type yarn with trainer: torchtune",
    ),
    "a window that torchtune ignores": (
        lambda f: change(f / "toy/config.json", use_sliding_window=True),
        "use_sliding_window with trainer: torchtune",
    ),
    "no template": (
        lambda f: change(f / "toy/tokenizer_config.json", chat_template=None),
        "no chat_template",
    ),
    "another format": (
        lambda f: change(f / "toy/tokenizer_config.json", chat_template="{{ messages[0].content }}"),
        "chat_template",
    ),
    "no rows": (lambda f: (f / "d.jsonl").unlink(), "not found: .*d.jsonl"),
    "other rows": (lambda f: write_jsonl(f / "d.jsonl", conversations(9)), "num_samples = 10"),
    "changed rows": (lambda f: change(f / "s.json", sha256="0" * 64), "was changed after it was measured"),
    "rows over the limit": (lambda f: change(f / "s.json", gt_400=2), "2 rows over 400 tokens"),
    "longer than the context": (lambda f: change(f / "s.json", max=600), "600 tokens.*context of 512"),
}


@pytest.mark.parametrize("name", HARMS)
def test_each_fault_is_found(folder, name):
    harm, message = HARMS[name]
    harm(folder)
    found = faults(training(folder))
    assert found and all("\n" not in fault for fault in found)
    assert any(re.search(message, fault) for fault in found), found


SETTINGS = {
    "recipe without its settings": ({"recipe": "lora_finetune_distributed"}, "train.lora is not set"),
    "settings of another recipe": ({"train": {"dpo": {}}}, "train.dpo is set"),
    "accumulation in the backward pass": (
        {"train": {"optimizer_in_bwd": True, "gradient_accumulation_steps": 2, "clip_grad_norm": None}},
        "no accumulation on any rank",
    ),
    "clipping in the backward pass": ({"train": {"optimizer_in_bwd": True}}, "clip_grad_norm: null"),
    "uneven ranks": ({"job": {"ranks": 3}, "train": {"batch_size": 4}}, "on 3 ranks"),
    "a GPU that is not asked for": ({"train": {"device": "cuda"}}, "job.gpus is 0"),
    "fewer rows than a step": ({"train": {"batch_size": 16}}, "at least the 16"),
    "a GPU that is too small": ({"job": {"gpus": 1, "gpu_gb": 0.001}}, "job.gpu_gb = 0.001 GiB"),
    "too little memory": ({"job": {"mem_mb": 1}}, "job.mem_mb = 1 MB; `job: {mem_mb: "),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_fault_of_settings_is_found(folder, name):
    settings, message = SETTINGS[name]
    (found,) = faults(training(folder, **settings))
    assert message in found


def test_every_row_is_checked_not_only_the_first_ones(folder):
    rows = conversations(30)
    rows[-1]["messages"] = rows[-1]["messages"][1:]  # no system prompt, so the template adds its own
    prompt = "{% if messages[0].role != 'system' %}<|im_start|>system\nBe good.<|im_end|>\n{% endif %}"
    change(folder / "toy/tokenizer_config.json", chat_template=prompt + TEMPLATE)
    write_jsonl(folder / "d.jsonl", rows)
    tokenizer = ChatTokenizer(folder / "toy")
    lengths = [tokenizer.measure(row["messages"]) for row in rows]
    write_json(folder / "s.json", {**stats(folder / "d.jsonl", lengths, 400, "drop")})
    for trainer in ("torchtune", "trl"):
        (found,) = faults(training(folder, trainer=trainer))
        assert found.startswith(f"{rows[-1]['instance_id']}: the chat template's text is not")


@pytest.mark.parametrize(
    ("job", "cluster", "free", "mib"),
    [
        ({}, None, 24 << 30, 24 << 10),
        ({"ranks": 2}, None, 24 << 30, 24 << 10),
        ({}, None, 1 << 30, 6000),
        ({}, "/usr/bin/sbatch", 24 << 30, 6000),
        ({"mem_mb": 7000}, None, 24 << 30, 7000),
    ],
)
def test_the_memory_of_a_training_is_what_the_recipe_or_one_machine_says(
    folder, monkeypatch, job, cluster, free, mib
):
    monkeypatch.setattr(preflight.shutil, "which", lambda name: cluster)
    monkeypatch.setattr(machine, "memory", lambda: (free, free))
    room, name = memory_of(training(folder, job=job).recipe.job)
    assert room == mib << 20 and name.startswith("the " if mib == 24 << 10 else "job.mem_mb = ")


def test_a_full_disk_is_found(folder, monkeypatch):
    need = disk_bytes(training(folder))
    assert need == 4 * 8 * check_weights(folder / "toy").weights
    monkeypatch.setattr(machine, "disk", lambda folder: (need, folder))
    (found,) = faults(training(folder))
    assert "GiB free" in found and "saved states" in found


def test_the_script_tells_all_faults_at_once(folder):
    HARMS["no rows"][0](folder)
    HARMS["a shard cut off"][0](folder)
    HARMS["an end of text that is none"][0](folder)
    recipe = {"base": "toy", "recipe": "full_dpo_distributed", "selection": {"max_tokens": 400}}
    (folder / "r.yaml").write_text(yaml.safe_dump(recipe))
    command = [sys.executable, "-m", "scripts.preflight", "--recipe", folder / "r.yaml"]
    command += ["--base", folder / "toy.json", "--dataset", folder / "d.jsonl", "--stats", folder / "s.json"]
    done = run_program([*command, "--progress", folder / "work", "--report", folder / "report.json"])
    assert done.returncode == 2 and not (folder / "report.json").exists(), done
    *lines, last = done.stderr.splitlines()
    assert [line[:5] for line in lines] == ["FIX  "] * 4
    assert last == "error: 4 to fix before r can be trained; the lines that begin with FIX say how"


def test_shapes_of_the_published_models():
    assert QWEN_7B.weights == 7_615_616_512 and QWEN_32B.weights == 32_763_876_352
    lora = recipes.load_named(SFT, "swesmith-7b-lora").train.lora
    # Per layer, with rank 64: 4 attention and 3 feed-forward projections.
    a_layer = 64 * (4 * 3584 + 2 * (3584 + 512) + 3 * (3584 + 18944))
    assert adapter_weights(QWEN_7B, lora) == 28 * a_layer


@pytest.mark.parametrize("name", [name for name in recipes.names("sft") if name.startswith("swesmith")])
def test_the_shipped_recipes_fit_into_the_gpus_that_they_name(name):
    recipe = recipes.load_named(SFT, name)
    config = QWEN_32B if "32b" in name else QWEN_7B
    job = recipe.job
    ranks = Ranks(job.nodes, job.gpus, job.gpus, 8)
    mine = share(recipe.train, ranks)["batch_size"]
    needs = rank_memory(config, recipe.train, ranks.total, mine, recipe.selection.max_tokens, 2)
    assert job.gpu_gb / 4 < needs.total / GIB < job.gpu_gb
    assert recipe_of(recipe).endswith("_distributed") or ranks.total == 1


def test_weights_that_the_optimizer_keeps_in_fp32_are_counted():
    train = recipes.load_named(SFT, "swesmith-7b").train
    plain, alone, shared = (
        rank_memory(QWEN_7B, train, ranks, 1, 1000, 2, masters)
        for ranks, masters in ((1, False), (1, True), (8, True))
    )
    count = QWEN_7B.weights
    assert (plain.weights, plain.gradients, plain.optimizer) == (2 * count, 2 * count, 4 * count)
    assert (alone.weights, alone.gradients, alone.optimizer) == (6 * count, 4 * count, 8 * count)
    assert (shared.gradients, shared.optimizer) == (4 * count / 8, 8 * count / 8)
    assert 4 * count / 8 < shared.weights < 4 * count / 8 + 2 * count
    assert alone.activations == plain.activations and alone.logits == plain.logits


def test_the_published_settings_field_by_field():
    seven, large, local = (
        recipes.load_named(SFT, f"swesmith-{name}").train for name in ("7b", "32b", "7b-local")
    )
    both = {"epochs": 3, "batch_size": 1, "weight_decay": 0.01, "warmup_steps": 5, "clip_grad_norm": None}
    both |= {"seed": 42, "dtype": "bf16", "activation_checkpointing": True, "compile": True}
    both |= {"betas": [0.9, 0.999], "lora": None, "dpo": None}
    for train in (seven, large, local):
        assert {key: train.plain()[key] for key in both} == both
    assert (seven.lr, large.lr, local.lr) == (5e-5, 5e-5, 1e-4)
    assert not seven.optimizer_in_bwd and large.optimizer_in_bwd
    # One step: 4 on each of 2 GPUs, 1 on each of 8, 4 on one.
    steps = [train.gradient_accumulation_steps for train in (seven, large, local)]
    assert steps == [2 * 4, 8 * 1, 4]
    for name, values in (("7b", (2e-5, 0.05, 2, 8)), ("32b", (1e-5, 0.01, 3, 16))):
        train = recipes.load_named(SFT, f"swesmith-{name}-dpo").train
        names = ("lr", "weight_decay", "epochs", "gradient_accumulation_steps")
        assert tuple(getattr(train, key) for key in names) == values and train.dpo.beta == 0.05
