"""slime's samples from rollouts: each sampled token once and unchanged. A lost rollout trains nothing."""

import asyncio
import threading
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from swelab.models import ModelLost
from swelab.models.token_turn import TokenTurn
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.rl.engines import slime
from swelab.rl.engines.slime import Settings, Stoppable, fill, reward_func, told_reward, whole_group
from swelab.rl.rewards import plus_or_minus_one
from swelab.rl.rollouts import RolledOut, RolloutRequest
from swelab.rl.token_template import TokenTemplate
from tests.contract.attacks import PATIENCE
from tests.slime_sample import SlimeSample
from tests.toy_checkpoint import make_checkpoint

TURNS = (
    TokenTurn((1, 2), (3, 4), (-0.1, -0.2), "stop", ((0, "7"),)),
    TokenTurn((1, 2, 3, 4, 5), (6,), (-0.3,), "stop", ((0, "8"),)),
)
CUT = (*TURNS, TokenTurn((1, 9), (8, 7), (-0.5, -0.6), "length", ((0, "8"),)))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return TokenTemplate.of(make_checkpoint(tmp_path_factory.mktemp("toy") / "toy"))


def rolled_out(end="submitted", resolved=True, turns=TURNS, status=None):
    grade = {"status": status or ("resolved" if resolved else "unresolved"), "resolved": resolved}
    trajectory = {"outcome": end, "messages": [], "model_patch": "a patch"}
    request = RolloutRequest(0, 0, Task.of({"instance_id": "x"}))
    return RolledOut(request, trajectory, grade, turns, {"run": 1.0, "grade": 0.5})


def given(template, done, per_step=False, reward=1.0):
    return fill(SlimeSample(metadata={"instance_id": "x"}), done, per_step, template, reward)


def test_a_sample_holds_what_was_sampled(template):
    sample = given(template, rolled_out())
    assert sample.tokens == [1, 2, 3, 4, 5, 6] and sample.response_length == 4
    assert sample.loss_mask == [1, 1, 0, 1] and sample.rollout_log_probs == [-0.1, -0.2, 0.0, -0.3]
    assert sample.status is SlimeSample.Status.COMPLETED and not sample.remove_sample
    assert sample.weight_versions == ["7", "8"] and sample.response == template.text([3, 4, 5, 6])
    told = sample.metadata["swelab"]
    assert sample.metadata["instance_id"] == "x" and told["resolved"] and told["model_patch"] == "a patch"


def test_a_history_that_changed_is_several_samples(template):
    found = given(template, rolled_out("context_limit", False, CUT), reward=0.0)
    assert [each.tokens for each in found] == [[1, 2, 3, 4, 5, 6], [1, 9, 8, 7]]
    assert [each.loss_mask for each in found] == [[1, 1, 0, 1], [1, 1]]
    assert all(each.status is SlimeSample.Status.TRUNCATED and each.reward == 0.0 for each in found)
    assert found[0].metadata is not found[1].metadata


def test_a_sample_for_each_step_where_slime_asks_so(template):
    found = given(template, rolled_out(), per_step=True)
    assert [each.tokens for each in found] == [[1, 2, 3, 4], [1, 2, 3, 4, 5, 6]]
    assert [each.loss_mask for each in found] == [[1, 1], [1]]


@pytest.mark.parametrize(
    "done", [rolled_out("model_lost", False), rolled_out("submitted", False, status="infra_error")]
)
def test_what_is_lost_trains_nothing_and_drops_its_group(template, done):
    sample = given(template, done, reward=0.0)
    assert sample.status is SlimeSample.Status.ABORTED and sample.remove_sample
    assert sum(sample.loss_mask) == 0 and sample.response_length == len(sample.loss_mask) == 1
    assert len(sample.tokens) == 2 and len(sample.rollout_log_probs) == 1
    good = given(template, rolled_out())
    assert whole_group(Namespace(), [good, [good, good]]) and not whole_group(Namespace(), [good, [sample]])


def test_a_rollout_that_sampled_nothing_is_no_loss(template):
    sample = given(template, rolled_out("context_limit", False, ()), reward=0.0)
    assert sample.status is SlimeSample.Status.TRUNCATED and sum(sample.loss_mask) == 0
    assert whole_group(Namespace(), [sample])


def test_rewards_have_the_form_that_slime_reads(template):
    place = SimpleNamespace(reward=plus_or_minus_one)
    assert told_reward(Namespace(), rolled_out(), place) == 1.0
    keyed = Namespace(reward_key="score")
    assert told_reward(keyed, rolled_out(resolved=False), place) == {"acc": 0.0, "score": -1.0}
    assert told_reward(keyed, rolled_out("sandbox_lost", False), place) == {"acc": 0.0, "score": 0.0}
    samples = [given(template, rolled_out(), reward=0.5), given(template, rolled_out(), reward=2.0)]
    assert asyncio.run(reward_func(keyed, samples)) == [0.5, 2.0]
    assert asyncio.run(reward_func(keyed, samples[1])) == 2.0


def test_what_slime_aborts_asks_for_no_further_turn():
    asked, stopped = [], threading.Event()

    def generate(prompt, sampling):
        asked.append(prompt)
        return TokenTurn(prompt, (3,), (-0.1,), "abort" if len(asked) == 2 else "stop")

    engine = Stoppable(SimpleNamespace(generate=generate), stopped)
    assert engine.generate((1,), {}).sampled == (3,)
    for _ in range(3):
        with pytest.raises(ModelLost):
            engine.generate((2,), {})
    assert len(asked) == 2


def test_a_cancelled_rollout_ends_before_its_next_turn(monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def roll_out(args, sample, sampling, stopped):
        begun.set()
        if stopped.wait(PATIENCE):
            ended.set()

    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(slime, "workplace", lambda: SimpleNamespace(threads=threads, roll_out=roll_out))

    async def cancelled():
        running = asyncio.create_task(slime.generate(Namespace(), SlimeSample(), {}))
        await asyncio.to_thread(begun.wait, PATIENCE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    threads.shutdown(wait=True)
    assert ended.is_set()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SWELAB_TASKS", "", "SWELAB_TASKS: not set"),
        ("SWELAB_REWARD", "most", "SWELAB_REWARD: 'most'"),
        ("SWELAB_AT_ONCE", "0", "SWELAB_AT_ONCE: '0'"),
    ],
)
def test_what_is_not_set_is_said(monkeypatch, name, value, words):
    for each in ("TASKS", "REPOS", "SCAFFOLD"):
        monkeypatch.setenv(f"SWELAB_{each}", "somewhere")
    assert Settings.read().at_once == 16
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=words):
        Settings.read()
