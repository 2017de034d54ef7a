"""The workflow's benchmark runs its idle experiment to the report, on a few instances."""

import pytest

from benchmarks.workflow import TARGET, nothing_to_do, spend, stages
from benchmarks.workflow_world import make_world

pytestmark = pytest.mark.full


def test_an_idle_experiment_reaches_its_report(tmp_path):
    world, log = tmp_path / "world", tmp_path / "idle.log"
    make_world(world, 20, 2, heldout=4, heldout_shards=1)
    spend(world, "--cores", "1", "--quiet", "all", log=log)
    assert (world / TARGET).stat().st_size > 0
    jobs = {name: stage.jobs for name, stage in stages(log).items()}
    assert (jobs["rollout"], jobs["grade"], jobs["train_sft"], jobs["report"]) == (4, 4, 1, 1)
    nothing_to_do(world)
