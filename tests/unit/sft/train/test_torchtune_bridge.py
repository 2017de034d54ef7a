"""Training's inputs are checked before the start, and its files are rearranged after it."""

import json
import os

import pytest
import transformers
import yaml
from omegaconf import OmegaConf
from torchtune.config import instantiate

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.records import InputError, read_json, write_json, write_jsonl
from swelab.sft.rows import chat_template
from swelab.sft.rows.lengths import ChatTokenizer
from swelab.sft.train import base_reading
from swelab.sft.train.base_reading import ParityError, compare_rows
from swelab.sft.train.own_model import take_folder
from swelab.sft.train.row_lengths import lengths_record
from swelab.sft.train.step_log import STEPS, step_rows
from swelab.sft.train.token_rows import TokenRows
from swelab.sft.train.torchtune_bridge import torchtune_config
from swelab.sft.train.torchtune_datasets import WeightedMessages, chat_dataset
from swelab.sft.train.trainer_process import FINISHED, prepare, training_key
from swelab.sft.train.training import RESULT, check_inputs, earlier_result, facts, identity, stage
from tests.toy_checkpoint import conversations, make_checkpoint


@pytest.fixture
def base(tmp_path):
    return make_checkpoint(tmp_path / "toy")


@pytest.fixture
def dataset(tmp_path):
    write_jsonl(tmp_path / "data.jsonl", conversations(10))
    return tmp_path / "data.jsonl"


def train(**settings):
    return recipes.complete(SFT, {"base": "toy", "train": settings}, "recipe").train


def test_facts_of_a_run(base, dataset):
    settings = train(batch_size=4, epochs=3)
    lengths = [ChatTokenizer(base).measure(row["messages"]) for row in conversations(10)]
    assert check_inputs(base, dataset, settings) == lengths
    told = facts(lengths, settings)
    assert told["rows"] == 10 and told["steps_per_epoch"] == 2 and told["rows_left_out_of_each_epoch"] == 2
    assert told["tokens"] == 3 * sum(length.tokens for length in lengths)
    assert told["assistant_tokens"] == 3 * sum(length.assistant_tokens for length in lengths)


def test_rows_that_the_preflight_measured_are_not_measured_again(base, dataset, tmp_path, monkeypatch):
    report, settings = tmp_path / "preflight.json", train()
    write_json(report, {"lengths": lengths_record(base, dataset, settings)})
    measured = facts(check_inputs(base, dataset, settings), settings)

    def refuse(*_):
        raise AssertionError("measured")

    monkeypatch.setattr(ChatTokenizer, "measure", refuse)
    assert facts(check_inputs(base, dataset, settings, preflight=report), settings) == measured
    template = (base / "tokenizer_config.json").read_text()
    for path, text in (
        (dataset, dataset.read_text() + "\n"),
        (base / "tokenizer_config.json", template + " "),
    ):
        before = path.read_text()
        path.write_text(text)
        with pytest.raises(AssertionError, match="measured"):
            check_inputs(base, dataset, settings, preflight=report)
        path.write_text(before)


def no_assistant(rows):
    rows[3]["messages"] = rows[3]["messages"][:2]


def too_long(rows):
    rows[3]["messages"][1]["content"] += " again" * 300


@pytest.mark.parametrize(
    ("harm", "settings", "message"),
    [
        (no_assistant, {}, "row 4: has no assistant turn"),
        (too_long, {}, "row 4: .* tokens; expected at most 512"),
        (lambda rows: rows[0].pop("messages"), {}, "row 1: field"),
        (lambda rows: rows.clear(), {}, "0 rows; expected at least the 1"),
        (
            lambda rows: None,
            {"batch_size": 8, "gradient_accumulation_steps": 2},
            "10 rows; expected at least the 16",
        ),
    ],
)
def test_unfit_datasets_are_refused(base, tmp_path, harm, settings, message):
    rows = conversations(10)
    harm(rows)
    write_jsonl(tmp_path / "data.jsonl", rows)
    with pytest.raises(InputError, match=message):
        check_inputs(base, tmp_path / "data.jsonl", train(**settings))


def test_a_cut_off_dataset_is_refused_with_its_line(base, dataset):
    os.truncate(dataset, dataset.stat().st_size - 20)
    with pytest.raises(InputError, match="line 10: not JSON.*cut short"):
        check_inputs(base, dataset, train())


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: no such file"),
        (lambda f: os.truncate(f / "model.safetensors", 200_000), "a whole safetensors file"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: no such file"),
    ],
)
def test_unfit_base_models_are_refused(base, dataset, harm, message):
    harm(base)
    with pytest.raises(InputError, match=message):
        check_inputs(base, dataset, train())


