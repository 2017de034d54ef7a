"""Recipes are strict: each fault is one line with file, field and the nearest valid name."""

import copy

import pytest
from jsonschema.validators import validator_for

from swelab.configs import recipes
from swelab.configs.experiment import load_experiment
from swelab.configs.json_schemas import schema_of
from swelab.configs.kinds import RECIPE_KINDS, SCAFFOLD
from swelab.configs.trained_on import training_runs
from swelab.lineage import Wildcards
from tests.unit.configs.faults import fault


@pytest.mark.parametrize("kind", sorted(recipes.FOLDERS))
def test_every_shipped_recipe_loads(kind):
    assert recipes.names(kind)
    for name in recipes.names(kind):
        recipes.load_named(kind, name)


@pytest.mark.parametrize("name", ["demo-debugger", "demo-rewrite"])
def test_a_demo_trains_under_the_prompt_that_it_is_scored_under(name):
    scored, trained = (recipes.load_named(SCAFFOLD, each).plain() for each in (name, f"{name}-train"))
    assert trained.pop("step_limit") < scored.pop("step_limit")
    assert trained == scored


def test_every_shipped_experiment_is_sound():
    for name in recipes.names("experiment"):
        load_experiment(name)


@pytest.mark.parametrize("kind", RECIPE_KINDS)
def test_every_setting_is_described(kind):
    def walk(schema, where):
        for name, part in schema.get("properties", {}).items():
            assert part.get("description"), f"{kind}: {where}{name}"
            walk(part, f"{where}{name}.")
        for option in schema.get("oneOf", []):
            walk(option, where)

    walk(schema_of(RECIPE_KINDS[kind]), "")


def filled(settings, schema):
    """Returns settings with the defaults of a JSON Schema, in its order."""
    for branch in schema.get("oneOf", []):
        constants = {k: p for k, p in branch.get("properties", {}).items() if "const" in p}
        if constants and all(settings.get(k, p.get("default")) == p["const"] for k, p in constants.items()):
            schema = branch
    for key, part in schema.get("properties", {}).items():
        if key not in settings and "default" in part:
            settings[key] = copy.deepcopy(part["default"])
        if isinstance(settings.get(key), dict):
            settings[key] = filled(settings[key], part)
    return settings


@pytest.mark.parametrize("kind", sorted(recipes.FOLDERS))
def test_a_dump_is_what_was_written_and_the_defaults_of_the_schema(kind):
    schema = schema_of(RECIPE_KINDS[kind])
    for name in recipes.names(kind):
        written = recipes.read_yaml(recipes.path_of(kind, name))
        validator_for(schema)(schema).validate(written)
        dumped = recipes.load_named(RECIPE_KINDS[kind], name).plain()
        assert dumped == filled(written, schema), name
        assert dumped == recipes.load_named(kind, name)


@pytest.mark.parametrize(
    "kind, settings",
    [
        ("policy", {"kind": "scripted", "scaffold": "x", "samples": None}),
        ("policy", {"kind": "scripted", "scaffold": "x", "shards": 2.0}),
        ("policy", {"kind": "hosted", "scaffold": "x", "model": "m", "api_key_env": []}),
        ("subset", {"source": "dataset", "path": "x", "answers": "private"}),
        ("subset", {"source": "dataset", "path": "x", "limit": "1"}),
        ("sft", {"base": "x", "train": {"lora": {"rank": 0}}}),
        ("sft", {"base": "x", "selection": {"outcomes": ["lost"]}}),
    ],
)
def test_what_models_refuse(kind, settings):
    assert f"a valid {kind}" in fault(recipes.complete, kind, settings, "it")


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("sft: demo", "sft: demoo", ["unknown sft 'demoo'", "did you mean 'demo'"]),
        ("policies: [base, sft]", "policies: [base, stf]", ["unknown policy 'stf'", "did you mean 'sft'"]),
        ("drill-heldout, ", "drill-held, ", ["unknown subset 'drill-held'", "drill-heldout"]),
        ("compare: [base, sft]", "compare: [base, scripted]", ["compare", "scripted"]),
        ("benchmarks: [drill-heldout", "benchmarks: [drill-train", ["trained on and scored"]),
        ("expert:", "expertt:", ["unknown key expertt"]),
    ],
)
def test_faults_in_an_experiment(configs, old, new, words):
    path = configs / "experiments" / "demo.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    message = fault(load_experiment, "demo", configs)
    assert all(word in message for word in words), message


def test_rows_may_come_from_several_runs(configs):
    (configs / "policies" / "bought.yaml").write_text(
        "kind: recorded\nfolder: trajectories/me/run\nshards: 2\n"
    )
    sft = configs / "sft" / "demo.yaml"
    load_experiment("demo", configs)
    assert training_runs("demo", configs) == [("scripted", "drill-train"), ("scripted", "forge-train")]
    sources = (
        "sources:\n- {policy: bought, subsets: [drill-train]}\n- {policy: scripted, subsets: [drill-train]}\n"
    )
    sft.write_text(sft.read_text() + sources)
    load_experiment("demo", configs)
    assert training_runs("demo", configs) == [("bought", "drill-train"), ("scripted", "drill-train")]
    at = Wildcards({"sft": "demo"}, configs)
    assert at.training_rollouts("grades")[:2] == [
        "results/grades/bought/drill-train/000of002.jsonl",
        "results/grades/bought/drill-train/001of002.jsonl",
    ]
    sft.write_text(
        sft.read_text().replace("bought, subsets: [drill-train]", "bought, subsets: [drill-heldout]")
    )
    assert "trained on and scored" in fault(load_experiment, "demo", configs)
    sft.write_text(sft.read_text().replace("bought", "bougth"))
    assert "did you mean 'bought'" in fault(load_experiment, "demo", configs)
