"""torchtune's recipes by name: killed runs end like unbroken runs, and every recipe makes its outputs."""

import json
import os
import sys

import pytest
from omegaconf import OmegaConf
from safetensors.numpy import load_file

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.records import read_json, write_jsonl
from swelab.sft.train.ranks import ranks_of, recipe_of
from swelab.sft.train.step_log import STEPS, step_rows
from swelab.sft.train.torchtune_bridge import configuration, write_config
from swelab.sft.train.training import check_inputs, plan_run, stage
from tests.conftest import run_program
from tests.toy_checkpoint import conversations, make_checkpoint

pytestmark = pytest.mark.full

TRAIN = {
    "epochs": 2,
    "batch_size": 2,
    "gradient_accumulation_steps": 2,
    "lr": 0.01,
    "warmup_steps": 2,
    "threads": 1,
}
IN_BACKWARD = {
    "batch_size": 4,
    "gradient_accumulation_steps": 1,
    "optimizer_in_bwd": True,
    "clip_grad_norm": None,
}
WHOLE = {"sharded": False, "group_by_length": True}
RECIPES = {
    "full": {"train": TRAIN},
    "lora": {
        "recipe": "lora_finetune_single_device",
        # The adapters' random numbers continue after a kill.
        "train": {**TRAIN, "lora": {"rank": 4, "alpha": 8, "dropout": 0.1}},
    },
    "full on two ranks": {"train": TRAIN, "job": {"ranks": 2}},
    "all weights on two ranks": {"train": {**TRAIN, **WHOLE}, "job": {"ranks": 2}},
    "optimizer in backward": {"train": {**TRAIN, **IN_BACKWARD}, "job": {"ranks": 2}},
    "dpo": {"recipe": "full_dpo_distributed", "train": {**TRAIN, "dpo": {"beta": 0.1}}},
}
# 19 rows in steps of 4: the last 3 make no step. Kills at the first, middle and last steps of both passes.
KILLS = [[1, "before"], [3, "writing"], [4, "saved"], [7, "before"]]


def pairs(count):
    """Returns pairs of conversations with different actions of the policy."""
    found = []
    for row in conversations(count):
        rejected = [dict(message) for message in row["messages"]]
        rejected[2]["content"] = "```bash\nexit 1\n```"
        sides = {"chosen_conversations": row["messages"], "rejected_conversations": rejected}
        found.append({**sides, "instance_id": row["instance_id"]})
    return found


