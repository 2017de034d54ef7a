"""The graph of artifacts: file names and back, the files behind a score, and adding a new kind."""

import re
import shutil
from pathlib import Path

import pytest

from swelab.configs.kinds.policy import CheckpointPolicy
from swelab.jobs.provenance import Stage, manifest_path
from swelab.lineage import KINDS, Kind, Wildcards, behind, find, pattern, policy_sources, weights_paths
from swelab.records import InputError
from swelab.scores.trail import follow
from tests.conftest import ROOT

NAMES = {"sample": ".s2", "shard": "003of010s1"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_tells_the_kind_and_names_that_it_was_made_of(kind):
    wildcards = set(re.findall(r"\{(\w+)\}", "".join(KINDS[kind].files.values())))
    names = {wildcard: NAMES.get(wildcard, f"my-{wildcard}.v2") for wildcard in wildcards}
    for path in KINDS[kind].files.values():
        assert find(path.format_map(names)) == (kind, names)


def test_names_with_dots_and_of_other_kinds_are_told_apart():
    assert find("results/tasks/a.b.json") == ("tasks", {"subset": "a.b"})
    assert find("results/tasks/a.b.lock.json") == ("lock", {"subset": "a.b"})
    assert find("results/rollouts/p/s/preds.json") == (
        "predictions",
        {"policy": "p", "subset": "s", "sample": ""},
    )
    assert find("results/progress/x.json") is None and find("configs/sft/demo.yaml") is None


def test_a_manifest_lies_where_a_stage_writes_it():
    for kind in KINDS.values():
        if kind.manifest and kind.manifest.endswith(".manifest.json") and "tensorboard" not in kind.files:
            first = kind.files["predictions"] if "usage" in kind.files else next(iter(kind.files.values()))
            assert manifest_path(first).as_posix() == kind.manifest


@pytest.fixture
def configs(tmp_path):
    """Recipes in which a policy is trained by preferences from an earlier trained policy."""
    written = {
        "experiments/one": "{expert: {policy: teacher, subsets: [train]}, sft: first, benchmarks: [held],"
        " policies: [plain, second], compare: [plain, second]}",
        "policies/teacher": "{kind: scripted, scaffold: demo, shards: 2}",
        "policies/plain": "{kind: checkpoint, scaffold: demo, weights: 'model:own'}",
        "policies/second": "{kind: checkpoint, scaffold: demo, weights: 'sft:second'}",
        "sft/first": "{base: own, train: {epochs: 1, batch_size: 1, lr: 1.0e-3}}",
        "sft/second": "{base: 'sft:first', trainer: torchtune, recipe: full_dpo_distributed,"
        " pairs: {per_instance: 1}, train: {epochs: 1, batch_size: 1, lr: 1.0e-5, dpo: {beta: 0.05}}}",
        "models/own": "{source: hub, model: a/b, revision: '%s'}" % ("a" * 40),
        "subsets/train": "{source: dataset, path: train.jsonl, exclude: [held]}",
        "subsets/held": "{source: dataset, path: held.jsonl}",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def test_behind_a_score_lies_every_policy_of_any_kind_and_what_it_was_trained_on(configs):
    made = behind("results/experiments/one/verified_score.json", configs)
    for path in (
        "results/sft/second/checkpoint.json",
        "results/sft/first/checkpoint.json",
        "results/models/own.json",
        "results/rollouts/teacher/train/001of002.jsonl",
        "results/rollouts/second/held/000of001.jsonl",
        "results/sft/second/dataset.jsonl",
        "configs/sft/first.yaml",
    ):
        assert made.count(path) == 1, path
    assert not [path for path in made if find(path) is None and path.startswith("results/")]
    (configs / "sft/second.yaml").unlink()
    assert "results/models/own.json" in behind("results/experiments/one/verified_score.json", configs)


def test_a_shard_of_grades_is_made_of_that_shard_of_trajectories_alone(configs):
    made = behind("results/grades/teacher/train/001of002.jsonl", configs)
    assert [path for path in made if path.startswith("results/rollouts/")] == [
        "results/rollouts/teacher/train/001of002.jsonl"
    ]


def test_a_new_kind_is_one_entry(configs, tmp_path, monkeypatch):
    """One entry for a new way to make weights suffices for policies, rollouts and the trail."""
    files = {
        "checkpoint": "results/fused/{fused}/checkpoint",
        "manifest": "results/fused/{fused}/checkpoint.json",
    }
    stage = {"stage": "results/fused/{fused}/checkpoint.manifest.json"}
    needs = {"tasks": lambda at: [at.path("tasks", subset="train")]}
    monkeypatch.setitem(KINDS, "fused", Kind("fuse", files | stage, named="fused", paid=True, needs=needs))
    assert pattern("fused.manifest") == files["manifest"]
    assert weights_paths("fused:mine") == (
        "results/fused/mine/checkpoint",
        "results/fused/mine/checkpoint.json",
    )
    assert policy_sources(CheckpointPolicy(kind="checkpoint", scaffold="x", weights="fused:mine")) == [
        "results/fused/mine/checkpoint.json"
    ]
    found = behind("results/fused/mine/checkpoint", configs)
    assert found[:2] == ["results/fused/mine/checkpoint", "results/tasks/train.json"]
    assert "results/tasks/held.json" in found
    monkeypatch.chdir(tmp_path)
    for path in ("results/fused/mine/checkpoint.json", "results/tasks/train.json"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("{}")
    tasks = {"tasks": "results/tasks/train.json"}
    Stage("make_tasks").write(tasks.values())
    Stage("fuse", **tasks).write(["results/fused/mine/checkpoint.json"])
    trail = follow(["results/fused/mine/checkpoint.json"])
    assert (
        trail.makers["results/tasks/train.json"] == "results/tasks/train.manifest.json" and not trail.faults
    )


def test_a_start_that_is_not_there_is_refused_in_one_line_with_its_recipe(monkeypatch, tmp_path):
    """Before Snakemake checks: it would list every output of the rule, and not name the recipe."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    start, recipe = KINDS["rewarded"].needs["start"], Path("configs/rl/swerl-8b-2nodes.yaml")
    written, at = recipe.read_text(), Wildcards({"rl": recipe.stem})
    with pytest.raises(InputError) as fault:
        start(at)
    assert str(fault.value).startswith(f"start models/Qwen3-8B of {recipe}: no such folder; expected ")
    folder = tmp_path / "models/Qwen3-8B"
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match=f"start models/Qwen3-8B of {recipe}: holds no config.json; "):
        start(at)
    (folder / "config.json").write_text("{}")
    assert start(at) == ["models/Qwen3-8B"]
    assert KINDS["rewarded"].needs["start_files"](at) == ["models/Qwen3-8B/config.json"]
    for given, made in {
        "sft:demo": "results/sft/demo/checkpoint.json",
        "results/modal/demo/checkpoint": "results/modal/demo/checkpoint",  # a rule makes it later
    }.items():
        recipe.write_text(written.replace("models/Qwen3-8B", given))
        assert start(at) == [made] and KINDS["rewarded"].needs["start_files"](at) == []
    recipe.write_text(written.replace("models/Qwen3-8B", "sft:dem"))
    with pytest.raises(InputError, match=f"start sft:dem of {recipe}: .*did you mean 'demo'"):
        start(at)


def test_every_path_of_the_graph_is_a_rule_s_and_no_rule_names_one_itself():
    """Paths are written in the graph only. Logs and journals are not artifacts."""
    rules = {rule for kind in KINDS.values() for rule in kind.rules.split()}
    text = "".join(path.read_text() for path in (ROOT / "rules").glob("*.smk"))
    assert rules == set(re.findall(r"^(?:use )?rule (?:\w+ as )?(\w+)", text, flags=re.M))
    directives = re.findall(r"^    (?:input|output):\n((?:        .*\n)+)", text, flags=re.M)
    assert directives and not [each for each in directives if "results/" in each]
