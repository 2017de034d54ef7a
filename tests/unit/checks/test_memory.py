"""Estimated memory of a rank, by its parts, for a model whose weights are counted by hand."""

from swelab.checks.memory import activations, estimate, whole_weights
from swelab.files.model_config import ModelConfig

SMALL = ModelConfig.of({
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 1000,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
})  # fmt: skip
LAYER = 2 * 16 * (16 + 8) + 3 * 16 * 32 + 2 * 16
WEIGHTS = 2 * 1000 * 16 + 3 * LAYER + 16
WIDTHS = (2, 3, 4)
ONE = 2 * 16 + 3 * 8 + 4 * 32


def test_weights_are_counted_by_family():
    assert (SMALL.layer_weights, SMALL.weights) == (LAYER, WEIGHTS)
    for name, more in (("Qwen2", 16 + 2 * 8), ("Qwen3", 2 * 4), ("Other", 16 + 2 * 8)):
        assert (SMALL | {"architectures": [f"{name}ForCausalLM"]}).layer_weights == LAYER + more
    assert (SMALL | {"tie_word_embeddings": True}).weights == WEIGHTS - 16000


def test_each_part_follows_its_formula():
    one = estimate(SMALL, 4, 10, 500.0, widths=WIDTHS)
    assert (one.weights, one.gradients, one.optimizer) == (4 * WEIGHTS, 4 * WEIGHTS, 8 * WEIGHTS)
    assert (one.activations, one.logits) == (4 * 10 * 3 * ONE, 500)
    assert one.resident == 16 * WEIGHTS and one.total == one.resident + one.activations + 500
    assert whole_weights(SMALL) == 2 * 1000 * 16 + 16  # more than two layers
    shared = estimate(SMALL, 4, 10, 500.0, widths=WIDTHS, ranks=2, copies=2, trainable=100)
    assert shared.weights == 4 * (WEIGHTS + whole_weights(SMALL))
    assert (shared.gradients, shared.optimizer) == (200, 400)
    assert estimate(SMALL, 4, 10, 500.0, widths=WIDTHS, in_backward=True).gradients == 4 * LAYER
    assert str(one) == "weights 0.0, gradients 0.0, optimizer 0.0, activations 0.0, logits 0.0"


def test_one_layer_is_made_again_beside_the_logits_or_in_their_place():
    stay, again = activations(SMALL, WIDTHS, True)
    assert (stay, again) == (3 * 16, ONE) and activations(SMALL, WIDTHS, False) == (3 * ONE, 0)
    for logits in (500.0, 1e6):
        beside, apart = (
            estimate(SMALL, 4, 10, logits, widths=WIDTHS, checkpointing=True, overlap=overlap)
            for overlap in (True, False)
        )
        assert beside.total - beside.resident == 40 * stay + 40 * again + logits
        assert apart.total - apart.resident == 40 * stay + max(40 * again, logits)
