"""A recipe for verl checked against clusters with given properties."""

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.machine import GIB, Gpu, Machine
from swelab.rl.engines import verl_check
from swelab.rl.engines.verl_check import cluster_findings
from swelab.rl.memory_needs import checkpoint_bytes, engine_room, trainer_needs
from tests.qwen3_shapes import qwen3

QWEN3_32B = qwen3("32")
LOGIN = Machine(cores=8, free=60 * GIB, total=64 * GIB)
NODE = Machine(cores=64, free=900 * GIB, total=1000 * GIB, gpus=(Gpu("H100", 79 * GIB, 80 * GIB),) * 8)


@pytest.fixture(autouse=True)
def pool_and_disk(monkeypatch):
    """A pool with 270 slots, disk space for checkpoints, and Megatron."""
    monkeypatch.setattr(verl_check, "has_megatron", lambda: True)
    monkeypatch.setattr(verl_check, "pool_places", lambda: 270)
    monkeypatch.setattr(verl_check, "disk", lambda folder: (4000 * GIB, folder))


def shipped(name="swerl-32b-8nodes", **changes):
    made = recipes.load_named(RL, name).plain()
    for key, value in changes.items():
        part, _, last = key.rpartition("__")
        place = made
        for each in filter(None, part.split("__")):
            place = place[each]
        place[last] = value
    return recipes.complete(RL, made, name)


def lines(recipe, machine=NODE, config=QWEN3_32B):
    return [str(each) for each in cluster_findings(recipe, config, machine)]


def test_all_that_is_asked_of_a_cluster_is_told():
    told = lines(shipped())
    assert [line[:3] for line in told] == ["ok "] * 6
    nodes, tokens, trains, engines, disk, pool = told
    assert "8 of 8 GPUs; 4 train, 4 serve" in nodes
    assert "8192 a GPU x 2 that share a sequence hold the longest, 16384" in tokens
    assert "a GPU that trains: about" in trains and "optimizer 0.0" in trains
    assert "8 engines of 4 GPUs" in engines
    assert disk.startswith("ok   disk: 3 checkpoints of ") and "4000.0 GiB are free" in disk
    assert pool == "ok   pool: 270 places for 128 rollouts at once"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verl__trainer__tensor_parallel": 1}, "FIX  a GPU that trains: about"),
        ({"verl__rollout__memory": 0.2}, "FIX  8 engines of 4 GPUs: weights of"),
        (
            {"verl__rollout__tensor_parallel": 1},
            "leave a cache of 0 tokens, less than one conversation of 16384",
        ),
        ({"rollouts__at_once": 300}, "FIX  rollouts.at_once 300, but the pool has 270 places"),
        ({"train__keep_checkpoints": 20}, "FIX  disk: 21 checkpoints of"),
        ({"job__mem_mb": 50000}, "FIX  verl.trainer.offload optimizer: about"),
        ({"verl__gpu_gib": 141}, "FIX  verl.gpu_gib is 141, and the H100 here has 80.0 GiB"),
    ],
)
def test_what_does_not_fit_is_one_sentence(changes, said):
    found = lines(shipped(**changes))
    assert any(said in line for line in found), found
    assert not any("\n" in line for line in found)


def test_what_is_only_likely_to_be_slow_is_a_warning(monkeypatch):
    (gpus,) = [line for line in lines(shipped(), LOGIN) if line.startswith("low")]
    assert "GPUs: 0 here, and a node of it has 8: start it where they are" in gpus
    crowded = lines(shipped(verl__rollout__memory=0.35))
    assert any(
        line.startswith("low  8 engines") and "turns wait when many are long" in line for line in crowded
    )
    monkeypatch.setattr(verl_check, "pool_places", lambda: None)
    assert any(
        line.startswith("low  rollouts.at_once 128, and no pool is named") for line in lines(shipped())
    )


def test_gpus_that_train_and_serve_in_turn_must_hold_what_stays():
    asked = {"rollouts__ahead": 0, "verl__mode": "sync", "verl__rollout__nodes": 0, "job__nodes": 4}
    found = lines(shipped(**asked, verl__rollout__memory=0.8))
    assert any("stay while the engine takes 64.0 GiB: set verl.trainer.offload all" in line for line in found)
    moved = lines(shipped(**asked, verl__rollout__memory=0.8, verl__trainer__offload="all"))
    assert not any("stay while the engine" in line for line in moved)


def test_needs_follow_the_formulas():
    every = QWEN3_32B.weights
    assert 32.7e9 < every < 32.9e9
    needs = trainer_needs(shipped(), QWEN3_32B)
    assert needs.weights == 2 * every / 8 and needs.gradients == 4 * every / 8
    assert needs.optimizer == 0 and needs.host == 12 * every / 32 * 8
    assert trainer_needs(shipped(verl__trainer__offload="none"), QWEN3_32B).optimizer == 12 * every / 32
    with_start = trainer_needs(shipped(method__kl=0.01), QWEN3_32B)
    assert with_start.weights == 2 * needs.weights
    room = engine_room(shipped(), QWEN3_32B)
    # Keys and values of 64 layers, 1024 numbers each, 2 bytes, over 4 GPUs: 64 KiB a token.
    left = 0.55 * 80 * GIB - 2 * every / 4 - 1.5 * GIB
    assert room.tokens == int(left / 65536) and room.count == 8
    assert checkpoint_bytes(shipped(), QWEN3_32B) == 14 * every
    fsdp = shipped("swepdb-14b")
    assert trainer_needs(fsdp, QWEN3_32B).optimizer == 8 * every / 8
