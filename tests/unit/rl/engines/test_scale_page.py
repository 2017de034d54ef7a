"""The tables of docs/rl-scale.md compared with the recipes and formulas that they describe."""

import re

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.machine import GIB
from swelab.rl.engines.published_values import PUBLISHED
from swelab.rl.memory_needs import checkpoint_bytes, engine_room, trainer_needs
from tests.conftest import ROOT
from tests.qwen3_shapes import qwen3

TEXT = (ROOT / "docs/rl-scale.md").read_text()
RATES = (33.5, 24, 11)
"""Rollouts per GPU-hour that others published."""


def model(name):
    """Returns the shape of a recipe's start model."""
    return qwen3(re.search(r"(\d+)b\b", name)[1])


def table(first, second):
    """Returns the rows of the table with this head: names of recipes, and the other cells."""
    lines = TEXT.partition(f"| {first} | {second} |")[2].partition("\n\n")[0].splitlines()[2:]
    found = {}
    for line in lines:
        names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        told = re.findall(r"`([\w-]+)`", names)
        for name in told:
            found[told[0] + name if name.startswith("-") else name] = cells
    return found


def whole(number):
    return f"{number:,.0f}"


def test_every_recipe_for_verl_has_its_row():
    names = [*PUBLISHED]
    assert set(table("recipe", "model")) == set(names)
    for head in ("rollouts", "GPUs"):
        assert set(table("recipe", head)) | {"swerl-32b-8nodes-resume"} == set(names)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if not name.endswith("resume")])
def test_how_much_it_needs(name):
    recipe, config = recipes.load_named(RL, name), model(name)
    asked, verl, train = recipe.rollouts, recipe.cluster, recipe.train
    rollouts = train.steps * asked.prompts * asked.samples
    hours = [rollouts / rate for rate in RATES]
    gpus = verl.nodes * verl.gpus
    needs, room = trainer_needs(recipe, config), engine_room(recipe, config)
    told = table("recipe", "rollouts")[name]
    assert told[:3] == [
        whole(rollouts),
        " / ".join(map(whole, hours)),
        f"{whole(hours[0] / gpus)} to {whole(hours[2] / gpus)}",
    ]
    assert told[3:5] == [whole(needs.total / GIB), whole(needs.host / GIB)]
    assert told[5:7] == [whole(room.count * (room.tokens // asked.context_length)), whole(asked.at_once)]
    size = f"{train.keep_checkpoints + 1} x {checkpoint_bytes(recipe, config) / 1e9:.0f} GB"
    assert size in told[7].split(", ")
