"""Attempts of a scripted policy depend on the content of its repairs file, task by task."""

import json

import pytest

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.configs.kinds.policy import ScriptedPolicy
from swelab.evaluation.attempt_run import Keys
from swelab.evaluation.benchmark_rows import Source
from swelab.evaluation.evaluation_plan import Plan
from swelab.grading.witness_store import Witnesses
from swelab.lineage import policy_files
from swelab.models.chat.scripted import read_repairs
from swelab.records import InputError
from swelab.rollouts.rollout_stage import RolloutPlace
from swelab.tasks.checkout import RepoStore
from tests.conftest import make_repos, make_task

NAMES = ("mended", "kept", "unknown")


def write(path, **repairs):
    lines = [
        {"instance_id": name, "model_name_or_path": "x", "model_patch": repairs[name]} for name in repairs
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def keys(tmp_path):
    """The keys of three tasks without a gold patch, in a rollout stage and in an evaluation."""
    make_repos(tmp_path)
    tasks = [make_task() | {"instance_id": name, "patch": "", "answers": "none"} for name in NAMES]
    scaffold = recipes.load_named(SCAFFOLD, "demo")
    policy = ScriptedPolicy(kind="scripted", scaffold="demo", repairs=str(tmp_path / "repairs.jsonl"))
    store = RepoStore(tmp_path / "repos", tmp_path / "scratch")

    def stage():
        known = ("p", policy, loop_of(scaffold), "s", "", {}, tmp_path / "repos", tmp_path / "paid")
        place = RolloutPlace(*known, read_repairs(policy))
        return [place.key(task, store) for task in tasks]

    def evaluation():
        named = {"policy": policy, "policy_name": "p", "scaffold": scaffold, "scaffold_name": "demo"}
        plan = Plan(Source(str(tmp_path / "rows.jsonl")), tmp_path / "out", **named)
        found = Keys(plan, {}, store, Witnesses(None))
        return [found.of(task, 1) for task in tasks]

    return {"stage": stage, "evaluation": evaluation}


@pytest.mark.parametrize("where", ["stage", "evaluation"])
def test_a_changed_repair_is_another_attempt_of_its_task_alone(keys, tmp_path, where):
    path = tmp_path / "repairs.jsonl"
    write(path, mended="diff 1", kept="diff 2")
    before = keys[where]()
    assert len(set(before)) == 3
    write(path, kept="diff 2", mended="diff 1")
    assert keys[where]() == before
    write(path, mended="another diff", kept="diff 2")
    after = keys[where]()
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, True]
    write(path, mended="another diff", kept="diff 2", unknown="diff 3")
    assert [old == new for old, new in zip(after, keys[where](), strict=True)] == [True, True, False]


def test_a_missing_file_is_said(keys):
    with pytest.raises(InputError, match="repairs.jsonl"):
        keys["stage"]()


def test_rollouts_wait_for_the_file_and_record_it(tmp_path):
    path = tmp_path / "repairs.jsonl"
    policy = ScriptedPolicy(kind="scripted", scaffold="demo", repairs=str(path))
    assert policy_files(policy) == []
    write(path, mended="diff 1")
    assert policy_files(policy) == [str(path)]
    assert policy_files(policy.model_copy(update={"repairs": None})) == []
