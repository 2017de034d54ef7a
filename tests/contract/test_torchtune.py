"""The real trainer on a toy model: it learns, equal runs are equal, and a killed run is resumed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from swelab.records import read_json, read_jsonl, write_json, write_jsonl
from swelab.sft.train.step_states import last_step
from tests.conftest import run_program
from tests.contract.attacks import processes_with, until
from tests.toy_checkpoint import conversations, make_checkpoint

ROOT = Path(__file__).resolve().parents[2]
RECIPE = {"base": "toy", "train": {"epochs": 3, "batch_size": 8, "lr": 0.01, "warmup_steps": 2, "threads": 1}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sft")
    make_checkpoint(folder / "toy")
    (folder / "toy.json").write_text("{}")
    write_jsonl(folder / "data.jsonl", conversations(36))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    done = run_program(command(folder, "one"), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder


def command(folder, name):
    out = folder / name
    return [
        *(sys.executable, "-m", "scripts.train_sft", "--dataset", folder / "data.jsonl"),
        *("--base", folder / "toy.json", "--recipe", folder / "recipe.yaml"),
        # One progress folder, because its path is part of the recorded configuration.
        *("--progress", folder / "progress", "--checkpoint", out / "checkpoint"),
        *("--manifest", out / "checkpoint.json", "--loss", out / "loss.jsonl"),
    ]


def test_it_learns_and_leaves_a_clean_checkpoint(made):
    loss = list(read_jsonl(made / "one" / "loss.jsonl"))
    assert [row["step"] for row in loss] == list(range(1, 13))
    assert loss[-1]["loss"] < 0.7 * loss[0]["loss"] and {"lr", "tokens_per_second"} <= loss[0].keys()
    checkpoint = made / "one" / "checkpoint"
    assert {path.name for path in checkpoint.iterdir()} == {
        *("config.json", "config.yaml", "generation_config.json", "model.safetensors"),
        *("merges.txt", "vocab.json", "tokenizer.json", "tokenizer_config.json"),
    }
    manifest = read_json(made / "one" / "checkpoint.json")
    assert manifest["steps"] == 12 and manifest["rows_left_out_of_each_epoch"] == 4
    assert manifest["parity"]["max_logit_difference"] < 1e-4
    assert (
        manifest["parity"]["last_turn_end_has_loss"]
        and manifest["parity"]["split_otherwise_by_chat_template"] == 0
    )
    assert "\r" not in (made / "progress" / "train.log").read_text()
    assert not list(made.glob("progress/output*"))


@pytest.mark.full
def test_a_killed_run_leaves_no_process_and_ends_like_an_unbroken_one(made):
    run = subprocess.Popen(command(made, "two"), cwd=ROOT, stderr=subprocess.DEVNULL)
    steps = made / "progress" / "steps"
    until(lambda: last_step(steps) or run.poll() is not None, 600)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert until(lambda: not processes_with(str(made / "progress")))
    done = run_program(command(made, "two"), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert read_json(made / "two" / "checkpoint.json") == read_json(made / "one" / "checkpoint.json")
    assert len(list(read_jsonl(made / "two" / "loss.jsonl"))) == 12


@pytest.mark.full
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="it fails for want of a GPU")
def test_a_trainer_that_fails_is_one_line(made):
    broken = yaml.safe_dump({**RECIPE, "train": {**RECIPE["train"], "device": "cuda"}})
    (made / "recipe.yaml").write_text(broken)
    done = run_program(command(made, "three"), cwd=ROOT)
    (made / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: the trainer ended with")
    assert not (made / "three").exists()


def test_a_checkpoint_whose_readers_disagree_is_refused(made, tmp_path):
    import shutil

    from swelab.sft.train.checkpoint_parity import ParityError, check_parity

    folder = tmp_path / "checkpoint"
    shutil.copytree(made / "one" / "checkpoint", folder)
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert check_parity(folder, settings, made / "data.jsonl")["tokens"] > 50
    with pytest.raises(ParityError, match="logits"):
        check_parity(
            folder, {**settings, "model": {**settings["model"], "rope_base": 9e5}}, made / "data.jsonl"
        )
    told = read_json(folder / "tokenizer_config.json")
    template = told["chat_template"].replace("message['content']", "message['content'] | upper")
    write_json(folder / "tokenizer_config.json", {**told, "chat_template": template})
    with pytest.raises(ParityError, match="the chat template's text is not the text"):
        check_parity(folder, settings, made / "data.jsonl")


def test_a_content_that_begins_with_a_newline_is_counted_not_refused(made, tmp_path):
    from swelab.sft.train.checkpoint_parity import check_parity

    rows = conversations(2)
    rows[1]["messages"][3]["content"] = "\n\nexit 0"
    write_jsonl(tmp_path / "data.jsonl", rows)
    checkpoint = made / "one" / "checkpoint"
    settings = yaml.safe_load((checkpoint / "config.yaml").read_text())
    parity = check_parity(checkpoint, settings, tmp_path / "data.jsonl")
    assert parity["conversations"] == 2 and parity["split_otherwise_by_chat_template"] <= 1
