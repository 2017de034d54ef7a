"""Our agent loop under verl's own worker, with a stand-in for verl's servers."""

import json
import os
import subprocess
from itertools import pairwise

import pytest

from swelab.records import write_json
from swelab.rl.engines.verl_machine import ROOT, python_of_verl
from tests.at_hand import needs_verl
from tests.conftest import make_repos
from tests.contract.small_rl import held_out_task, tasks
from tests.contract.test_qwen3 import make_qwen3
from tests.toy_checkpoint import make_checkpoint

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone, needs_verl]
RECIPE = """
start: model:toy
subset: some
scaffold: demo
rollouts: {prompts: 2, samples: 3, at_once: 1, max_tokens: 96, context_length: 512, max_total_tokens: 4096}
train: {steps: 1, lr: 1.0e-3, threads: 1, batch_tokens: 2048}
validation: {subset: held, every: 1}
"""
TOOLS = """
start: model:qwen3
subset: some
scaffold: debugger-bash
rollouts: {prompts: 1, samples: 2, at_once: 1, max_tokens: 200, context_length: 16384, thinking: false}
method: {keep_constant: true}
train: {steps: 1, lr: 1.0e-3, threads: 1, batch_tokens: 16384}
"""


def in_verl(*words, **options):
    """Runs a program in verl's environment. The program can import swelab."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [str(python_of_verl()), *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verl")
    make_checkpoint(folder / "toy")
    write_json(folder / "some.json", tasks())
    write_json(folder / "held.json", [held_out_task()])
    make_repos(folder)
    make_qwen3(folder / "qwen3")
    (folder / "small.yaml").write_text(RECIPE)
    (folder / "tools.yaml").write_text(TOOLS)
    done = in_verl("-m", "tests.contract.verl_stub", folder, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_group_has_our_advantages_for_each_token_and_what_was_lost_is_no_row(found):
    repaired, left, lost = found["rows"]
    assert [len(made) for made in found["rows"]] == [1, 1, 0] and lost == []
    for (row,), advantage, reward in ((repaired, 0.5, 1.0), (left, -0.5, 0.0)):
        assert row["reward"] == reward and sum(row["mask"]) > 10
        assert row["scores"] == [advantage * trained for trained in row["mask"]]
        assert row["logprobs"] == [-0.5 * trained for trained in row["mask"]]
        assert len(row["mask"]) == row["response"] and row["mask"][0] == row["mask"][-1] == 1
        assert (row["extra"]["min_global_steps"], row["extra"]["max_global_steps"]) == (7, 7)
        assert 0 in row["mask"], "what the policy read between its turns is not trained"
    assert repaired[0]["extra"]["reward_extra_info"] == {"resolved": 1.0}


def test_what_the_journal_holds_is_not_asked_for_again(found):
    assert found["asked"] == 2 + 2 + 3, "the lost rollout is tried three times"
    assert found["asked_again"] == 0 and found["again"] == found["rows"]


def test_an_attempt_of_the_validation_has_its_reward(found):
    assert found["validated"]["reward"] == 1.0 and found["validated"]["trained"] > 10
    assert found["validated"]["oldest"] == 7


def test_another_agent_acts_by_calls_of_tools_there(found):
    (row,) = found["tools"]
    assert row["reward"] == 1.0 and row["extra"]["reward_extra_info"] == {"resolved": 1.0}
    assert 0 in row["mask"], "what the tools printed is not trained"
    assert sum(after - before == 1 for before, after in pairwise([0, *row["mask"]])) == 2, "two turns are"
