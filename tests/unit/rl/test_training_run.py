"""What a training refuses before it starts anything."""

import pytest

from swelab.records import InputError
from swelab.rl import training_run
from swelab.rl.rollout_inputs import Reads
from swelab.rl.training_run import check_steps, train_policy
from tests.rl_recipe import rl_recipe


@pytest.mark.parametrize("engine", ["embedded", "verl"])
def test_fewer_steps_than_a_run_has_finished_are_refused(tmp_path, monkeypatch, engine):
    """The weights of five steps are not those of a recipe with three, and nothing of them is lost."""
    work = tmp_path / "work"
    if engine == "verl":
        (work / "verl").mkdir(parents=True)
        (work / "verl/latest_checkpointed_iteration.txt").write_text("5")
    else:
        for step in (4, 5):
            (work / f"checkpoint-{step:05d}").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(training_run, "open_fleet", None)  # no engine is started
    small = {"rollouts": {"context_length": 512, "max_tokens": 24}, "engine": engine}
    recipe = rl_recipe(train={"steps": 3}, **small)
    with pytest.raises(InputError) as fault:
        train_policy(recipe, tmp_path / "toy", Reads([], tmp_path), work)
    said = f"{work}: train.steps is 3, and this run of the recipe has finished 5 steps;"
    assert str(fault.value) == f"{said} expected steps of at least 5, or a recipe of another name"
    assert sorted(tmp_path.rglob("*")) == before
    check_steps(rl_recipe(train={"steps": 5}, **small), work)
    check_steps(recipe, tmp_path / "new")
