"""Two trainers with one plan have the same loss at each step, however the forward passes are divided."""

import csv
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from safetensors.torch import load_file

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.records import read_json, read_jsonl, write_jsonl
from swelab.sft.train.metrics import read_metrics
from swelab.sft.train.planned_batches import torchtune_batch, trl_batch
from swelab.sft.train.plots import plot
from swelab.sft.train.step_log import METRICS
from swelab.sft.train.token_rows import TokenRows
from swelab.sft.train.trainer import open_trainer
from swelab.sft.train.training import check_inputs, plan_run
from swelab.sft.train.trl_bridge import TrlRun
from tests.toy_checkpoint import conversations, make_checkpoint

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
TRAIN = {"epochs": 2, "batch_size": 4, "gradient_accumulation_steps": 2, "lr": 0.01, "warmup_steps": 2}
HOW = {
    "plain": {},
    "grouped": {"group_by_length": True, "max_batch_tokens": 700},
    "packed": {"packed": True, "max_seq_len": 480, "batch_size": 2, "gradient_accumulation_steps": 1},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainers")
    make_checkpoint(folder / "toy")
    write_jsonl(folder / "data.jsonl", varied(37))
    return folder


def varied(count):
    rows = conversations(count)
    for number, row in enumerate(rows):
        row["messages"][1]["content"] += " again" * (number * 7 % 31)
    return rows


@pytest.fixture(scope="module")
def curves(made):
    """Returns the metrics of a run by (trainer, how). Each run is made once, in this process."""
    known = {}

    def curve(trainer, how):
        if (trainer, how) not in known:
            known[trainer, how] = run(made, trainer, how)
        return known[trainer, how]

    return curve


def run(made, trainer, how, **train):
    settings = {"base": "toy", "trainer": trainer, "train": {**TRAIN, **HOW[how], "device": "cpu", **train}}
    recipe = recipes.complete(SFT, settings, "recipe")
    work = made / "-".join([trainer, how, *map(str, train.values())])
    work.mkdir()
    lengths = check_inputs(made / "toy", made / "data.jsonl", recipe.train)
    plan = plan_run(made / "toy", recipe, lengths)
    plan.write(work, recipe)
    open_trainer(trainer).command(made / "toy", made / "data.jsonl", recipe, plan, work)
    torch.manual_seed(0)
    if trainer == "trl":
        from swelab.sft.train.trl_worker import train

        train(TrlRun.of(read_json(work / "config.json")))
    else:
        from swelab.sft.train.step_states import StepStates
        from swelab.sft.train.torchtune_worker import train

        train(
            "full_finetune_single_device", OmegaConf.load(work / "config.yaml"), StepStates(work / "steps", 0)
        )
    return read_metrics(work / "output" / METRICS)


def same(one, other):
    assert len(one) == len(other) >= 6
    for mine, theirs in zip(one, other):
        for name, near in (("loss", 2e-5), ("grad_norm", 1e-3), ("lr", 1e-9)):
            assert mine[name] == pytest.approx(theirs[name], rel=near, abs=1e-9), (mine["step"], name)
        assert mine["tokens"] == theirs["tokens"] and mine["trained_tokens"] == theirs["trained_tokens"]


@pytest.mark.parametrize("how", ["plain", "packed"])
def test_both_trainers_have_one_loss_curve(curves, how, made):
    one, other = curves("torchtune", how), curves("trl", how)
    same(one, other)
    assert one[-1]["loss"] < 0.7 * one[0]["loss"]
    figure = plot({"torchtune": one, "TRL": other})
    assert figure.count("<title>torchtune</title>") == figure.count("<title>TRL</title>") >= 7


def test_small_steps_of_trl_in_bf16_move_the_weights(made):
    start = load_file(made / "toy/model.safetensors")
    for dtype in ("fp32", "bf16"):
        rows = run(made, "trl", "plain", dtype=dtype, lr=1e-6)
        work = made / f"trl-plain-{dtype}-1e-06/output"
        (newest,) = work.glob(f"checkpoints/checkpoint-{len(rows)}/model.safetensors")
        trained = load_file(newest)
        moved = sum((trained[name] != start[name]).sum().item() for name in start)
        assert moved > 0.9 * sum(weight.numel() for weight in start.values())
        saved = load_file(next(work.glob("epoch_1/*.safetensors")))
        assert {str(weight.dtype) for weight in saved.values()} == {
            {"fp32": "torch.float32", "bf16": "torch.bfloat16"}[dtype]
        }


@pytest.mark.parametrize("trainer", ["torchtune", "trl"])
def test_batches_by_length_change_no_loss_and_pad_less(curves, trainer):
    plain, grouped = curves(trainer, "plain"), curves(trainer, "grouped")
    same(plain, grouped)
    waste = [sum(row["padding_share"] * row["tokens"] for row in rows) for rows in (grouped, plain)]
    assert waste[0] < 0.8 * waste[1]


def test_rows_of_a_pack_do_not_see_each_other(made):
    from transformers import AutoModelForCausalLM

    rows = TokenRows(made / "data.jsonl", made / "toy")
    samples = [rows[number] for number in (0, 2, 5)]
    model = AutoModelForCausalLM.from_pretrained(made / "toy", attn_implementation="sdpa").eval()
    batch = trl_batch([samples], packed=True, pad=0)
    with torch.inference_mode():
        # As in training: with a cache, transformers ignores positions.
        seen = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)
        alone = [model(input_ids=torch.tensor([sample.tokens])).logits[0] for sample in samples]
    assert torch.allclose(seen.logits[0], torch.cat(alone), atol=1e-4)
    mask = torchtune_batch([samples], fill=480, pad=0)["mask"][0]
    first = len(samples[0].tokens)
    assert mask.shape == (480, 480) and not mask[first:, :first].any() and not mask[:first, first:].any()


