"""The recipes for verl compared with the values of the published scripts."""

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL, SCAFFOLD
from swelab.rl.engines.published_values import PUBLISHED, differences, reasons


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_difference_has_its_reason_beside_it(name):
    assert [str(each) for each in differences(name) if not each.reason] == []


def test_ten_recipes_are_for_verl_and_learn_on_the_tasks_of_their_document():
    made = {name: recipes.load_named(RL, name) for name in PUBLISHED}
    assert len(made) == 10
    assert {recipe.engine for recipe in made.values()} == {"verl"}
    assert {recipe.subset for name, recipe in made.items() if "swepdb" not in name} == {"swe-gym"}
    debuggers = [recipe for name, recipe in made.items() if "swepdb" in name]
    assert {recipe.subset for recipe in debuggers} == {"kodcode-train"}
    tools = [recipes.load_named(SCAFFOLD, recipe.scaffold).tools for recipe in debuggers]
    assert ["pdb" in each for each in tools] == [True, True, True, False]
    both = ["swerl-32b-8nodes", "swerl-32b-8nodes-resume"]
    assert made[both[0]] == made[both[1]]


def test_a_changed_value_is_told_with_its_reason(configs):
    path = configs / "rl/swerl-32b-4nodes.yaml"
    text = path.read_text()
    assert "  steps: 250\n" in text
    path.write_text(text.replace("  steps: 250\n", "  steps: 99  # no time\n"))
    told = {each.key: str(each) for each in differences("swerl-32b-4nodes", configs)}
    assert told["train.steps"] == "train.steps 99, published 250: no time"
    assert told["validation"].endswith("published none: the original has none")
    path.write_text(text.replace("  steps: 250\n", "  steps: 99\n"))
    (bare,) = [each for each in differences("swerl-32b-4nodes", configs) if not each.reason]
    assert bare.key == "train.steps" and str(bare).endswith("no reason given")


def test_reasons_are_found_at_any_depth():
    found = reasons("a:\n  b: {c: 1, d: 2}  # why\n  e: 1\nf: x  # because # of\n")
    assert found == {"a": "", "a.b": "why", "a.b.c": "why", "a.b.d": "why", "a.e": "", "f": "because # of"}
