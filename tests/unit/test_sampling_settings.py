"""The table of sampling settings: recipes, options and the documentation take all of it."""

from pathlib import Path

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import POLICY, RL
from swelab.configs.kinds.rl import Rollouts
from swelab.configs.kinds.sampling import Sampling
from swelab.evaluation.command_line import parse, sampling_of
from swelab.records import InputError
from swelab.sampling_settings import SETTINGS, generate_fields, with_sampling_table

ROOT = Path(__file__).resolve().parents[2]


def test_recipes_have_every_setting():
    assert [*Sampling.model_fields] == ["defaults", *SETTINGS]
    taken = {name for name, each in SETTINGS.items() if not each.refused}
    assert taken == SETTINGS.keys() & Rollouts.model_fields.keys()
    for name, each in SETTINGS.items():
        assert Sampling.model_fields[name].default == each.default


def test_the_documentation_has_the_table():
    page = (ROOT / "docs/sampling.md").read_text()
    assert with_sampling_table(page) == page and "| `min_p` |" in page


@pytest.mark.parametrize("name", [name for name, each in SETTINGS.items() if each.refused])
def test_rollouts_refuse_settings_that_the_learner_does_not_know(name):
    value = {"seed": 1, "extra_body": {"a": 1}}.get(name, 1.1)
    recipe = {"start": "model:a", "subset": "b", "scaffold": "c", "train": {"steps": 1}}
    with pytest.raises(InputError, match=f"field rollouts: {name} is refused here: ") as caught:
        recipes.complete(RL, recipe | {"rollouts": {name: value}}, "r")
    assert SETTINGS[name].refused[:40] in str(caught.value)


def test_rollouts_send_settings_that_only_leave_tokens_out():
    given = {"top_k": 20, "min_p": 0.1, "top_p": 0.9, "stop": ["x"], "max_tokens": 9, "temperature": 0.8}
    assert Rollouts(**given).sampling == given
    sent = {name: value for name, value in given.items() if name != "max_tokens"}
    assert generate_fields(given) == sent | {"max_new_tokens": 9}


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"top_k": 0}, "field sampling.top_k: 0 is no number of tokens; expected -1 for all, or at least 1"),
        ({"top_k": -2}, "field sampling.top_k: -2: Input should be greater than or equal to -1"),
        ({"min_p": 1.5}, "field sampling.min_p: 1.5: Input should be less than or equal to 1"),
        ({"repetition_penalty": 0}, "field sampling.repetition_penalty: 0"),
        ({"stop": []}, "field sampling.stop: []: Value should have at least 1 item"),
        ({"stop": ["a", "a"]}, "field sampling.stop: ['a', 'a'] has non-unique elements"),
        ({"extra_body": {"top_k": 3}}, "field sampling.extra_body: top_k: write it as sampling.top_k"),
        ({"extra_body": {"messages": []}}, "messages: swelab sets this field itself"),
        ({"topk": 3}, "unknown key sampling.topk (did you mean 'top_k'?)"),
        ("modle", "field sampling: 'modle': Input should be a valid dictionary; expected"),
    ],
)
def test_a_wrong_value_is_one_line(sampling, words):
    told = {"kind": "checkpoint", "scaffold": "x", "weights": "w", "sampling": sampling}
    with pytest.raises(InputError) as caught:
        recipes.complete(POLICY, told, "p")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_options_of_the_command_are_settings_of_a_recipe():
    words = (
        "--model w --data d --output-dir o --temperature 0.6 --top-p 0.95 --top-k 20 --min-p 0 --max-tokens 9"
    )
    words += " --repetition-penalty 1.1 --presence-penalty 0.2 --frequency-penalty 0.3 --seed 4 --no-thinking"
    args = parse(
        "", [*words.split(), "--stop", "a b", "c", "--reasoning-effort", "low", "--extra-body", '{"a": 1}']
    )
    found = sampling_of(args)
    assert found.keys() == SETTINGS.keys() and Sampling(**found).values == found
    assert found["stop"] == ["a b", "c"] and found["extra_body"] == {"a": 1} and found["thinking"] is False
    plain = ["--model", "w", "--data", "d", "--output-dir", "o"]
    assert sampling_of(parse("", plain)) == {"max_tokens": 4096}
    assert sampling_of(parse("", ["--model", "w.yaml", *plain[2:], "--sampling", "model"])) == {
        "defaults": "model"
    }