def plan(base, folder, recipe, kills):
    """Returns the description of a training in `folder`."""
    dataset = base.parent / ("pairs.jsonl" if recipe.train.dpo else "rows.jsonl")
    rows = pairs(19) if recipe.train.dpo else conversations(19)
    rows[0].get("messages", [{}])[-1]["weight"] = 1  # not torchtune's reader, which takes a second to start
    write_jsonl(dataset, rows)
    folder.mkdir()
    run = plan_run(base, recipe, check_inputs(base, dataset, recipe.train))
    run.write(folder, recipe)
    write_config(folder / "c.yaml", configuration(base, dataset, folder, recipe, run))
    places = {"config": str(folder / "c.yaml"), "steps": str(folder / "steps")}
    return {"recipe": recipe_of(recipe), "ranks": ranks_of(recipe).total, "kills": kills, **places}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with all trainings, each as `whole` and as `broken`."""
    folder = tmp_path_factory.mktemp("resume")
    base = make_checkpoint(folder / "toy")
    plans = []
    for name, settings in RECIPES.items():
        recipe = recipes.complete(SFT, {"base": "toy", **settings}, name)
        plans.append(plan(base, folder / f"{name} whole", recipe, []))
        plans.append(plan(base, folder / f"{name} broken", recipe, KILLS if name == "full" else KILLS[1:3]))
    done = run_program(
        [sys.executable, "-m", "tests.contract.broken_training"],
        input="\n".join(map(json.dumps, plans)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def outcome(folder):
    """Returns the loss of each step, and the weights."""
    (weights,) = folder.glob("output/epoch_1/model-*.safetensors")
    return [(row["step"], row["loss"]) for row in step_rows(folder / "output" / STEPS)], load_file(weights)


@pytest.mark.parametrize("name", RECIPES)
def test_a_killed_training_goes_on_as_if_nothing_had_been(name, trained):
    whole, weights = outcome(trained / f"{name} whole")
    broken, others = outcome(trained / f"{name} broken")
    assert [step for step, _ in whole] == list(range(1, 9)) and whole[-1][1] < whole[0][1]
    assert broken == [(step, pytest.approx(loss, rel=1e-6)) for step, loss in whole]
    assert weights.keys() == others.keys()
    for key in weights:
        assert abs(weights[key] - others[key]).max() <= 1e-6 * abs(weights[key]).max(), key
    assert [path.name for path in (trained / f"{name} broken" / "steps").iterdir()] == ["step_8"]


@pytest.mark.parametrize("name", ["full on two ranks", "all weights on two ranks"])
def test_ranks_learn_what_one_process_does(name, trained):
    one, two = outcome(trained / "full whole")[0], outcome(trained / f"{name} whole")[0]
    assert two == [(step, pytest.approx(loss, rel=1e-4)) for step, loss in one]


def test_an_adapter_on_the_base_is_the_merged_model(trained, tmp_path):
    checkpoint = stage(trained / "lora whole" / "output" / "epoch_1", tmp_path / "checkpoint")
    assert sorted(path.name for path in checkpoint.glob("*.safetensors")) == ["model.safetensors"]
    adapter = load_file(checkpoint / "adapter" / "adapter_model.safetensors")
    settings = read_json(checkpoint / "adapter" / "adapter_config.json")
    base, merged = (load_file(each / "model.safetensors") for each in (trained / "toy", checkpoint))
    scale, changed = settings["lora_alpha"] / settings["r"], 0
    for name, weight in base.items():
        part = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{part}.lora_A.weight" in adapter:
            change = scale * adapter[f"{part}.lora_B.weight"] @ adapter[f"{part}.lora_A.weight"]
            changed += abs(change).max() > 1e-4
            weight = weight + change
        assert abs(merged[name] - weight).max() < 1e-5, name
    assert changed == 2 * 7 == len(adapter) / 2  # every projection of both layers
    assert {"q_proj", "o_proj", "up_proj"} < set(settings["target_modules"])


def test_preference_learning_widens_the_margin(trained):
    rows = step_rows(trained / "dpo whole" / "output" / STEPS)
    assert rows[0]["reward_margin"] == 0  # the reference model is the start
    assert rows[-1]["reward_margin"] > 1 and rows[-1]["reward_accuracy"] == 1
    assert rows[-1]["chosen_log_prob"] - rows[-1]["rejected_log_prob"] > (
        rows[0]["chosen_log_prob"] - rows[0]["rejected_log_prob"]
    )


def test_pairs_are_read_as_torchtunes_own_dataset_reads_them(trained):
    from torchtune.datasets import preference_dataset

    from swelab.sft.train.checkpoint_parity import _instantiate
    from swelab.sft.train.torchtune_datasets import pair_dataset

    settings = OmegaConf.load(trained / "dpo whole" / "c.yaml")
    tokenizer, data = _instantiate(settings.tokenizer), str(trained / "pairs.jsonl")
    columns = {"chosen": "chosen_conversations", "rejected": "rejected_conversations"}
    theirs = preference_dataset(
        tokenizer, source="json", data_files=data, column_map=columns, cache_dir=str(trained / "cache")
    )
    ours = pair_dataset(tokenizer, data_files=data, base=str(trained / "toy"))
    assert len(ours) == len(theirs) == 19
    assert [ours[number] for number in range(19)] == [theirs[number] for number in range(19)]
