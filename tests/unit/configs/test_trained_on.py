"""The training tasks of a policy that learned from its own attempts."""

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import EXPERIMENT, RL
from swelab.configs.trained_on import rl_recipes_behind, sft_recipes, training_subsets
from swelab.lineage import weights_paths
from swelab.records import InputError

RECIPES = {
    "experiments/one": {
        "expert": {"policy": "teacher", "subsets": ["shown"]},
        "sft": "taught",
        "policies": ["learner", "plain"],
        "benchmarks": ["held"],
        "compare": ["learner", "plain"],
    },
    "policies/teacher": {"kind": "scripted", "scaffold": "demo"},
    "policies/learner": {"kind": "checkpoint", "scaffold": "demo", "weights": "rl:second"},
    "policies/plain": {"kind": "checkpoint", "scaffold": "demo", "weights": "model:tiny"},
    "sft/taught": {"base": "tiny"},
    "rl/first": {"start": "sft:taught", "subset": "easy", "scaffold": "demo", "train": {"steps": 1}},
    "rl/second": {"start": "rl:first", "subset": "hard", "scaffold": "demo", "train": {"steps": 1}},
    "rl/round": {"start": "rl:round", "subset": "hard", "scaffold": "demo", "train": {"steps": 1}},
}


@pytest.fixture
def configs(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/tiny.yaml").write_text((recipes.CONFIGS / "models/tiny.yaml").read_text())
    for name, recipe in RECIPES.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(recipe))
    return tmp_path


def test_every_subset_of_a_chain_counts_as_trained(configs):
    experiment = recipes.load_named(EXPERIMENT, "one", configs)
    assert list(rl_recipes_behind("rl:second", configs)) == ["second", "first"]
    assert sft_recipes(experiment, configs) == ["taught"]
    assert training_subsets(experiment, configs) == ["shown", "hard", "easy"]


def test_weights_that_start_from_themselves_are_refused(configs):
    with pytest.raises(InputError, match=r"rl/round.yaml: starts from itself"):
        rl_recipes_behind("rl:round", configs)


def test_weights_by_their_name():
    assert weights_paths("rl:first") == ("results/rl/first/checkpoint", "results/rl/first/checkpoint.json")


def test_the_recipes_that_come_with_it_are_whole():
    for name in recipes.names("rl"):
        assert recipes.load_named(RL, name).train.steps > 0
