"""Kinds of models that can be fine-tuned: which trainers know them, and what a layer of them holds."""

from dataclasses import dataclass
from pathlib import Path

from swelab.records import InputError, Record


@dataclass(frozen=True)
class Family:
    """trainers: those that train it. bias: query, key and value have biases. head_norms: queries and keys are
    normalised, each head by weights of its width."""

    trainers: tuple[str, ...]
    bias: bool
    head_norms: bool


FAMILIES = {
    "Qwen2ForCausalLM": Family(("torchtune", "trl"), bias=True, head_norms=False),  # Qwen2, 2.5, 2.5-Coder
    "Qwen3ForCausalLM": Family(("trl",), bias=False, head_norms=True),
    "LlamaForCausalLM": Family(("trl",), bias=False, head_norms=False),
}
"""By the architecture in config.json. torchtune 0.6 has no Qwen3, and its Llama reads other tokenizers."""


def family_of(config: Record, where: Path) -> Family:
    """The family of a config.json, that of `where`. Raises InputError for one that is not known here."""
    named = config.get("architectures") or [None]
    if len(named) != 1 or named[0] not in FAMILIES:
        raise InputError(f"architecture {' '.join(map(str, named))}", where, f"one of {', '.join(FAMILIES)}")
    return FAMILIES[named[0]]


def check_trainer(config: Record, where: Path, trainer: str) -> Family:
    """The family of a config.json. Raises InputError where it is not known, or not to this trainer."""
    family = family_of(config, where)
    if trainer not in family.trainers:
        what = f"architecture {config['architectures'][0]} with trainer: {trainer}"
        raise InputError(what, where, f"trainer: {' or '.join(family.trainers)} in the SFT recipe")
    return family


def head_width(config: Record) -> int:
    """Width of an attention head."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
