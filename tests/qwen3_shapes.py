"""The published shapes of Qwen3."""

from swelab.files.model_config import ModelConfig

SHAPES = {
    "4": (36, 32, 2560, 9728, True),
    "8": (36, 32, 4096, 12288, False),
    "14": (40, 40, 5120, 17408, False),
    "32": (64, 64, 5120, 25600, False),
}
"""Maps billions of weights to: layers, heads, width, intermediate width, tied embeddings."""


def qwen3(billions):
    """Returns the config.json of a size."""
    layers, heads, width, inner, tied = SHAPES[billions]
    return ModelConfig.of({
        "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936, "max_position_embeddings": 40960,
        "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
        "num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": width,
        "intermediate_size": inner, "tie_word_embeddings": tied,
    })  # fmt: skip
