"""What makes an artifact again: pairs in place of rows, the user's texts, the service; and paths with `~`."""

from pathlib import Path

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.experiment import selection_slice
from swelab.configs.kinds import POLICY, SFT
from swelab.lineage import KINDS, Wildcards, policy_files, policy_sources
from swelab.lineage.artifact_kinds import texts_of
from tests.unit.configs.faults import fault

DPO = {"recipe": "full_dpo_distributed", "train": {"dpo": {}}}


@pytest.fixture
def configs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return Path("configs")


def write(configs, name, **recipe):
    path = configs / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(recipe))
    return path


def params(kind, configs, **names):
    at = Wildcards(names, configs)
    return {name: part(at) for name, part in KINDS[kind].params.items()}


def needs(kind, role, configs, **names):
    return list(KINDS[kind].needs[role](Wildcards(names, configs)))


def test_a_dataset_tells_pairs_from_rows(configs):
    rows = recipes.load(SFT, write(configs, "sft/one", base="own"))
    pairs = recipes.load(SFT, write(configs, "sft/two", base="own", **DPO))
    assert list(selection_slice(rows)) == ["selection", "rows", "pairs"]  # rows that exist stay as they are
    assert selection_slice(pairs) == selection_slice(rows) | {"recipe": pairs.recipe}
    assert params("dataset", configs, sft="one") == {"selection": selection_slice(rows)}
    assert params("dataset", configs, sft="two") != params("dataset", configs, sft="one")


def test_an_edit_of_a_text_in_the_rows_makes_them_again(configs):
    texts = [configs / "prompt.txt", Path("tools.json")]
    write(
        configs,
        "sft/one",
        base="own",
        rows={"style": "tool", "system": str(texts[0]), "tools": str(texts[1])},
    )
    earlier = []
    for text in texts:
        words = fault(lambda: needs("dataset", "recipe", configs, sft="one"))
        assert words.startswith(f"rows.{'system' if text == texts[0] else 'tools'}: no such file: {text}; ")
        text.write_text("a")
    for text in (None, *texts):
        if text:
            text.write_text("b")
        assert (now := params("dataset", configs, sft="one")) not in earlier
        earlier.append(now)
    assert needs("dataset", "recipe", configs, sft="one") == ["configs/sft/one.yaml"]
    write(configs, "sft/one", base="own", rows={"style": "text", "system": "not-read.txt"})
    assert texts_of(recipes.load_named(SFT, "one", configs)) == []


def test_a_submission_tells_its_service(configs):
    published = {"source": "dataset", "path": "x", "scorer": "sb-cli"}
    write(configs, "subsets/s", **published)
    assert params("service", configs, subset="s") == {"service": {"scorer": "sb-cli"}}
    write(configs, "subsets/s", **published, service="swe-bench_lite")
    assert params("service", configs, subset="s") == {
        "service": {"scorer": "sb-cli", "service": "swe-bench_lite"}
    }


def test_a_path_below_the_home_folder_is_found(configs):
    for name in ("weights/w", "base/b", "adapter/a", "runs/r.traj", "r.jsonl"):
        path = Path.home() / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    folders = {"weights": "~/weights", "base": "~/base", "adapter": "~/adapter"}
    write(configs, "policies/p", kind="checkpoint", scaffold="x", **folders)
    write(configs, "policies/q", kind="recorded", folder="~/runs")
    served, recorded = (recipes.load_named(POLICY, name, configs) for name in ("p", "q"))
    home = str(Path.home())
    assert policy_sources(served) == [f"{home}/{name}" for name in folders]
    assert policy_files(served) == [f"{home}/weights/w", f"{home}/base/b", f"{home}/adapter/a"]
    assert [served.weights, served.adapter, recorded.folder] == [
        f"{home}/{name}" for name in ("weights", "adapter", "runs")
    ]
    write(configs, "policies/p", kind="checkpoint", scaffold="x", weights="model:own")
    assert recipes.load_named(POLICY, "p", configs).base is None
    write(configs, "subsets/s", source="dataset", path="x", ratings={"path": "~/r.jsonl"})
    assert needs("tasks", "ratings", configs, subset="s") == [f"{home}/r.jsonl"]


def test_ratings_that_are_not_there_are_one_line(configs):
    write(configs, "subsets/s", source="dataset", path="x", ratings={"path": "~/r.json"})
    words = fault(lambda: needs("tasks", "ratings", configs, subset="s"))
    assert words.startswith(
        "ratings.path of configs/subsets/s.yaml: no such file: ~/r.json; expected JSON Lines"
    )
    later = "results/difficulty/r/s.jsonl"  # a rule makes it
    write(configs, "subsets/s", source="dataset", path="x", ratings={"path": later})
    assert needs("tasks", "ratings", configs, subset="s") == [later]
