"""The record of a training: the recipes and files on which its weights depend, and nothing else."""

import shutil
from pathlib import Path

import pytest
import yaml

from scripts import train_rl
from swelab.grading.witness_store import WitnessWriter
from swelab.records import read_json, write_json
from swelab.scores.trail import follow
from swelab.scores.verification import Verification, check_files, check_recipes, other_recipe
from tests.contract.small_rl import RECIPE, ROOT, command, make_place

STAGE = "results/rl/small/checkpoint.manifest.json"
FILES = {
    "rl": "configs/rl/small.yaml",
    "scaffold": "configs/scaffolds/demo.yaml",
    "judge": "configs/policies/rater.yaml",
}
JUDGE = "{kind: checkpoint, scaffold: demo, weights: rater, context_length: 512}\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a finished training whose weights are those of its start. The learner is not called."""
    make_place(tmp_path)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    shutil.copytree(tmp_path / "toy", tmp_path / "rater")
    with open(tmp_path / "some.witness.zip", "wb") as stream, WitnessWriter(stream):
        pass
    (tmp_path / FILES["rl"]).write_text(RECIPE + "judge: {policy: rater}\n")
    (tmp_path / FILES["judge"]).write_text(JUDGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_rl, "train_policy", train_nothing)
    train(monkeypatch)
    return tmp_path


def train_nothing(recipe, start, reads, folder, reports):
    """Writes the files of a training without a step."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("metrics.jsonl", "validation.jsonl"):
        (folder / name).write_text("")
    return start


def train(monkeypatch):
    words = [word.replace("out/", "results/rl/small/") for word in command(Path.cwd(), FILES["rl"])[2:]]
    monkeypatch.setattr("sys.argv", [*words, "--witness", "some.witness.zip"])
    train_rl.main()


def edit(name, **changes):
    path = Path(FILES[name])
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def findings():
    """Returns the findings of scripts.verify on the training, after the check that a rerun asks the same."""
    trail = follow(["results/rl/small/checkpoint.json"])
    assert STAGE in trail.stages
    faults = [*check_files(trail, Verification()), *check_recipes(trail.stages)]
    recipes = [each.what for each in faults if each.kind == "recipe"]
    assert other_recipe("results/rl/small/checkpoint") == next(iter(recipes), "")
    return [f"{each.path}: {each.what}" for each in faults]


def test_where_a_training_runs_is_no_part_of_its_record(place, monkeypatch):
    assert findings() == []
    made = read_json("results/rl/small/checkpoint.json")
    edit("rl", job={"minutes": 7}, wandb="mine", listen="0.0.0.0", verl={"rollout": {"memory": 0.1}})
    edit("judge", job={"minutes": 7}, samples=3)
    assert findings() == []
    edit("rl", wandb="")
    train(monkeypatch)
    assert read_json("results/rl/small/checkpoint.json") == made


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("rl", {"train": {"steps": 3, "lr": 2.0e-3}}, "train.lr was 0.001, is 0.002 now"),
        ("rl", {"engine": "verl"}, "engine was 'embedded', is 'verl' now"),
        ("scaffold", {"step_limit": 3}, "step_limit was "),
        ("judge", {"context_length": 256}, "context_length was 512, is 256 now"),
    ],
)
def test_every_recipe_behind_the_weights_is_recorded(place, name, changes, said):
    edit(name, **changes)
    (line,) = findings()
    assert f"{FILES[name]} is another now: " in line and said in line


@pytest.mark.parametrize(
    "name", ["toy.json", "some.json", "some.witness.zip", "held.json", "rater/config.json"]
)
def test_every_file_behind_the_weights_is_recorded(place, name):
    path = Path(name)
    path.write_bytes(path.read_bytes() + b"\n")
    (line,) = findings()
    assert f"{name.partition('/')[0]}: changed since " in line


def test_an_earlier_record_of_the_whole_recipe_gives_one_difference(place):
    """Such a record names neither scaffold nor judge."""
    manifest = read_json(STAGE)
    whole = {**manifest["recipes"][FILES["rl"]]["used"], "job": None, "wandb": "", "listen": "127.0.0.1"}
    record = {FILES["rl"]: {**manifest["recipes"][FILES["rl"]], "used": whole}}
    write_json(STAGE, {**manifest, "recipes": record})
    assert len(findings()) == 1


def test_a_changed_scaffold_begins_a_new_run(place, monkeypatch):
    edit("scaffold", step_limit=3)
    train(monkeypatch)
    assert len(list(Path("work").iterdir())) == 2 and findings() == []
