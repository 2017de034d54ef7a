"""A recipe checked against machines with given properties."""

import json
from dataclasses import replace

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.files.model_config import ModelConfig
from swelab.machine import GIB, Gpu, Machine
from swelab.records import Fault, InputError, write_json
from swelab.rl import machine_check
from swelab.rl.machine_check import check_recipe, preflight, stop_unless_fit
from swelab.rl.memory_needs import engine_needs
from tests.conftest import ROOT, make_task
from tests.qwen3_shapes import qwen3
from tests.toy_checkpoint import make_checkpoint

TINY = ModelConfig.of({
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
})  # fmt: skip
QWEN3_4B = qwen3("4")
LAPTOP = Machine(cores=4, free=14 * GIB, total=16 * GIB)
H100 = Gpu("H100", 79 * GIB, 80 * GIB)
NODE = Machine(cores=32, free=400 * GIB, total=512 * GIB, gpus=(H100,) * 4)


def recipe(rollouts=None, train=None, **more):
    small = {"prompts": 2, "samples": 2, "at_once": 8, "max_tokens": 64, "context_length": 2048}
    made = {
        "start": "sft:demo-start",
        "subset": "drill-practice",
        "scaffold": "demo",
        "rollouts": small | {"max_total_tokens": 32768} | (rollouts or {}),
        "train": {"steps": 1, "batch_tokens": 8192} | (train or {}),
    }
    return recipes.complete(RL, made | more, "r")


def found(asked, config=TINY, machine=LAPTOP):
    return [(each.severity, each.sentence) for each in preflight(asked, config, machine)]


def test_a_small_model_fits_a_laptop_and_four_billion_weights_fit_four_gpus():
    assert found(recipe()) == []
    asked = recipe({"context_length": 32768, "max_total_tokens": 131072, "at_once": 64},
                   {"ranks": 4, "batch_tokens": 16384, "activation_checkpointing": True},
                   job={"gpus": 4, "servers": 4})  # fmt: skip
    assert found(asked, QWEN3_4B, NODE) == []


@pytest.mark.parametrize(
    ("changes", "config", "machine", "said"),
    [
        ({"train": {"device": "cuda"}}, {}, {}, "FIX no GPU here"),
        ({"train": {"ranks": 5}}, {}, {"gpus": (H100,) * 4}, "FIX train.ranks is 5, a GPU each"),
        ({"train": {"device": "cpu"}}, {}, {"gpus": (H100,)}, "low there is a H100: auto uses it"),
        ({"train": {"ranks": 4, "threads": 2}}, {}, {}, "low is 8, and there are 4 cores"),
        ({"rollouts": {"context_length": 8192}}, {}, {}, "FIX is 8192; the start's model has 4096"),
        ({}, {"architectures": ["BertForMaskedLM"]}, {}, "FIX architecture BertForMaskedLM; expected"),
        ({}, {"architectures": []}, {}, "FIX architecture none; expected"),
        ({}, {"architectures": ["OtherForCausalLM"]}, {}, "low OtherForCausalLM was not tried"),
        ({"rollouts": {"at_once": 100}}, {}, {"free": 99 * GIB}, "low rollouts.at_once is 100 on 4 cores"),
        ({"rollouts": {"at_once": 60}}, {}, {}, "low and 60 sandboxes, of 14.0 GiB that are free"),
        ({"job": {"gpus": 4}}, {}, {"gpus": (H100,)}, "FIX job.gpus is 4, and there are 1 here"),
        ({"job": {"gpus": 1}, "rollouts": {"max_total_tokens": 0}}, {}, {"gpus": (H100,)}, "FIX trains and"),
        ({}, {}, {"free": GIB}, "FIX a sandbox may take 2.0 GiB, and 1.0 GiB"),
        ({}, {"num_hidden_layers": 400}, {}, "FIX and 14.0 GiB are free"),
        ({"train": {"batch_tokens": 16384}}, QWEN3_4B, {"gpus": (H100,)}, "FIX GPU 0 (H100): about"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_sentence(changes, config, machine, said):
    mark, words = said.split(" ", 1)
    lines = found(recipe(**changes), ModelConfig.of({**TINY, **config}), replace(LAPTOP, **machine))
    assert any(each == mark and words in text for each, text in lines), lines
    assert not any("\n" in text for _, text in lines)


def test_an_engine_s_cache_is_counted_by_tokens():
    more = recipe({"max_total_tokens": 65536})
    # Keys and values of 36 layers, 1024 numbers each, 4 bytes: 288 KiB a token.
    assert engine_needs(more, QWEN3_4B) - engine_needs(recipe(), QWEN3_4B) == 32768 * 288 * 1024


def test_a_training_that_does_not_fit_is_not_started(tmp_path, monkeypatch, capsys):
    toy, small = make_checkpoint(tmp_path / "toy"), recipe({"context_length": 512, "at_once": 1})
    monkeypatch.setattr(machine_check, "this_machine", lambda: LAPTOP)
    stop_unless_fit(small, toy)
    assert "FIX" not in capsys.readouterr().err
    with pytest.raises(Fault, match="to fix before anything is started"):
        stop_unless_fit(small, toy, replace(LAPTOP, free=GIB))


def test_a_config_that_lacks_a_key_and_a_start_that_is_not_there(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"]}))
    with pytest.raises(Fault, match="1 to fix"):
        stop_unless_fit(recipe(), tmp_path, LAPTOP)
    assert f"FIX  {tmp_path}/config.json: no " in capsys.readouterr().err
    with pytest.raises(InputError, match="config.json"):
        stop_unless_fit(recipe(), tmp_path / "none", LAPTOP)


def test_what_is_not_made_yet_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.setattr(machine_check, "this_machine", lambda: LAPTOP)
    told = [each.sentence for each in check_recipe(recipe())]
    assert "start sft:demo-start: results/sft/demo-start/checkpoint is not made yet" in told[0]
    assert "results/tasks/drill-practice.kept.json not made yet" in told[-1]
    make_checkpoint(tmp_path / "weights")
    write_json(tmp_path / "results/tasks/drill-practice.kept.json", [make_task() | {"function": "a.py::one"}])
    fit = recipe({"context_length": 512, "prompts": 1, "at_once": 1}, start=str(tmp_path / "weights"))
    assert [each.severity for each in check_recipe(fit)] == ["ok"]
    monkeypatch.setenv("HOME", str(tmp_path))
    at_home = fit.model_copy(update={"start": "~/weights"})
    assert [each.severity for each in check_recipe(at_home)] == ["ok"]
    for name in ("weights/config.json", "results/tasks/drill-practice.kept.json"):
        (tmp_path / name).write_text("{")
    broken = [
        str(each)
        for each in check_recipe(
            recipe({"context_length": 512, "prompts": 1}, job={"gpus": 1}, start=fit.start)
        )
    ]
    assert [line[:5] for line in broken] == ["FIX  "] * 3
    assert "config.json" in broken[0] and "job.gpus is 1" in broken[1] and "kept.json" in broken[2]
