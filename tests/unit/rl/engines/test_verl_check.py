"""A recipe for verl checked against clusters with given properties."""

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.machine import GIB, Gpu, Machine
from swelab.records import Fault
from swelab.rl.engines import verl_check, verl_machine
from swelab.rl.engines.verl_check import cluster_findings
from swelab.rl.machine_check import check_recipe, preflight
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


def test_a_missing_megatron_is_told_where_it_is_asked_for(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(verl_check, "has_megatron", verl_machine.has_megatron)
    monkeypatch.setenv(verl_machine.PYTHON, str(python))
    (told,) = [line for line in lines(shipped()) if "Megatron" in line]
    assert told.startswith("FIX  verl.trainer.backend megatron: there is no Megatron in verl's environment")
    assert not any("Megatron" in line for line in lines(shipped("swepdb-8b")))
    monkeypatch.setenv(verl_machine.PYTHON, str(tmp_path / "none"))
    assert not any("Megatron" in line for line in lines(shipped()))


def test_without_gpus_nothing_is_said_of_them():
    fsdp2 = {"backend": "fsdp2", "tensor_parallel": 1, "context_parallel": 1, "sequence_parallel": 2}
    found = lines(shipped(train__device="cpu", verl__trainer=fsdp2, job__nodes=5), LOGIN)
    assert [line.split()[1] for line in found] == ["nodes:", "tokens:", "disk:", "pool:"]


def test_a_former_run_that_is_not_there_is_told(tmp_path):
    (tmp_path / "global_step_3/actor").mkdir(parents=True)
    assert lines(shipped(verl__resume_from=str(tmp_path / "global_step_3"))) == lines(shipped())
    (told,) = set(lines(shipped(verl__resume_from=str(tmp_path / "global_step_4")))) - set(lines(shipped()))
    assert told.startswith("FIX") and "no folder" in told and "global_step_4/actor; expected" in told


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


def test_a_pool_that_does_not_answer_is_told(monkeypatch):
    def silent():
        raise Fault("the pool at http://p:1 cannot do /status now")

    monkeypatch.setattr(verl_check, "pool_places", silent)
    assert lines(shipped())[-1] == "FIX  pool: the pool at http://p:1 cannot do /status now"


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


def test_the_check_of_a_recipe_tells_it_where_the_start_is_there_and_where_not(tmp_path, monkeypatch):
    asked, both = shipped(), shipped(engine="embedded")
    monkeypatch.chdir(tmp_path)
    told = [str(each) for each in check_recipe(asked)]
    assert told[0] == "FIX  start: no checkpoint in models/Qwen3-32B; expected one in Hugging Face layout"
    assert any("8 of 8 GPUs" in line for line in told)
    found = preflight(asked, QWEN3_32B | {"max_position_embeddings": 8192}, NODE)
    assert found[0].severity == "FIX" and "the start's model has 8192 positions" in found[0].sentence
    assert any(
        "engine embedded does not look at it" in each.sentence for each in preflight(both, QWEN3_32B, NODE)
    )