def test_an_architecture_that_is_not_mapped_is_refused(base, dataset):
    config = read_json(base / "config.json")
    (base / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(InputError, match="LlamaForCausalLM with trainer: torchtune; expected trainer: trl"):
        check_inputs(base, dataset, train())


def test_the_trainers_configuration_follows_model_and_recipe(base, dataset, tmp_path):
    settings = train(epochs=2, lr=0.5, betas=[0.1, 0.2], warmup_steps=7, device="cpu", dtype="bf16")
    config = torchtune_config(base, dataset, tmp_path / "out", settings)
    assert yaml.safe_load(yaml.safe_dump(config)) == config
    assert config["model"]["embed_dim"] == 64 and config["model"]["rope_base"] == 500.0
    assert config["dataset"]["_component_"].startswith("swelab.") and config["epochs"] == 2
    assert config["optimizer"]["betas"] == [0.1, 0.2] and config["dtype"] == "bf16"
    assert config["lr_scheduler"]["num_warmup_steps"] == 7


@pytest.mark.parametrize("trainer", ["torchtune", "trl"])
def test_a_folder_that_transformers_writes_today_can_be_trained(base, dataset, tmp_path, trainer):
    written = tmp_path / "written"
    for kind in (transformers.AutoTokenizer, transformers.AutoModelForCausalLM):
        kind.from_pretrained(base).save_pretrained(written)
    assert not (written / "vocab.json").exists() and not (written / "merges.txt").exists()
    taken = tmp_path / "taken"
    assert "tokenizer.json" in take_folder(written, taken)["files"]
    assert check_inputs(taken, dataset, train(), trainer) == check_inputs(base, dataset, train(), trainer)


def test_the_tokens_of_torchtune_are_those_of_tokenizer_json(base, dataset):
    (base / "vocab.json").write_text("{}")  # nothing reads it
    config = torchtune_config(base, dataset, base / "out", train())
    rows = conversations(10)
    rows[3]["messages"][2]["weight"] = 0
    ours, to_messages = ChatTokenizer(base), WeightedMessages(str(base))
    theirs = instantiate(OmegaConf.create(config["tokenizer"]))
    assert theirs.pad_id == ours.special_tokens["<|endoftext|>"]
    for row in rows:
        tokens, trained = ours.encode(row.messages)
        told = theirs(to_messages(row) | {"more": 1})
        assert told == {"tokens": tokens, "mask": [not each for each in trained], "more": 1}
    facts = compare_rows(base, rows)
    assert facts["conversations"] == 10 and facts["split_otherwise_by_chat_template"] == 0


def test_both_trainers_train_on_exactly_the_marked_text(base, tmp_path, capsys):
    """The template marks the text of a turn, but neither its header nor its end."""
    turn = "{{ '<|im_start|>' + m.role + '\n' }}"
    text = "{% generation %}{{ m.content }}{% endgeneration %}"
    template = "{% for m in messages %}" + turn + "{% if m.role == 'assistant' %}" + text
    template += "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    settings = read_json(base / "tokenizer_config.json") | {"chat_template": template}
    write_json(base / "tokenizer_config.json", settings)
    rows = conversations(3)
    rows[1]["messages"][2]["weight"] = 0
    write_jsonl(tmp_path / "rows.jsonl", rows)
    config = torchtune_config(base, tmp_path / "rows.jsonl", base / "out", train())
    tokenizer = instantiate(OmegaConf.create(config["tokenizer"]))
    ours = TokenRows(tmp_path / "rows.jsonl", base)
    theirs = chat_dataset(tokenizer, data_files=str(tmp_path / "rows.jsonl"), base=str(base))
    for number in range(3):
        sample, row = ours[number], theirs[number]
        assert list(row["tokens"]) == sample.tokens and list(row["labels"])[1:] == sample.labels[1:]
        spoken = [each["content"] for each in rows[number]["messages"] if each["role"] == "assistant"]
        trained = [token for token in row["labels"] if token != -100]
        expected = "".join(spoken if number != 1 else spoken[1:])
        assert transformers.AutoTokenizer.from_pretrained(base).decode(trained) == expected
    facts = compare_rows(base, rows)
    assert not facts["last_turn_end_has_loss"]
    assert "does not mark the ends of turns" in capsys.readouterr().err


def test_the_text_of_every_row_is_compared_and_the_tokens_of_some(base, monkeypatch):
    monkeypatch.setattr(base_reading, "EVERY_TOKEN", 2)
    monkeypatch.setattr(base_reading, "ONE_OF", 3)
    turn = "{{ '<|im_start|>' + m.role + '\n' + m.content | replace('LATE', '') + '<|im_end|>\n' }}"
    template = "{% for m in messages %}" + turn + "{% endfor %}"
    settings = read_json(base / "tokenizer_config.json") | {"chat_template": template}
    write_json(base / "tokenizer_config.json", settings)
    rows = conversations(8)
    facts = compare_rows(base, rows)
    assert (facts["conversations"], facts["compared_by_token"]) == (8, 4)  # rows 1, 2, 3, 6
    rows[7]["messages"][1]["content"] += "LATE"
    with pytest.raises(ParityError, match="the chat template's text is not the text that is trained on"):
        compare_rows(base, rows)


def test_step_rows_keep_the_last_run_of_a_step(tmp_path):
    (tmp_path / "s.txt").write_text(
        "Step 1 | loss:2.5 lr:0.1 tokens_per_second_per_gpu:10.0 grad_norm:tensor(0.5) \n"
        "Step 2 | loss:9.0 lr:0.1 tokens_per_second_per_gpu:10.0 grad_norm:1.0 \n"
        "noise\n"
        "Step 2 | loss:1.5 lr:0.2 tokens_per_second_per_gpu:10.0 grad_norm:1.0 \n"
    )
    rows = step_rows(tmp_path / "s.txt")
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 2.5), (2, 1.5)]
    assert rows[0]["grad_norm"] == 0.5


