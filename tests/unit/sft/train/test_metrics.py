"""Records of training steps: FLOPs, tables, plots, TensorBoard's files, Weights & Biases."""

import csv
import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.records import InputError, write_json, write_jsonl
from swelab.sft.train import tensorboard_wandb
from swelab.sft.train.check_settings import check_settings, check_wandb
from swelab.sft.train.metrics import COLUMNS, read_metrics, row_flops, weights_multiplied
from swelab.sft.train.plots import plot
from swelab.sft.train.run_log import keep_log, publish_log
from swelab.sft.train.step_log import StepLog, own_peak
from swelab.sft.train.training import check_inputs, plan_run
from tests.e2e.test_full_size import QWEN_7B
from tests.tensorboard_events import scalars
from tests.toy_checkpoint import conversations, make_checkpoint


def test_flops_of_qwen2_7b():
    # 7.07 G of its 7.62 G weights are multiplied: embeddings and biases are not.
    assert weights_multiplied(QWEN_7B) == 7_070_285_824
    one, eight = row_flops(QWEN_7B, 1), row_flops(QWEN_7B, 8192)
    assert one == 6 * 7_070_285_824 + 6 * 28 * 3584
    assert eight / (8192 * one) == pytest.approx(1 + 28 * 3584 * 8191 / 7_070_285_824, rel=1e-4)


@pytest.fixture
def run(tmp_path):
    """A run of four steps as its trainer logs it. One step is logged twice."""
    base = make_checkpoint(tmp_path / "toy")
    write_jsonl(tmp_path / "data.jsonl", conversations(8))
    settings = {"base": "toy", "train": {"epochs": 2, "batch_size": 4, "device": "cpu"}}
    recipe = recipes.complete(SFT, settings, "recipe")
    plan = plan_run(base, recipe, check_inputs(base, tmp_path / "data.jsonl", recipe.train))
    plan.write(tmp_path, recipe)
    told = {"lr": 0.1, "grad_norm": 2.0}
    first = StepLog(str(tmp_path / "output"), str(tmp_path / "planned.json"))
    first.log_dict({"loss": 4.0, **told, "tokens_per_second_per_gpu": plan.steps[0]["trained_tokens"] / 2}, 1)
    first.log_dict({"loss": 9.0, **told, "seconds": 1.0}, 2)
    first.close()
    again = StepLog(str(tmp_path / "output"), str(tmp_path / "planned.json"))
    for step in (2, 3, 4):
        again.log_dict({"loss": 4.0 / step, **told, "seconds": 0.5}, step)
    again.close()
    return tmp_path


def test_a_log_becomes_a_table_a_plot_and_tensorboards_files(run):
    keep_log(run)
    publish_log(run, "F", run / "results" / "metrics.tsv")
    with open(run / "results" / "metrics.tsv") as stream:
        rows = [
            {name: float(cell) if cell else None for name, cell in row.items()}
            for row in csv.DictReader(stream, delimiter="\t")
        ]
    assert [(row["step"], row["epoch"], row["loss"]) for row in rows] == [
        *((1, 0, 4), (2, 0, 2), (3, 1, pytest.approx(4 / 3, rel=1e-5)), (4, 1, 1))
    ]
    assert list(rows[0]) == list(COLUMNS) and rows[0]["seconds"] == 2 and rows[1]["seconds"] == 0.5
    assert rows[1]["tokens_per_second"] == pytest.approx(2 * rows[1]["tokens"], rel=1e-4)
    figure = ElementTree.parse(run / "results" / "training.svg").getroot()
    assert len(figure.findall(".//{*}polyline")) == 8
    told = scalars(run / "results" / "tensorboard")
    assert {(2, "train/loss", 9.0), (2, "train/loss", 2.0), (4, "train/loss", 1.0)} <= set(told)
    assert {tag for _, tag, _ in told} >= {"train/mfu", "train/padding_share", "train/tokens_per_second"}
    assert not (run / "output" / "metrics.jsonl").exists()


def test_a_line_cut_short_is_left_out(run):
    path = run / "output" / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]


def test_a_plot_bears_what_is_not_finite_and_names_with_markup():
    rows = [{"step": n, "tokens_seen": n * 10, "loss": math.nan if n == 3 else 1.0} for n in range(1, 900)]
    body = plot({"<a&b>": rows})
    (line,) = ElementTree.fromstring(body).findall(".//{*}polyline")
    points = line.attrib["points"].split()
    assert len(points) == 2 * 300 and not any("nan" in point for point in points)


def test_a_step_that_no_plan_knows_is_in_the_text_log(tmp_path):
    write_json(tmp_path / "planned.json", {"steps": [], "device": "cpu", "ranks": 1, "wandb": ""})
    log = StepLog(str(tmp_path), str(tmp_path / "planned.json"))
    log.log_dict({"loss": 0.6, "rewards/margins": 0.1}, 1)
    log.close()
    assert (tmp_path / "steps.txt").read_text() == "Step 1 | loss:0.6 rewards/margins:0.1\n"


def test_weights_and_biases_is_asked_before_training(monkeypatch):
    check_wandb("", {})
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(InputError, match="wandb: p, and no package wandb; expected pip install wandb"):
        check_wandb("p", {"WANDB_API_KEY": "x"})
    monkeypatch.setitem(__import__("sys").modules, "wandb", json)
    with pytest.raises(InputError, match="and no key; expected WANDB_API_KEY"):
        check_wandb("p", {})
    check_wandb("p", {"WANDB_MODE": "offline"})


def test_a_failing_service_does_not_end_a_training(monkeypatch, tmp_path, capfd):
    monkeypatch.setitem(__import__("sys").modules, "wandb", json)  # it has no `init`
    assert tensorboard_wandb.start_wandb("p", tmp_path) is None
    assert "wandb: not told of this run: AttributeError" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("trainer", "settings", "told"),
    [
        ("torchtune", {"packed": True, "group_by_length": True}, "train.packed with group_by_length"),
        ("torchtune", {"dpo": {}, "packed": True}, "train.dpo with packed or group_by_length"),
        ("trl", {"sharded": False}, "train.sharded is false; expected trainer: torchtune"),
        ("torchtune", {"sharded": False, "optimizer_in_bwd": True}, "train.sharded is false; expected"),
        ("trl", {"lora": {}}, "trainer trl with train.lora; expected trainer: torchtune"),
        ("trl", {"optimizer_in_bwd": True}, "trainer trl with train.optimizer_in_bwd"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(trainer, settings, told):
    recipe = {"base": "toy", "trainer": trainer, "train": settings}
    with pytest.raises(InputError, match=told):
        check_settings(recipes.complete(SFT, recipe, "recipe"))


def test_unfiltered_rows_are_refused_for_pairs():
    recipe = {"base": "toy", "selection": {"unresolved": True}, "train": {"dpo": {}}}
    with pytest.raises(InputError, match="train.dpo with selection.unresolved"):
        check_settings(recipes.complete(SFT, recipe, "recipe"))


CODE = "from swelab.sft.train.step_log import own_peak\nprint(own_peak())"


@pytest.mark.full
def test_a_peak_is_that_of_the_process_and_not_of_its_parent():
    held = bytearray(800 << 20)
    held[:: 1 << 12] = b"1" * len(held[:: 1 << 12])
    assert own_peak() > 800 << 10
    child = int(subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True).stdout)
    assert 10 << 10 < child < 700 << 10
    assert len(held)
