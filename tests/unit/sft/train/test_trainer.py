"""The interface of trainers: how each describes itself, and that only their own modules know which it is."""

import pytest

from swelab.configs import recipes
from swelab.configs.json_schemas import schema_of
from swelab.configs.kinds import RECIPE_KINDS, SFT
from swelab.files.model_config import FAMILIES
from swelab.records import InputError
from swelab.sft.train.check_settings import check_settings
from swelab.sft.train.trainer import TRAINERS, open_trainer, trainers_of
from tests.conftest import ROOT


def test_each_family_has_a_trainer_and_each_trainer_a_family():
    assert all(trainers_of(architecture) for architecture in FAMILIES)
    for name in TRAINERS:
        assert set(open_trainer(name).architectures) <= set(FAMILIES)
    assert trainers_of("Qwen2ForCausalLM") == ["torchtune", "trl"]
    assert trainers_of("Qwen3ForCausalLM") == ["trl"] and trainers_of("NoSuchModel") == []


@pytest.mark.parametrize("name", TRAINERS)
def test_what_a_trainer_lacks_is_a_setting_and_refused(name):
    asked = {"dpo": {"beta": 0.1}, "lora": {"rank": 4, "alpha": 8}, "optimizer_in_bwd": True}
    plain = recipes.complete(SFT, {"base": "toy", "trainer": name}, "recipe")
    check_settings(plain)
    for setting in open_trainer(name).lacks:
        recipe = recipes.complete(SFT, plain.plain() | {"train": {setting: asked[setting]}}, "recipe")
        with pytest.raises(InputError, match=f"trainer {name} with train.{setting}; expected trainer: "):
            check_settings(recipe)


def test_an_unknown_trainer_is_refused():
    with pytest.raises(InputError, match="no trainer is called 'trk'; expected torchtune or trl"):
        open_trainer("trk")


def test_recipes_name_the_trainers_that_there_are():
    schema = schema_of(RECIPE_KINDS["sft"])
    assert schema["properties"]["trainer"]["enum"] == list(TRAINERS)


def test_nobody_else_asks_which_trainer_it_is():
    asking = [
        path.name
        for path in (ROOT / "swelab").rglob("*.py")
        if any(f'.trainer {sign} "' in path.read_text() for sign in ("==", "!="))
    ]
    assert asking == []
