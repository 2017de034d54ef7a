"""A training with unusable data stops with one line, and keeps the last good checkpoint."""

import json
import math
import random
import shutil

import pytest
from safetensors.torch import load_file, save_file

from swelab.grading.grading_stage import Bench
from swelab.jobs.journal import Journal
from swelab.models.token_turn import TokenTurn
from swelab.records import Fault, InputError
from swelab.records.task_records import Task
from swelab.rl.learner import STATE, Learner, NotFinite
from swelab.rl.loop import Training
from swelab.rl.prompts import Prompts
from swelab.rl.rollouts import Place, RolledOut, RolloutRequest, StepJournal
from swelab.tasks.checkout import RepoStore
from tests.rl_recipe import rl_recipe
from tests.toy_checkpoint import make_checkpoint

TASK = Task.of({"instance_id": "pack__x.1"})
STEPS = 3


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("poisoned") / "toy")


def rollout(prompt, sample):
    chance = random.Random(f"{prompt} {sample}")
    ids = [chance.randrange(256) for _ in range(20)]
    turn = TokenTurn(tuple(ids[:8]), tuple(ids[8:]), (-5.0,) * 12, "stop", ((0, "0"),))
    solved = sample == 0
    grade = {"status": "resolved" if solved else "unresolved", "resolved": solved}
    trajectory = {"outcome": "submitted", "messages": [], "usage": {}}
    return RolledOut(
        RolloutRequest(prompt, sample, TASK), trajectory, grade, (turn,), {"run": 1.0, "grade": 0.1}
    )


@pytest.fixture
def work(tmp_path):
    """The folder of a run whose rollouts are all finished: two tasks a step, two rollouts of each."""
    for step in range(STEPS):
        with Journal(tmp_path / f"rollouts-{step:05d}.jsonl") as journal:
            for prompt in (2 * step, 2 * step + 1):
                for sample in range(2):
                    StepJournal(journal).add_result(rollout(prompt, sample))
    return tmp_path


def ask(*_):
    raise AssertionError("an engine was asked")


def run(work, toy):
    train = {"steps": STEPS, "keep_checkpoints": 3, "lr": 1e-3}
    recipe = rl_recipe(rollouts={"prompts": 2, "samples": 2, "at_once": 1}, train=train)
    bench = Bench(RepoStore(work / "repos", work / "scratch"), None)
    opened = lambda checkpoint: Learner(checkpoint, recipe, start=toy)  # noqa: E731
    return Training(
        work, toy, Prompts([TASK], 0), recipe, Place(bench, {}, work, ask), opened, lambda weights: 1
    ).run()


def poison(work, step, sample, change):
    """Changes a rollout in the journal of a step."""
    path = work / f"rollouts-{step:05d}.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for line in lines:
        if line["key"] == f"pack__x.1__g{2 * step}__i{sample}":
            change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def checkpoints(work):
    return sorted(path.name for path in work.glob("checkpoint-*"))


def test_a_log_probability_that_is_no_number_stops_the_step_and_names_its_rollout(work, toy):
    def change(line):
        line["turns"][0]["logprobs"][3] = math.nan

    poison(work, 1, 1, change)
    with pytest.raises(NotFinite) as error:
        run(work, toy)
    said = str(error.value)
    assert said.startswith("step 2: the loss of pack__x.1__g2__i1 is no number, in micro-batch 1 of 1 (")
    assert all(f"pack__x.1__g{prompt}__i{sample}" in said for prompt in (2, 3) for sample in (0, 1))
    assert said.endswith(f"; the last good checkpoint is {work / 'checkpoint-00001'}") and "\n" not in said
    assert checkpoints(work) == ["checkpoint-00001"]
    assert [json.loads(line)["step"] for line in (work / "metrics.jsonl").open()] == [1]
    with pytest.raises(NotFinite, match="step 2: "):  # it stops there again, and does not train step 1 again
        run(work, toy)
    poison(work, 1, 1, lambda line: line["turns"][0].update(logprobs=[-5.0] * 12))
    assert run(work, toy).name == "checkpoint-00003"


def test_weights_that_are_no_numbers_are_not_trained(work, toy, tmp_path):
    weights = load_file(toy / "model.safetensors")
    bad = make_checkpoint(tmp_path / "bad")
    weights["model.norm.weight"][0] = math.inf
    save_file(weights, bad / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(NotFinite, match=f"step 1: the loss of .* the last good checkpoint is {bad}"):
        run(work, bad)
    assert checkpoints(work) == []


@pytest.mark.parametrize("cut", [False, True], ids=["deleted", "cut off"])
def test_a_run_whose_last_state_is_gone_goes_on_as_its_line_says(work, toy, cut):
    whole = load_file(run(work, toy) / "model.safetensors")
    shutil.rmtree(work / "checkpoint-00003")
    state = work / "checkpoint-00002" / STATE
    text = state.read_bytes()
    state.unlink()
    if cut:
        state.write_bytes(text[:1000])
    with pytest.raises(InputError) as error:
        run(work, toy)
    said = str(error.value)
    assert isinstance(error.value, Fault) and "\n" not in said
    assert said.startswith(f"{state}: the optimizer's state ") and f"remove {state.parent}: " in said
    shutil.rmtree(state.parent)
    again = load_file(run(work, toy) / "model.safetensors")
    assert all((again[name] == value).all() for name, value in whole.items())
