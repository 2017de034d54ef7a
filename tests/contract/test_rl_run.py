"""A real training on test results: killed again and again, nothing is sampled twice, and it ends well."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.grading.grading_stage import Bench
from swelab.records import InputError, read_jsonl, write_json
from swelab.rl.learner import Learner
from swelab.rl.loop import Training
from swelab.rl.prompts import Prompts
from swelab.rl.rollouts import Place
from swelab.rl.step_reports import StepReports
from swelab.rl.training_run import method_of, settings_of
from swelab.tasks.checkout import RepoStore
from tests.conftest import make_repos, make_task
from tests.tensorboard_events import scalars
from tests.toy_checkpoint import make_checkpoint

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("SWELAB_KILLS", "2"))
RECIPE = """
start: model:toy
subset: some
scaffold: demo
rollouts: {prompts: 2, samples: 2, at_once: 4, max_tokens: 24, context_length: 512, max_total_tokens: 4096}
method: {keep_constant: true, entropy: 0.01}
train: {steps: 3, lr: 1.0e-3, threads: 1, batch_tokens: 2048}
validation: {subset: held, every: 2}
"""


def tasks():
    """Two tasks with the same bug."""
    other = {"instance_id": "swelab__calc.00000000.func_pm_op_change__dddd5678", "bug": "2" * 16}
    return [make_task(), make_task() | other]


def held_out_task():
    told = {"instance_id": "swelab__calc.00000000.func_pm_op_change__eeee1234", "bug": "1" * 16}
    return make_task() | told | {"function": "calc/core.py::last"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with all that a training reads."""
    folder = tmp_path_factory.mktemp("rl")
    make_checkpoint(folder / "toy")
    write_json(folder / "toy.json", {"digest": "0" * 64})
    write_json(folder / "some.json", tasks())
    write_json(folder / "held.json", [held_out_task()])
    make_repos(folder)
    (folder / "small.yaml").write_text(RECIPE)
    return folder


def command(place, recipe="small.yaml"):
    said = {
        "recipe": place / recipe,
        "start": place / "toy.json",
        "tasks": place / "some.json",
        "repos-dir": place / "repos",
        "progress": place / "work",
        "checkpoint": place / "out/checkpoint",
        "manifest": place / "out/checkpoint.json",
        "held-out-tasks": place / "held.json",
    }
    return [
        sys.executable,
        "-m",
        "scripts.train_rl",
        *(w for k, v in said.items() for w in (f"--{k}", str(v))),
    ]


def journals(place):
    return sorted(place.glob("work/*/rollouts-*.jsonl"))


def started(place):
    return sum(len(path.read_bytes().splitlines()) for path in journals(place))


def test_killed_again_and_again_it_ends_well(place):
    moments, ends = random.Random(5), []
    log = (place / "log").open("wb")
    for _ in range(KILLS):
        before = started(place)
        run = subprocess.Popen(command(place), cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 240
        while started(place) == before and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(moments.uniform(0, 0.6))
        with contextlib.suppress(ProcessLookupError):  # it had ended
            os.killpg(run.pid, signal.SIGKILL)
        ends.append(run.wait())
    assert -signal.SIGKILL in ends, (place / "log").read_text()
    done = subprocess.run(command(place), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *rows = read_jsonl(place / "out/metrics.jsonl")
    assert first["step"] == 0 and "rollouts" not in first
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["step"] for row in (first, *rows) if "validation/tasks" in row] == [0, 2, 3]
    assert all(row["rollouts"] == 4 and row["train/tokens"] > 0 for row in rows)
    assert all(row["train/logprob_mismatch_max"] < 1e-3 for row in rows)
    said = (place / "log").read_text() + done.stderr  # a killed run may have made the last step
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
    """The whole training once more from its journals, without an engine and without a validation."""
    for path in journals(place):
        shutil.copy(path, folder / path.name)

    def ask(*_):
        raise AssertionError("an engine was asked")

    recipe = recipes.load(RL, place / "small.yaml")
    torch.set_num_threads(1)
    settings = settings_of(recipe)
    return Training(
        folder,
        place / "toy",
        Prompts(tasks(), recipe.train.seed),
        replace(method_of(recipe), **changes),
        Place(Bench(RepoStore(place / "repos", folder / "repos"), None), {}, folder, ask),
        lambda checkpoint: Learner(checkpoint, settings),
        lambda weights: 1,
        workers=1,
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
    """The toy model solves nothing, so no attempt is better than the others of its group."""
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


def test_more_steps_go_on_from_the_last(place):
    (place / "longer.yaml").write_text(RECIPE.replace("steps: 3", "steps: 4"))
    lines = started(place)
    done = subprocess.run(command(place, "longer.yaml"), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["step"] for row in read_jsonl(place / "out/metrics.jsonl")] == [0, 1, 2, 3, 4]
    assert len(journals(place)) == 4 and started(place) > lines


def test_a_poisoned_rollout_stops_the_run_with_the_last_good_checkpoint_kept(place):
    (work,) = (place / "work").iterdir()
    shutil.rmtree(work / "checkpoint-00004")
    path = journals(place)[3]
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    poisoned = next(line for line in lines if "grade" in line)
    poisoned["turns"][0]["logprobs"][0] = float("nan")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run(command(place, "longer.yaml"), cwd=ROOT, capture_output=True, text=True)
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2 and len(told) == 1 and "Traceback" not in done.stderr, done.stderr
    assert told[0].startswith(f"error: step 4: the loss of {poisoned['key']} is no number, in micro-batch ")
    assert str(work / "checkpoint-00003") in told[0]
    assert (work / "checkpoint-00003").is_dir() and not (work / "checkpoint-00004").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("samples: 2", "samples: 1", "samples"),
        ("steps: 3", "steps: 0", "steps"),
        ("context_length: 512", "context_length: 1000000", "to fix before anything is started"),
        ("max_tokens: 24", "max_tokens: 512", "rollouts.max_tokens 512"),
        ("lr: 1.0e-3", "lr: .nan", "lr"),
        ("entropy: 0.01", "entropie: 0.01", "did you mean 'entropy'"),
        ("entropy: 0.01", "aggregation: seq-mean-token-sum-norm", "without method.horizon"),
        ("steps: 3", "steps: 3, minibatches: 5", "train.minibatches 5, but 4 rollouts a step"),
        ("prompts: 2", "prompts: 3", "rollouts.prompts 3, but 2 tasks in subset some"),
        ("true, entropy", "true, refill: 1, entropy", "prompts 2 and method.refill 1, but 2 tasks in subset"),
        ("every: 2", "every: 2, limit: 2", "validation.limit 2, but 1 tasks in subset held"),
        ("subset: held", "subset: some", "validation.subset some is the subset that is trained on"),
        ("scaffold: demo", "scaffold: demos", "did you mean 'demo'"),
        ("subset: held", "subset: held, every: 0", "every"),
        ("keep_constant: true", "failures: {mask: [late]}", "mask"),
    ],
)
def test_a_faulty_recipe_is_one_line(place, old, new, said):
    assert old in RECIPE
    (place / "faulty.yaml").write_text(RECIPE.replace(old, new))
    done = subprocess.run(command(place, "faulty.yaml"), cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2 and len(lines) == 1 and said in lines[0], done.stderr
    assert "Traceback" not in done.stderr
