"""What one step of training does to a policy, on real weights of a small model."""

import dataclasses
import math

import pytest
import torch
from safetensors.torch import load_file

from swelab.models.token_turn import TokenTurn
from swelab.records import InputError
from swelab.rl.learner import STATE, Learner, NotFinite, Settings, Trained
from swelab.rl.samples import Sample, samples
from swelab.rl.token_weights import token_weights
from tests.toy_checkpoint import make_checkpoint

SETTINGS = Settings(lr=1e-3, weight_decay=0.0)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("learner") / "toy")


def conversation(seed, turns=2):
    """A rollout's one sequence of random ids."""
    random = torch.Generator().manual_seed(seed)
    made, prompt = [], torch.randint(0, 256, (5 + seed,), generator=random).tolist()
    for _ in range(turns):
        sampled = torch.randint(0, 256, (3 + seed % 4,), generator=random).tolist()
        made.append(TokenTurn(prompt, sampled, [-5.0] * len(sampled), "stop"))
        prompt = [*prompt, *sampled, *torch.randint(0, 256, (2,), generator=random).tolist()]
    (sample,) = samples(made)
    return sample


def batch(advantages, learner=None, mode="token-mean"):
    """A sample for each advantage; the engine's log-probabilities are the learner's, where it is given."""
    made = [conversation(seed) for seed in range(len(advantages))]
    if learner:
        for sample, logprobs in zip(made, learner.logprobs(made), strict=True):
            sample.logprobs = logprobs
    each = token_weights([sample.trained for sample in made], range(len(made)), mode, 10)
    return [
        Trained(
            sample,
            [advantage * trained for trained in sample.mask],
            [weight * trained for trained in sample.mask],
            f"rollout-{number}",
        )
        for number, (sample, advantage, weight) in enumerate(zip(made, advantages, each, strict=True))
    ]


def likelihood(learner, trained):
    return [sum(values) for values in learner.logprobs([each.sample for each in trained])]


def weights(learner):
    return {name: value.clone() for name, value in learner.model.state_dict().items()}


def assert_same(one, other, tolerance=0.0):
    for name, value in one.items():
        assert torch.allclose(value, other[name], rtol=0, atol=tolerance), name


def test_log_probabilities_are_those_of_the_model(toy):
    learner = Learner(toy, dataclasses.replace(SETTINGS, temperature=0.7, batch_tokens=64))
    made = [conversation(seed) for seed in range(5)]
    for sample, found in zip(made, learner.logprobs(made), strict=True):
        ids = torch.tensor([sample.ids])
        with torch.no_grad():
            logs = (learner.model(ids).logits[0] / 0.7).log_softmax(-1)
        expected = [
            logs[i - 1, token].item() if trained else 0.0
            for i, (token, trained) in enumerate(zip(sample.ids, sample.mask, strict=True))
        ]
        assert found == pytest.approx(expected, abs=1e-5)


def test_a_step_makes_the_good_likelier_and_the_bad_less_likely(toy):
    learner = Learner(toy, SETTINGS)
    trained = batch([1.0, -1.0], learner)
    before = likelihood(learner, trained)
    found = learner.train(trained)
    after = likelihood(learner, trained)
    assert after[0] > before[0] and after[1] < before[1]
    assert found["ratio"] == pytest.approx(1) and found["clipped"] == 0 and found["grad_norm"] > 0
    assert found["logprob_mismatch_max"] < 1e-5 and 0 < found["entropy"] < math.log(320)
    total = sum(a * w for each in trained for a, w in zip(each.advantages, each.weights, strict=True))
    assert found["loss"] == pytest.approx(-total, abs=1e-6)


@pytest.mark.parametrize("loss", ["clipped", "gspo", "cispo"])
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_how_a_batch_is_cut_into_passes_changes_nothing(toy, loss, mode):
    found = []
    for tokens in (1, 40, 100_000):
        learner = Learner(toy, dataclasses.replace(SETTINGS, batch_tokens=tokens, loss=loss, kl=0.1))
        learner.train(batch([1.0, -1.0, 0.5, 2.0, -0.3], mode=mode))
        found.append(weights(learner))
    assert_same(found[0], found[1], 2e-5)
    assert_same(found[0], found[2], 2e-5)


def test_what_has_no_advantage_moves_nothing(toy):
    learner = Learner(toy, SETTINGS)
    before = weights(learner)
    learner.train(batch([0.0, 0.0]))
    assert_same(before, weights(learner))
    assert (
        learner.train([])
        == {"tokens": 0.0}
        == learner.train([Trained(Sample([1], [0], [0.0], [-1]), [0], [0])])
    )
    assert_same(before, weights(learner))


def test_the_divergence_is_from_where_it_started(toy):
    learner = Learner(toy, dataclasses.replace(SETTINGS, kl=0.1))
    trained = batch([1.0, -1.0], learner)
    assert learner.train(trained)["kl"] == pytest.approx(0, abs=1e-9)
    assert learner.train(trained)["kl"] > 0


def test_several_steps_a_batch_have_ratios(toy):
    learner = Learner(toy, dataclasses.replace(SETTINGS, minibatches=2))
    trained = batch([1.0, -1.0, 1.0, -1.0], learner)
    found = learner.train(trained)
    assert (
        learner.steps == 2
        and found["ratio"] != 1
        and found["tokens"] == sum(t.sample.trained for t in trained)
    )


def test_an_interrupted_training_ends_where_an_uninterrupted_one_does(toy, tmp_path):
    whole, first = Learner(toy, SETTINGS), Learner(toy, SETTINGS)
    parts = [batch([1.0, -1.0]), batch([-1.0, 0.5, 0.5]), batch([0.2, -0.2])]
    for part in parts:
        whole.train(part)
    first.train(parts[0])
    first.save(tmp_path / "step-1")
    second = Learner(tmp_path / "step-1", SETTINGS)
    second.resume(tmp_path / "step-1")
    for part in parts[1:]:
        second.train(part)
    assert_same(weights(whole), weights(second))
    assert second.steps == 3


def test_a_checkpoint_is_whole_and_of_the_usual_layout(toy, tmp_path):
    learner = Learner(toy, SETTINGS)
    learner.train(batch([1.0, -1.0]))
    for _ in range(2):
        learner.save(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in toy.iterdir()} | {
        STATE
    }
    assert (tmp_path / "out/tokenizer.json").read_bytes() == (toy / "tokenizer.json").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    saved, start = load_file(tmp_path / "out/model.safetensors"), load_file(toy / "model.safetensors")
    assert saved.keys() == start.keys()
    assert any(not torch.equal(saved[name], start[name]) for name in saved)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_no_number_changes_nothing_and_names_its_batch(toy, broken):
    learner = Learner(toy, SETTINGS)
    before = weights(learner)
    with pytest.raises(NotFinite, match="rollout-1"):
        learner.train(batch([1.0, broken]))
    assert_same(before, weights(learner))
    learner.train(batch([1.0, -1.0]))


def test_a_checkpoint_without_state_is_refused(toy, tmp_path):
    learner = Learner(toy, SETTINGS)
    with pytest.raises(InputError, match="no state of the optimizer"):
        learner.resume(toy)
    learner.save(tmp_path / "cut")
    (tmp_path / "cut" / STATE).write_bytes((tmp_path / "cut" / STATE).read_bytes()[:100])
    with pytest.raises(InputError, match="no state of the optimizer"):
        Learner(toy, SETTINGS).resume(tmp_path / "cut")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="not weights that can be trained"):
        Learner(tmp_path / "empty", SETTINGS)
