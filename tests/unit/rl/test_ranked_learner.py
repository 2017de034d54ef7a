"""Two processes train as one process does, and end with the main process."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from swelab.records import InputError, read_json
from swelab.rl.learner import STATE, Learner, NotFinite
from swelab.rl.rank_process import LearnerArguments
from swelab.rl.ranked_learner import RankedLearner, RankLost
from tests.conftest import ROOT
from tests.contract.attacks import until
from tests.processes import processes_with
from tests.rl_recipe import rl_recipe
from tests.toy_checkpoint import make_checkpoint
from tests.unit.rl.toy_batches import assert_same, batch

pytestmark = pytest.mark.full

RECIPE = rl_recipe(
    method={"kl": 0.1},
    train={"lr": 1e-4, "minibatches": 2, "batch_tokens": 40, "activation_checkpointing": True},
)
PARTS = ([1.0, -1.0, 0.5, 2.0, -0.3], [1.0], [-1.0, 0.5, 0.5, 0.1])
"""Advantages of three batches: of several passes, of fewer samples than ranks, of several passes.
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("ranks") / "toy")


@pytest.fixture
def opened(toy, tmp_path):
    def opened(checkpoint=toy):
        return RankedLearner(LearnerArguments(checkpoint, RECIPE, toy), 2, 1, "cpu", tmp_path / "ranks.log")

    return opened


def test_two_ranks_train_and_resume_as_one_process_does(toy, opened, tmp_path):
    alone, parts = Learner(toy, RECIPE, start=toy), [batch(advantages) for advantages in PARTS]
    told = [alone.train(part) for part in parts[:2]]
    alone.save(tmp_path / "alone-2")
    told.append(alone.train(parts[2]))
    alone.save(tmp_path / "alone-3")
    with opened() as both:
        found = [both.train(part) for part in parts[:2]]
        assert both.train([]) == {"tokens": 0.0}
        both.save(tmp_path / "both-2")
        with pytest.raises(NotFinite, match="the loss of rollout-0 is no number, in micro-batch 1 of 1"):
            both.train(batch([math.nan, 1.0]))
        found.append(both.train(parts[2]))
        both.save(tmp_path / "both-3")
        assert 100 < both.peak_mib() < 4000
    for one, other in zip(told, found, strict=True):
        assert other == {name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in one.items()}
    start = load_file(toy / "model.safetensors")
    expected = load_file(tmp_path / "alone-3/model.safetensors")
    assert max((expected[name] - start[name]).abs().max() for name in start) > 3e-4
    for name in ("alone-2", "both-2"):
        one = Learner(tmp_path / name, RECIPE, start=toy)
        one.resume(tmp_path / name)
        one.train(parts[2])
        assert_same(expected, one.model.state_dict(), 1e-6)
    assert_same(expected, load_file(tmp_path / "both-3/model.safetensors"), 1e-6)
    assert same_layout(tmp_path / "alone-3", tmp_path / "both-3")
    with opened(tmp_path / "alone-2") as both:
        both.resume(tmp_path / "alone-2")
        both.train(parts[2])
        both.save(tmp_path / "resumed-3")
        assert_same(expected, load_file(tmp_path / "resumed-3/model.safetensors"), 1e-6)
        (tmp_path / "alone-2" / STATE).unlink()
        with pytest.raises(InputError, match="the optimizer's state is not there"):
            both.resume(tmp_path / "alone-2")
        os.kill(max(processes_with(both.address)), signal.SIGKILL)
        with pytest.raises(RankLost, match="a rank of the learner has ended"):
            for _ in range(20):
                both.train(parts[0])
        assert until(lambda: not processes_with(both.address))


def test_two_ranks_train_in_bf16_as_one_process_does(toy, tmp_path):
    recipe = rl_recipe(train={"lr": 1e-6, "weight_decay": 0.0, "dtype": "bf16"})
    alone, parts = Learner(toy, recipe), [batch([1.0, -1.0, 0.5]), batch([-1.0, 0.5])]
    opened = LearnerArguments(toy, recipe, None)
    with RankedLearner(opened, 2, 1, "cpu", tmp_path / "ranks.log") as both:
        for part in parts:
            one, other = alone.train(part), both.train(part)
            assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=0.05)
        both.save(tmp_path / "both")
    alone.save(tmp_path / "alone")
    assert same_layout(tmp_path / "alone", tmp_path / "both")
    saved = load_file(tmp_path / "both/model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {torch.bfloat16}
    assert read_json(tmp_path / "both/config.json")["dtype"] == "bfloat16"
    start = load_file(toy / "model.safetensors")
    for folder in ("alone", "both"):
        trained = torch.load(tmp_path / folder / STATE, weights_only=True)["weights"]
        assert {weight.dtype for weight in trained.values()} == {torch.float32}
        moved = sum((weight != start[name]).sum().item() for name, weight in trained.items())
        assert moved > 0.5 * sum(weight.numel() for weight in trained.values())
    with RankedLearner(
        LearnerArguments(tmp_path / "both", recipe, None), 2, 1, "cpu", tmp_path / "again.log"
    ) as again:
        again.resume(tmp_path / "both")
        again.save(tmp_path / "again")
    first, second = (torch.load(tmp_path / name / STATE)["weights"] for name in ("both", "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def same_layout(one, other):
    """Returns whether two checkpoints have the same files, tensors and state."""
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    states = [torch.load(folder / STATE, weights_only=True) for folder in (one, other)]
    shapes = [
        {
            number: {name: (type(each), each.shape, each.dtype) for name, each in moments.items()}
            for number, moments in state["optimizer"]["state"].items()
        }
        for state in states
    ]
    tensors = [load_file(folder / "model.safetensors") for folder in (one, other)]
    return shapes[0] == shapes[1] and list(tensors[0]) == list(tensors[1])


MAIN = """
import sys
from pathlib import Path
from swelab.jobs import child_process
from swelab.rl.rank_process import LearnerArguments
from swelab.rl.ranked_learner import RankedLearner
from tests.unit.rl.test_ranked_learner import RECIPE, batch
if sys.argv[2] == "groups":
    child_process.has_namespaces = lambda: False
toy, log = Path(sys.argv[1]), Path(sys.argv[3])
learner = RankedLearner(LearnerArguments(toy, RECIPE, toy), 2, 1, "cpu", log)
print(learner.address, flush=True)
while True:
    learner.train(batch([1.0, -1.0]))
"""


@pytest.mark.parametrize("lid", ["namespaces", "groups"])
def test_a_kill_of_the_main_process_ends_its_ranks(toy, tmp_path, lid):
    run = subprocess.Popen(
        [sys.executable, "-c", MAIN, toy, lid, tmp_path / "log"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    address = run.stdout.readline().strip()
    assert not Path(address).parent.exists()
    assert address and len(processes_with(address)) >= 3, (tmp_path / "log").read_text()
    run.kill()
    run.wait()
    assert until(lambda: not processes_with(address))


def test_weights_that_cannot_be_opened_are_one_line(opened, tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="not weights that can be trained"):
        opened(tmp_path / "none")
