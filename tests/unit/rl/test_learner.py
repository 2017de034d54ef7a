"""Training steps and log-probabilities of a policy, with real weights of a small model."""

import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from swelab.records import InputError, read_json
from swelab.rl import learner as learners
from swelab.rl.learner import STATE, Learner, NotFinite, Scorer, TrainingSample, check_scores
from swelab.rl.samples import Sample
from tests.rl_recipe import rl_recipe
from tests.toy_checkpoint import make_checkpoint
from tests.unit.rl.toy_batches import assert_same, batch, conversation, weights

TRAIN = {"lr": 1e-3, "weight_decay": 0.0}


def recipe(method=(), rollouts=(), **train):
    return rl_recipe(method=dict(method), rollouts=dict(rollouts), train=TRAIN | train)


RECIPE = recipe()


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("learner") / "toy")


def likelihood(learner, trained):
    return [sum(values) for values in learner.logprobs([each.sample for each in trained])]


def test_log_probabilities_are_those_of_the_model(toy):
    learner = Learner(toy, recipe(rollouts={"temperature": 0.7}, batch_tokens=64))
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
    learner = Learner(toy, RECIPE)
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
        learner = Learner(toy, recipe({"loss": loss, "kl": 0.1}, batch_tokens=tokens))
        learner.train(batch([1.0, -1.0, 0.5, 2.0, -0.3], mode=mode))
        found.append(weights(learner))
    assert_same(found[0], found[1], 2e-5)
    assert_same(found[0], found[2], 2e-5)


def test_what_has_no_advantage_moves_nothing(toy):
    learner = Learner(toy, RECIPE)
    before = weights(learner)
    learner.train(batch([0.0, 0.0]))
    assert_same(before, weights(learner))
    assert (
        learner.train([])
        == {"tokens": 0.0}
        == learner.train([TrainingSample(Sample([1], [0], [0.0], [-1]), [0], [0])])
    )
    assert_same(before, weights(learner))


def test_the_divergence_is_from_where_it_started(toy):
    learner = Learner(toy, recipe({"kl": 0.1}))
    trained = batch([1.0, -1.0], learner)
    assert learner.train(trained)["kl"] == pytest.approx(0, abs=1e-9)
    assert learner.train(trained)["kl"] > 0


def test_several_steps_a_batch_have_ratios(toy):
    learner = Learner(toy, recipe(minibatches=2))
    trained = batch([1.0, -1.0, 1.0, -1.0], learner)
    found = learner.train(trained)
    assert (
        learner.steps == 2
        and found["ratio"] != 1
        and found["tokens"] == sum(t.sample.trained for t in trained)
    )


def test_a_batch_smaller_than_its_minibatches_keeps_its_gradient(toy):
    """The learner splits a batch of two samples into 2 minibatches, even if the recipe asks for 8."""
    found = []
    for minibatches in (2, 8):
        learner = Learner(toy, recipe(minibatches=minibatches, max_grad_norm=1e9))
        told = learner.train(batch([1.0, -1.0], learner))
        found.append((learner.steps, told["grad_norm"], told["loss"], weights(learner)))
    assert found[0][:3] == pytest.approx(found[1][:3])
    assert_same(found[0][3], found[1][3])


def test_the_learning_rate_grows_over_batches_not_over_optimizer_steps(toy, tmp_path):
    """verl counts in the same way: 0 in the first of the warm-up's batches."""
    learner = Learner(toy, recipe(warmup_steps=4, minibatches=2, lr=1e-4))
    rates = [learner.train(batch([1.0, -1.0]))["lr"] for _ in range(3)]
    learner.save(tmp_path / "kept")
    learner = Learner(tmp_path / "kept", recipe(warmup_steps=4, minibatches=2, lr=1e-4))
    learner.resume(tmp_path / "kept")
    rates += [learner.train(batch([1.0, -1.0]))["lr"] for _ in range(3)]
    assert rates == pytest.approx([0, 2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4])
    assert Learner(toy, recipe(lr=1e-4)).train(batch([1.0, -1.0]))["lr"] == 1e-4


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_interrupted_training_ends_where_an_uninterrupted_one_does(toy, tmp_path, dtype):
    settings = recipe(dtype=dtype)
    whole, first = Learner(toy, settings), Learner(toy, settings)
    parts = [batch([1.0, -1.0]), batch([-1.0, 0.5, 0.5]), batch([0.2, -0.2])]
    for part in parts:
        whole.train(part)
    first.train(parts[0])
    first.save(tmp_path / "step-1")
    saved = load_file(tmp_path / "step-1/model.safetensors")
    named = "bfloat16" if dtype == "bf16" else "float32"
    assert {weight.dtype for weight in saved.values()} == {getattr(torch, named)}
    assert read_json(tmp_path / "step-1/config.json")["dtype"] == named
    second = Learner(tmp_path / "step-1", settings)
    second.resume(tmp_path / "step-1")
    for part in parts[1:]:
        second.train(part)
    assert_same(weights(whole), weights(second))
    assert all(
        torch.equal(one, second._master_weights()[name]) for name, one in whole._master_weights().items()
    )
    assert second.steps == 3


