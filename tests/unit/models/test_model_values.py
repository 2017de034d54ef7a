"""Sampling settings that the weights' generation_config.json gives."""

import json
import pickle

import pytest

from swelab.configs import recipes
from swelab.configs.experiment import rollout_slice
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.scaffold import WHOLE
from swelab.evaluation.evaluation_plan import policy_of
from swelab.models.model_values import sampling_facts, with_model_values
from swelab.models.policy_models import of_sample, served_model
from swelab.models.serving.server import Endpoint
from swelab.records import InputError

QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1]}
ENGINE, FILE = "the engine's default", "generation_config.json"


@pytest.fixture
def weights(tmp_path):
    """A function that writes the file of a folder of weights, and returns the folder."""

    def write(folder="own", **values):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / FILE).write_text(json.dumps(values))
        return tmp_path / folder

    return write


def policy(folder, sampling="model", **more):
    told = {"kind": "checkpoint", "scaffold": "x", "weights": str(folder), "sampling": sampling, **more}
    return recipes.complete(POLICY, told, "p")


def test_values_of_the_file_are_sent_and_recorded_with_their_origin(weights):
    found = with_model_values(policy(weights(**QWEN3), {"defaults": "model", "max_tokens": 8192}))
    values = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.0}
    values |= {"max_tokens": 8192, "seed": 0}
    places = dict.fromkeys(("temperature", "top_p", "top_k"), FILE)
    places |= dict.fromkeys(("min_p", "repetition_penalty"), ENGINE)
    assert sampling_facts(found) == {"sampling": values, "sampling_from": places}
    assert rollout_slice(found)["sampling"] == {"defaults": "model", **values}
    config = served_model(found, Endpoint("u", "k", "toy"), WHOLE).serialize()["info"]["config"]
    assert (config["sampling"], config["sampling_from"]) == (values, places)


def test_settings_of_the_recipe_come_first_and_what_nobody_gives_is_ours(weights):
    folder = weights(**QWEN3, max_new_tokens=2048)
    found = with_model_values(policy(folder, {"defaults": "model", "temperature": 1.0, "top_k": -1}))
    assert (found.sampling.temperature, found.sampling.top_k, found.sampling.top_p) == (1.0, -1, 0.95)
    assert found.sampling.max_tokens == 2048 and "temperature" not in found.sampling.origins
    found = with_model_values(policy(weights(**QWEN3)))
    assert found.sampling.max_tokens == 1024 and found.sampling.origins["max_tokens"] == "swelab's default"


def test_the_same_policy_comes_out_of_what_it_was_written_to(weights):
    loaded = policy(weights(**QWEN3))
    assert "temperature" not in loaded.plain()["sampling"]
    assert recipes.complete(POLICY, loaded.plain(), "p") == loaded
    found = with_model_values(loaded)
    assert with_model_values(found) is found
    for again in (pickle.loads(pickle.dumps(found)), of_sample(found, 2)):
        assert again.sampling.origins == found.sampling.origins
        assert again.sampling.values | {"seed": 0} == found.sampling.values
    changed = with_model_values(policy(weights(**QWEN3 | {"top_k": 5})))
    assert rollout_slice(changed) != rollout_slice(found), "another file is another key"


def test_a_file_that_does_not_sample_or_does_not_limit(weights):
    found = with_model_values(policy(weights(do_sample=False, top_k=0)))
    assert (found.sampling.temperature, found.sampling.top_k) == (0.0, -1)


def test_the_base_model_has_the_file_that_the_weights_lack(weights, tmp_path):
    (tmp_path / "tuned").mkdir()
    found = with_model_values(policy(tmp_path / "tuned", base=str(weights("base", **QWEN3))))
    assert found.sampling.top_k == 20


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"top_p": 2}, "field sampling.top_p: 2"),
        ({"temperature": "hot"}, "field sampling.temperature: 'hot'"),
    ],
)
def test_an_unusable_value_is_named_with_its_file(weights, values, words):
    folder = weights(**values)
    with pytest.raises(InputError) as caught:
        with_model_values(policy(folder))
    assert str(caught.value).startswith(f"{folder / FILE}: {words}")


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(
        InputError, match="generation_config.json: no such file; expected it, for `sampling: model`"
    ):
        with_model_values(policy(tmp_path))


def test_a_hosted_model_has_no_file():
    told = {"kind": "hosted", "scaffold": "x", "model": "openai/m", "sampling": {"defaults": "model"}}
    with pytest.raises(InputError, match="field sampling: .*a hosted model has no weights here"):
        recipes.complete(POLICY, told, "p")


def test_an_option_takes_the_file_in_place_of_the_recipe(weights, tmp_path):
    recipe = tmp_path / "p.yaml"
    given = {"temperature": 0.1, "max_tokens": 77, "thinking": True}
    recipe.write_text(json.dumps(policy(weights(**QWEN3), given).plain()))
    _, found = policy_of(str(recipe), sampling={"defaults": "model", "top_p": 0.5})
    assert (found.sampling.temperature, found.sampling.top_p, found.sampling.max_tokens) == (0.6, 0.5, 77)
    assert found.sampling.thinking is True