def test_only_what_the_same_run_left_is_taken_up(tmp_path):
    work = tmp_path / "work"
    final = work / "output/epoch_1"
    assert not prepare(work, "a", final) and list(work.iterdir()) == [work / "key.json"]
    for folder in ("steps/step_3", "output/epoch_0"):
        (work / folder).mkdir(parents=True)
    (work / "output" / STEPS).write_text("Step 1 | loss:2.5 \nStep 2 | lo")
    assert not prepare(work, "a", final)
    assert (work / "steps/step_3").is_dir() and not (work / "output/epoch_0").exists()
    assert (work / "output" / STEPS).read_text() == "Step 1 | loss:2.5 \n"
    (work / FINISHED).write_text('"a"')
    final.mkdir()
    assert prepare(work, "a", final)
    final.rmdir()
    assert not prepare(work, "a", final) and not (work / FINISHED).exists()
    final.mkdir()  # the next run was killed while it wrote this
    assert not prepare(work, "a", final) and not final.exists()
    assert not prepare(work, "another", final) and list(work.iterdir()) == [work / "key.json"]


@pytest.mark.parametrize("name", ["chat_template.jinja", "config.json", "vocab.json", "model.safetensors"])
def test_another_base_is_another_training(base, dataset, name):
    recipe = recipes.complete(SFT, {"base": "toy", "selection": {}, "train": {}}, "r")
    before = training_key(base, dataset, recipe)
    written = {"train": {"weight_decay": 0.01, "clip_grad_norm": 1, "epochs": 3}, "base": "toy"}
    assert training_key(base, dataset, recipes.complete(SFT, written, "r")) == before
    (base / "notes.md").write_text("mine")
    assert training_key(base, dataset, recipe) == before
    with open(base / name, "ab") as stream:
        stream.write(b" ")
    assert training_key(base, dataset, recipe) != before


@pytest.mark.parametrize("marked", [False, True])
def test_another_reading_of_marks_is_another_training_only_of_a_base_with_marks(
    base, dataset, monkeypatch, marked
):
    body = "{% generation %}{{ m.content }}{% endgeneration %}" if marked else "{{ m.content }}"
    turn = "<|im_start|>{{ m.role }}\n" + body + "<|im_end|>\n"
    (base / "chat_template.jinja").write_text("{% for m in messages %}" + turn + "{% endfor %}")
    recipe = recipes.complete(SFT, {"base": "toy", "selection": {}, "train": {}}, "r")
    before = training_key(base, dataset, recipe)
    monkeypatch.setattr(chat_template, "MARKS_VERSION", chat_template.MARKS_VERSION + 1)
    assert (training_key(base, dataset, recipe) != before) == marked


def test_a_finished_training_is_found_by_its_key(base, tmp_path):
    work = tmp_path / "work"
    assert earlier_result(work, "a", base) is None
    write_json(work / RESULT, {"key": "a", "checkpoint": identity(base), "loss": []})
    assert earlier_result(work, "a", base)["loss"] == []
    assert (
        earlier_result(work, "another", base) is None and earlier_result(work, "a", tmp_path / "none") is None
    )
    with open(base / "model.safetensors", "ab") as stream:
        stream.write(b" ")
    assert earlier_result(work, "a", base) is None


def test_a_staged_checkpoint_is_clean(base, tmp_path):
    epoch = tmp_path / "epoch_0"
    base.rename(epoch)
    (epoch / "model.safetensors").rename(epoch / "model-00001-of-00001.safetensors")
    (epoch / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}})
    )
    folder = stage(epoch, tmp_path / "checkpoint")
    assert (folder / "model.safetensors").is_file() and not list(folder.glob("*of*"))
    before = identity(folder)
    (folder / "config.yaml").write_text("x: 1")
    assert identity(folder)["digest"] == before["digest"]
    with open(folder / "model.safetensors", "r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\x7f")
    assert identity(folder)["digest"] != before["digest"]
