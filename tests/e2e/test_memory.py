"""Memory of every stage is that of one trajectory, not of all: the whole chain on 1 MB trajectories."""

import pytest

from benchmarks.workflow import spend, stages
from benchmarks.workflow_world import make_world

pytestmark = [pytest.mark.full, pytest.mark.alone]

TRAJECTORY = 1_000_000
FEW, MANY = 24, 72
STAGES = set(
    "make_tasks pull_images validate_tasks check_disjoint rollout collect_predictions grade report_grades "
    "regrade score score_experiment build_sft_dataset report".split()
)


def peaks(folder, instances):
    """Peak resident bytes of each script's biggest process; agents and graders do nothing."""
    world = make_world(folder, instances, 1, heldout=2, heldout_shards=1)
    regrades = "results/regrades/scale-expert/scale-train.json"
    log = folder / "idle.log"
    bounds = ["--cores", "2", "--quiet", "all"]
    # What is in flight is held: fewer than either number of instances, so that it is the same in both.
    # One arena: else the allocator keeps what threads of the tokenizer have freed, some 70 MB, more or less.
    settings = {"SWELAB_IDLE_BYTES": str(TRAJECTORY), "MALLOC_ARENA_MAX": "1"}
    spend(world, regrades, *bounds, at_once=2, log=log, **settings)
    trajectories = world / "results" / "rollouts" / "scale-expert" / "scale-train" / "000of001.jsonl"
    assert trajectories.stat().st_size > 0.9 * instances * TRAJECTORY
    return {name: stage.peak for name, stage in stages(log).items()}


def test_memory_of_every_stage_is_flat(tmp_path):
    few, many = (peaks(tmp_path / str(count), count) for count in (FEW, MANY))
    assert set(few) >= STAGES
    grown = {name: (many[name] - few[name]) / TRAJECTORY for name in STAGES}
    # One that held its trajectories would have grown by all 48 that are more. A rollout job may have 22 in
    # hand: two in flight, ten that wait for the disk, ten that are written.
    assert max(grown.values()) < (MANY - FEW) / 2, {name: round(value, 1) for name, value in grown.items()}
