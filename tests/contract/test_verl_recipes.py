"""The recipes of SWE-RL, Miles and SWE-PDB, composed and checked by verl itself."""

import json
import sys

import pytest

from scripts.compose_recipes import settings
from swelab.rl.engines.published_values import PUBLISHED
from tests.at_hand import VERL, needs_verl
from tests.conftest import ROOT, run_program

pytestmark = [pytest.mark.real, pytest.mark.full, needs_verl]


def test_verl_takes_all_ten_and_each_difference_has_a_reason():
    command = [sys.executable, "-m", "scripts.compose_recipes", "--python", VERL]
    done = run_program(command, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "recipes_composed=10 of 10"
    assert sum(line.endswith(" settings") and ": composed, " in line for line in lines) == len(PUBLISHED)
    assert "  rollouts.at_once 32, published 2: " in done.stdout


def test_what_verl_refuses_is_told():
    """In one process, because each start of verl takes ten seconds."""
    wrong = {
        "data.train_batch_sise=8": "data.train_batch_sise",
        "actor_rollout_ref.actor.loss_agg_mode=sum": "Invalid loss_agg_mode: sum",
        "trainer.v1.separate_async.parameter_sync_step=2": "train_batch_size must equal",
        "actor_rollout_ref.rollout.checkpoint_engine.backend=naive": "nccl",
    }
    asked = json.dumps({line: [*settings("swerl-8b-2nodes"), line] for line in wrong})
    command = [VERL, "-m", "swelab.rl.engines.verl_compose"]
    done = run_program(command, input=asked, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert not {line: found[line] for line, said in wrong.items() if said not in found[line]}
