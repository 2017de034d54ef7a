"""The tables of docs/rl-scale.md compared with the recipes and formulas that they describe."""

import re
import shlex

import pytest

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import RL, SCAFFOLD
from swelab.machine import GIB
from swelab.rl.engines.published_values import PUBLISHED
from swelab.rl.engines.verl_records import NAMES
from swelab.rl.memory_needs import checkpoint_bytes, engine_room, trainer_needs
from tests.conftest import ROOT
from tests.qwen3_shapes import qwen3

TEXT = (ROOT / "docs/rl-scale.md").read_text()
RATES = (33.5, 24, 11)
"""Rollouts per GPU-hour that others published."""
IMAGES = (684 / 2294, 189 / 500)
"""GiB per image as published: for all of SWE-bench, for Verified."""


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


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_a_recipe_is(name):
    recipe = recipes.load_named(RL, name)
    verl, asked, cells = recipe.cluster, recipe.rollouts, table("recipe", "model")[name]
    _, machines, mode, steps, context, tokens = cells
    parts = [verl.trainer.nodes, verl.rollout.nodes, verl.judge.nodes if verl.judge else 0]
    told = f"{verl.nodes} x {verl.gpus}" + (
        f": {', '.join(map(str, filter(None, parts)))}" * (verl.nodes > 1)
    )
    assert (machines, mode) == (told, verl.mode)
    assert steps == f"{asked.prompts} x {asked.samples}, {whole(recipe.train.steps)}"
    assert context == whole(asked.context_length)
    assert tokens == f"{whole(recipe.train.batch_tokens)} x {verl.trainer.shared}"


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


@pytest.mark.parametrize("name", [name for name in PUBLISHED if not name.endswith("resume")])
def test_how_many_sandboxes_it_wants(name):
    recipe = recipes.load_named(RL, name)
    asked, gpus = recipe.rollouts, recipe.cluster.nodes * recipe.cluster.gpus
    memory = loop_of(recipes.load_named(SCAFFOLD, recipe.scaffold)).limits.memory_bytes
    under_way = asked.prompts * asked.samples * (1 + asked.ahead)
    assert table("recipe", "GPUs")[name] == [
        str(gpus), whole(24 * gpus), whole(24 * gpus / 6), str(under_way), str(asked.at_once),
        str(-(-asked.at_once // 15)), whole(min(asked.at_once, under_way) * memory / GIB),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("images", "count"), [("`swe-gym`", 2438), ("`swebench-lite`", 50), ("of one step", 8)]
)
def test_images_are_reckoned_by_their_published_mean(images, count):
    (line,) = (line for line in TEXT.splitlines() if line.startswith(f"| {images}"))
    low, high = (count * each for each in IMAGES)
    assert line.endswith(f"| {whole(count)} | {whole(low)} to {whole(high)} |")


def test_the_ladder_has_five_rungs_whose_recipes_and_scripts_are_there():
    lines = [line for line in TEXT.splitlines() if re.match(r"\| [1-9] \| \w+( nodes of 8)? \|", line)]
    assert [line[2] for line in lines] == list("12345")
    assert all(line.split("|")[4].strip() for line in lines), "what must be seen"
    commands = [re.findall(r"`([^`]+)`", line.split("|")[3])[0] for line in lines]
    named = {word for command in commands for word in re.findall(r"[\w/-]+\.(?:sh|yaml)\b", command)}
    assert len(named) == 5 and all(
        (ROOT / path).is_file() for path in named - {"configs/rl/verl-killed.yaml"}
    )
    first = recipes.load_named(RL, "verl-1gpu")
    assert shlex.split(commands[0])[-1] == "results/rl/verl-1gpu/checkpoint.json"
    assert (first.engine, first.cluster.nodes, first.cluster.gpus, first.train.steps) == ("verl", 1, 1, 10)
    assert "1.0e-6" in (ROOT / "configs/rl/verl-1gpu.yaml").read_text()


def test_figures_of_the_ladder_are_in_the_metrics_of_a_training_on_verl():
    """verl's own metrics are only known on a GPU."""
    ladder = TEXT.partition("| | GPUs | command |")[2].partition("\n\n")[0]
    named = {name for name in re.findall(r"`(\w+/\w+)`", ladder) if not name.startswith("verl/")}
    assert named == {"rate/lost", "time/publish", "time/rollouts", "time/train"}
    assert named - {"rate/lost", "time/train"} <= set(NAMES.values())