def test_what_a_step_tells(curves):
    rows = curves("torchtune", "plain")
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert [row["epoch"] for row in rows] == [0, 0, 0, 0, 1, 1, 1, 1]
    for row in rows:
        assert 0 < row["mfu"] < 1 and 0 < row["trained_share"] < 1 and 0 <= row["padding_share"] < 1
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"])
        assert row["rows"] == 8 and 100 < row["peak_memory_mib"] < 4000
    assert rows[-1]["tokens_seen"] == sum(row["tokens"] for row in rows)


def test_the_stage_trains_with_trl_and_leaves_what_the_rule_declares(made):
    recipe = {"base": "toy", "trainer": "trl", "train": {**TRAIN, "epochs": 1, "threads": 1, "device": "cpu"}}
    (made / "F.yaml").write_text(yaml.safe_dump(recipe))
    (made / "toy.json").write_text("{}")
    out = made / "stage"
    command = [
        *(sys.executable, "-m", "scripts.train_sft", "--dataset", made / "data.jsonl"),
        *("--base", made / "toy.json", "--recipe", made / "F.yaml", "--progress", made / "progress"),
        *("--checkpoint", out / "checkpoint", "--manifest", out / "checkpoint.json"),
        *("--loss", out / "loss.jsonl", "--metrics", out / "metrics.tsv"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    manifest, loss = read_json(out / "checkpoint.json"), list(read_jsonl(out / "loss.jsonl"))
    assert manifest["recipe"]["trainer"] == "trl" and {"trl", "accelerate"} <= manifest["packages"].keys()
    assert manifest["parity"]["max_logit_difference"] < 1e-4 and manifest["batches"] == "plain"
    assert [row["step"] for row in loss] == [1, 2, 3, 4] and loss[0].keys() >= {"lr", "tokens_per_second"}
    with open(out / "metrics.tsv") as stream:
        table = [float(row["loss"]) for row in csv.DictReader(stream, delimiter="\t")]
    assert table == pytest.approx([row["loss"] for row in loss], rel=1e-4)
    assert list((out / "tensorboard").glob("events.*")) and (out / "training.svg").stat().st_size > 1000
    assert {path.name for path in (out / "checkpoint").iterdir()} == {
        *("config.json", "config.yaml", "generation_config.json", "model.safetensors"),
        *("merges.txt", "vocab.json", "tokenizer.json", "tokenizer_config.json"),
    }