def moved(learner, before):
    """Returns the share of weights on which the optimizer steps that differ from `before`."""
    pairs = [(weight, before[name]) for name, weight in learner._master_weights().items()]
    return sum((one != other).sum().item() for one, other in pairs) / sum(one.numel() for one, _ in pairs)


def small_step(toy, dtype):
    """Makes a step at the default learning rate."""
    learner = Learner(toy, recipe(dtype=dtype, lr=1e-6))
    before = {name: weight.detach().clone() for name, weight in learner._master_weights().items()}
    return learner, before, learner.train(batch([1.0, -1.0], learner))


def test_a_step_in_bf16_moves_as_many_weights_as_in_fp32(toy):
    (fp32, start, told), (bf16, before, found) = (small_step(toy, dtype) for dtype in ("fp32", "bf16"))
    assert all(weight.dtype == torch.float32 for weight in bf16._master_weights().values())
    assert all(weight.dtype == torch.bfloat16 for weight in bf16.model.parameters())
    moments = [each for state in bf16.optimizer.state.values() for each in state.values() if each.ndim]
    assert moments and all(each.dtype == torch.float32 for each in moments)
    assert moved(bf16, before) > 0.95 * moved(fp32, start) > 0.5
    assert found["grad_norm"] == pytest.approx(told["grad_norm"], rel=0.1)
    for name, weight in bf16.model.named_parameters():
        assert torch.equal(weight, bf16._master_weights()[name].to(torch.bfloat16)) and weight.grad is None


def test_many_small_steps_in_bf16_add_up(toy):
    gains = []
    for dtype in ("fp32", "bf16"):
        learner = Learner(toy, recipe(dtype=dtype, lr=1e-5))
        trained = batch([1.0, -1.0], learner)
        before = likelihood(learner, trained)
        for _ in range(10):
            learner.train(trained)
        after = likelihood(learner, trained)
        gains.append(after[0] - before[0] - after[1] + before[1])
    assert gains[1] == pytest.approx(gains[0], rel=0.3)


def test_a_resumed_training_does_not_need_the_checkpoint_that_it_began_with(toy, tmp_path):
    """The loop deletes all checkpoints but the newest two."""
    Learner(toy, RECIPE).save(tmp_path / "step-1")
    learner = Learner(tmp_path / "step-1", RECIPE)
    learner.resume(tmp_path / "step-1")
    for number in range(2, 5):
        learner.save(tmp_path / f"step-{number}")
        shutil.rmtree(tmp_path / f"step-{number - 1}")
    assert (tmp_path / "step-4/tokenizer.json").read_bytes() == (toy / "tokenizer.json").read_bytes()


def test_a_checkpoint_is_whole_and_of_the_usual_layout(toy, tmp_path):
    learner = Learner(toy, RECIPE)
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
    learner = Learner(toy, RECIPE)
    before = weights(learner)
    told = r"the loss of rollout-1 is no number, in micro-batch 1 of 1 \(rollout-1, rollout-0\)"
    with pytest.raises(NotFinite, match=told):
        learner.train(batch([1.0, broken]))
    assert_same(before, weights(learner))
    learner.train(batch([1.0, -1.0]))


