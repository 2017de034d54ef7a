"""The real trainer on rows that torchtune's own dataset cannot read: turns of weight 0, and tool calls."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from swelab.configs.kinds.sft import Train
from swelab.records import read_json, read_jsonl, write_json, write_jsonl
from swelab.sft.rows.chat_template import PlainRows
from swelab.sft.rows.lengths import ChatTokenizer
from tests.toy_checkpoint import conversations, make_checkpoint
from tests.unit.sft.rows.test_selection import TEMPLATE

ROOT = Path(__file__).resolve().parents[2]
RECIPE = {"base": "toy", "train": {"epochs": 2, "batch_size": 4, "lr": 0.01, "warmup_steps": 1, "threads": 1}}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {}}}},
    }
]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = make_checkpoint(tmp_path_factory.mktemp("sft") / "toy")
    (folder.parent / "toy.json").write_text("{}")
    settings = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", settings | {"chat_template": TEMPLATE})
    return folder


def rows():
    """Conversations, every second with a masked turn; then the same with tool calls."""
    found = conversations(8)
    for row in found[::2]:
        row["messages"][2]["weight"] = 0
    for row in conversations(8):
        for number in (2, 4):
            said = row["messages"][number]["content"]
            call = {"id": f"c{number}", "type": "function"}
            call["function"] = {"name": "bash", "arguments": f'{{"command": "echo {len(said)}"}}'}
            row["messages"][number] |= {"content": "I run it.", "tool_calls": [call]}
        row["messages"][3] |= {"role": "tool", "tool_call_id": "c2"}
        found.append(row | {"tools": TOOLS})
    return found


def test_labels_are_those_that_were_measured(base, tmp_path):
    from swelab.sft.train.checkpoint_parity import _instantiate
    from swelab.sft.train.torchtune_bridge import torchtune_config
    from swelab.sft.train.torchtune_datasets import chat_dataset

    write_jsonl(tmp_path / "data.jsonl", rows())
    train = Train(**RECIPE["train"], device="cpu", dtype="fp32", betas=[0.9, 0.999], weight_decay=0)
    config = torchtune_config(base, tmp_path / "data.jsonl", tmp_path, train)
    assert config["dataset"].pop("_component_") == "swelab.sft.train.torchtune_datasets.chat_dataset"
    data = chat_dataset(_instantiate(config["tokenizer"]), **config["dataset"])
    assert len(data) == 16
    plain, tokenizer = PlainRows(base), ChatTokenizer(base)
    shares = []
    for row, sample in zip(rows(), (data[number] for number in range(16))):
        ids, trained = tokenizer.encode(plain.of(row))
        assert sample["tokens"] == ids
        assert [label != -100 for label in sample["labels"]] == trained
        shares.append(sum(trained))
    assert shares[0] < shares[1]  # the masked turn


@pytest.mark.full
def test_it_trains_and_passes_parity(base, tmp_path):
    write_jsonl(tmp_path / "data.jsonl", rows())
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    command = [sys.executable, "-m", "scripts.train_sft", "--dataset", tmp_path / "data.jsonl"]
    command += ["--base", base.parent / "toy.json", "--recipe", tmp_path / "recipe.yaml"]
    command += [f"--progress={tmp_path / 'work'}", f"--checkpoint={tmp_path / 'out'}"]
    command += [f"--manifest={tmp_path / 'out.json'}", f"--loss={tmp_path / 'loss.jsonl'}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert len(list(read_jsonl(tmp_path / "loss.jsonl"))) == 8
    assert read_json(tmp_path / "out.json")["parity"]["conversations"] == 16
