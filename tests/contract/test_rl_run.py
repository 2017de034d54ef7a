"""A real reinforcement learning run and its files. A faulty recipe gives one line."""

import io
import json
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from scripts import train_rl
from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.grading.grading_stage import Bench
from swelab.records import InputError, read_jsonl
from swelab.rl.learner import Learner
from swelab.rl.loop import Training
from swelab.rl.prompts import Prompts
from swelab.rl.rollouts import Place
from swelab.rl.step_reports import StepReports
from swelab.tasks.checkout import RepoStore
from tests.contract.small_rl import RECIPE, ROOT, command, journals, make_place, tasks
from tests.tensorboard_events import scalars

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of a finished training."""
    folder = make_place(tmp_path_factory.mktemp("rl"))
    done = subprocess.run(command(folder), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "log").write_text(done.stderr)
    return folder


def test_each_step_is_told(place):
    first, *rows = read_jsonl(place / "out/metrics.jsonl")
    assert first["step"] == 0 and "rollouts" not in first
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["step"] for row in (first, *rows) if "validation/tasks" in row] == [0, 2, 3]
    assert all(row["rollouts"] == 4 and row["train/tokens"] > 0 for row in rows)
    assert all(row["train/logprob_mismatch_max"] < 1e-3 for row in rows)
    said = (place / "log").read_text()
    assert "step 3 of 3: 4 rollouts, " in said and "validation after 3 steps: " in said
    assert "step 4 of 3" not in said
    assert {step for step, *_ in scalars(place / "out/tensorboard")} == {0, 1, 2, 3}
    shares = [row[name] for row in rows for name in ("idle/trainer", "idle/engine", "idle/places")]
    assert all(0 <= share <= 1 for share in shares) and all(row["memory/learner_mib"] > 50 for row in rows)
    assert len(journals(place)) == 3
    for path in [*journals(place), *place.glob("work/*/validation-*/*.jsonl")]:
        keys = [json.loads(text)["key"] for text in path.read_text().splitlines()]
        assert len(keys) == len(set(keys)), "something was sampled twice"


def again(place, folder, reports=None, **changes):
    """Repeats the whole training from its journals, without an engine and without a validation."""
    for path in journals(place):
        shutil.copy(path, folder / path.name)

    def ask(*_):
        raise AssertionError("an engine was asked")

    recipe = recipes.load(RL, place / "small.yaml")
    torch.set_num_threads(1)
    return Training(
        folder,
        place / "toy",
        Prompts(tasks(), recipe.train.seed),
        recipe.model_copy(update={"method": recipe.method.model_copy(update=changes)}),
        Place(Bench(RepoStore(place / "repos", folder / "repos"), None), {}, folder, ask),
        lambda checkpoint: Learner(checkpoint, recipe),
        lambda weights: 1,
        reports=reports,
    )


def test_what_was_sampled_gives_the_same_weights_again(place, tmp_path):
    (work,) = (place / "work").iterdir()
    training = again(place, tmp_path)
    last = load_file(training.run() / "model.safetensors")
    kept = load_file(place / "out/checkpoint/model.safetensors")
    assert all(torch.equal(value, kept[name]) for name, value in last.items())
    start = load_file(place / "toy/model.safetensors")
    assert not all(torch.equal(value, start[name]) for name, value in last.items())
    rows = [list(read_jsonl(folder / "metrics.jsonl"))[-3:] for folder in (tmp_path, work)]
    assert [row["train/loss"] for row in rows[0]] == [row["train/loss"] for row in rows[1]]


def test_a_training_whose_groups_are_all_constant_says_so_and_ends(place, tmp_path):
    """The toy model solves nothing, so all attempts of a group get the same reward."""
    said = io.StringIO()
    with pytest.raises(InputError) as caught:
        again(place, tmp_path, StepReports(tmp_path, stream=said), keep_constant=False).run()
    why = "metrics.jsonl: no step trained anything: of 6 groups 6 were dropped as constant; expected tasks"
    assert why in str(caught.value)
    steps = [
        line for line in said.getvalue().splitlines() if line.startswith("step ") and " rollouts" in line
    ]
    assert len(steps) == 3
    assert all("trained nothing: of 2 groups 2 were dropped as constant" in line for line in steps)
    rows = list(read_jsonl(tmp_path / "metrics.jsonl"))
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        told = (row["groups"], row["groups_trained"], row["groups_dropped/constant"], row["train/tokens"])
        assert told == (2, 0, 2, 0) and "train/loss" not in row
    last, start = tmp_path / "checkpoint-00003/model.safetensors", place / "toy/model.safetensors"
    assert all(torch.equal(value, load_file(start)[name]) for name, value in load_file(last).items())


def test_fewer_steps_than_were_finished_are_refused_and_nothing_is_lost(place, monkeypatch):
    before = {path: path.stat().st_mtime_ns for name in ("out", "work") for path in (place / name).rglob("*")}
    (place / "shorter.yaml").write_text(RECIPE.replace("steps: 3", "steps: 2"))
    monkeypatch.setattr("sys.argv", command(place, "shorter.yaml")[2:])
    with pytest.raises(InputError, match="train.steps is 2, and this run of the recipe has finished 3 steps"):
        train_rl.main()
    now = {path: path.stat().st_mtime_ns for name in ("out", "work") for path in (place / name).rglob("*")}
    assert now == before


def test_what_is_left_to_be_read(place):
    rows = list(read_jsonl(place / "out/validation.jsonl"))
    assert [(row["step"], "messages" in row) for row in rows] == [(0, True), (2, False), (3, True)]
    folders = sorted((place / "out/rollouts").iterdir())
    names = [Prompts(tasks(), 0).task(group).instance_id for group in range(6)]
    assert {folder.name for folder in folders} == {
        f"{name}__g{group}__i{index}" for group, name in enumerate(names) for index in range(2)
    }
    for folder in folders:
        told = json.loads((folder / "traj.json").read_text())
        assert told["info"]["instance_id"] == folder.name.rpartition("__g")[0]
        assert told["info"]["reward"] in (0.0, 1.0)
        assert told["messages"][2]["role"] == "assistant" and told["step_debug"] is not None
        meta = json.loads((folder / "meta.json").read_text())
        assert meta["sampling_params"] == {"temperature": 1.0, "top_p": 1.0, "max_tokens": 24}
        assert (folder / "patch.diff").exists() and "a - b" not in (folder / "traj.json").read_text()