def test_log_probabilities_of_the_engine_that_are_no_numbers_are_not_trained_on(toy):
    learner = Learner(toy, RECIPE)
    before, poisoned = weights(learner), batch([1.0, -1.0])
    poisoned[0].sample.logprobs[-1] = math.nan
    with pytest.raises(NotFinite, match="the loss of rollout-0 is no number"):
        learner.train(poisoned)
    assert_same(before, weights(learner))


def test_a_gradient_that_is_no_number_is_traced_to_its_micro_batch(toy):
    learner = Learner(toy, recipe(batch_tokens=1))
    before, huge = weights(learner), batch([1.0, 1e38, 1.0])
    told = r"the gradient's norm is inf in micro-batch \d of 3 \(rollout-1\)"
    with pytest.raises(NotFinite, match=told):
        learner.train(huge)
    assert_same(before, weights(learner))


@pytest.mark.parametrize("content", [None, b"", b"cut", "half", "other"])
def test_a_checkpoint_without_its_state_is_one_line_that_says_what_to_do(toy, tmp_path, content):
    learner = Learner(toy, RECIPE)
    learner.train(batch([1.0, -1.0]))
    learner.save(tmp_path / "kept")
    state = tmp_path / "kept" / STATE
    whole = state.read_bytes()
    state.unlink()
    if content == "other":
        torch.save({"optimizer": {"state": {}, "param_groups": []}}, state)
    elif content is not None:
        state.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(InputError) as error:
        Learner(tmp_path / "kept", RECIPE).resume(tmp_path / "kept")
    said = str(error.value)
    assert said.startswith(f"{state}: the optimizer's state ") and "\n" not in said
    assert f"remove {tmp_path / 'kept'}" in said


def test_weights_that_are_cut_off_or_absent_are_refused(toy, tmp_path):
    Learner(toy, RECIPE).save(tmp_path / "cut")
    file = tmp_path / "cut/model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    (tmp_path / "empty").mkdir()
    for name in ("cut", "empty"):
        with pytest.raises(InputError, match="not weights that can be trained"):
            Learner(tmp_path / name, RECIPE)


def test_logits_are_made_again_where_they_do_not_fit_at_once(toy, monkeypatch):
    found = []
    for most in (learners.LOGITS, 5 * 320):
        monkeypatch.setattr(learners, "LOGITS", most)
        learner = Learner(toy, recipe({"entropy": 0.01}))
        learner.train(batch([1.0, -1.0, 0.5]))
        found.append(weights(learner))
    assert_same(*found, 1e-5)  # a step moves a weight by up to 1e-3, sums in another order by 2e-6


def test_activations_are_made_again_where_a_recipe_asks_for_it(toy):
    found, kept = [], []
    for recompute in (False, True):
        learner = Learner(toy, recipe(activation_checkpointing=recompute))
        held = 0

        def count(tensor):
            nonlocal held
            held += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            learner.train(batch([1.0, -1.0]))
        found.append(weights(learner))
        kept.append(held)
    assert_same(*found, 2e-6)
    assert kept[1] < kept[0] / 1.5


SIZES = {
    "vocab_size": 200,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
FAMILIES = {
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "llama": {},
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.0625},
    "cohere2": {"logit_scale": 0.0625, "head_dim": 8},
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 3.0},
    "phi3": {"pad_token_id": 0},
}


def scorer_of(family, **settings):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**SIZES, **settings})).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)
    return Scorer(model, 1.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_model_itself(family, tmp_path):
    scorer = scorer_of(family, **FAMILIES[family])
    check_scores(scorer, tmp_path)
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        found, _ = scorer(ids, torch.ones_like(ids, dtype=torch.bool))
        logs = scorer.model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
    expected = logs.gather(1, ids[0, 1:, None])[:, 0]
    assert torch.allclose(found[0, 1:], expected, atol=1e-4)


def test_a_model_with_another_scaling_is_refused_by_name(tmp_path):
    scorer = scorer_of("qwen2")
    forward = scorer.model.forward

    def scale(**inputs):
        found = forward(**inputs)
        found.logits = found.logits * 1.5
        return found

    scorer.model.forward = scale
    with pytest.raises(
        InputError, match="Qwen2ForCausalLM scales its logits in a way that is not known here"
    ):
        check_scores(scorer, tmp_path)
