"""Reads a model's config.json, as transformers writes it: the fields that training and serving need."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swelab.records import InputError
from swelab.records.typed import TypedRecord, field


@dataclass(frozen=True)
class Family:
    """Describes the parameters of a model family's layers that are not matrices. bias: whether the query, key
    and value projections have a bias. head_norms: whether queries and keys are normalised per head."""

    bias: bool
    head_norms: bool


FAMILIES = {
    "Qwen2ForCausalLM": Family(bias=True, head_norms=False),  # Qwen2, 2.5, 2.5-Coder
    "Qwen3ForCausalLM": Family(bias=False, head_norms=True),
    "LlamaForCausalLM": Family(bias=False, head_norms=False),
}
"""Maps the architecture in config.json to its family. Each trainer declares which families it can train."""


def family_of(config: "ModelConfig", where: Path) -> Family:
    """Returns the family of a model. where: path of its config.json. Raises InputError if the architecture is
    not in FAMILIES."""
    names = config.architectures
    if len(names) != 1 or names[0] not in FAMILIES:
        raise InputError(f"architecture {' '.join(names) or None}", where, f"one of {', '.join(FAMILIES)}")
    return FAMILIES[names[0]]


class ModelConfig(TypedRecord):
    """The size and architecture of a decoder model. Reading a required field that is absent raises
    KeyError."""

    architectures: list[str] = field("model classes of transformers", default=())
    vocab_size: int = field("number of rows of the embedding")
    hidden_size: int = field("width of the hidden states")
    intermediate_size: int = field("width of the feed-forward layer")
    num_hidden_layers: int = field("number of layers")
    num_attention_heads: int = field("number of query heads")
    num_key_value_heads: int = field("number of key and value heads")
    head_dim: int | None = field("width of a head; hidden size / number of heads if absent", default=None)
    max_position_embeddings: int = field("maximum length of the context, in tokens")
    tie_word_embeddings: bool = field(
        "whether the output layer shares the embedding's weights", default=False
    )
    rms_norm_eps: float = field("epsilon of the norms")
    attention_dropout: float = field("dropout of attention weights", default=0.0)
    rope_parameters: dict[str, Any] | None = field("rotary position embedding", default=None)

    @property
    def head_width(self) -> int:
        """Dimension of each attention head."""
        return int(self.head_dim or self.hidden_size // self.num_attention_heads)

    @property
    def query_width(self) -> int:
        """Total width of the queries of all heads."""
        return self.head_width * self.num_attention_heads

    @property
    def key_width(self) -> int:
        """Total width of the keys of all heads. The values have the same width."""
        return self.head_width * self.num_key_value_heads

    @property
    def layer_matrices(self) -> int:
        """Number of weights in the matrices of one layer: attention projections and feed-forward layer."""
        attention = 2 * self.hidden_size * (self.query_width + self.key_width)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def layer_weights(self) -> int:
        """Number of weights in one layer. An architecture outside FAMILIES is treated as Qwen2."""
        family = FAMILIES.get("".join(self.architectures[:1]), FAMILIES["Qwen2ForCausalLM"])
        biases = family.bias * (self.query_width + 2 * self.key_width)
        norms = 2 * self.hidden_size + family.head_norms * 2 * self.head_width
        return self.layer_matrices + biases + norms

    @property
    def weights(self) -> int:
        """Number of weights in the whole model."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return embeddings + self.num_hidden_layers * self.layer_weights + self.hidden_size
