"""Kinds of models that can be fine-tuned: what a layer of them holds, and which trainers know them."""

from dataclasses import dataclass
from pathlib import Path

from swelab.files.model_config import ModelConfig
from swelab.records import InputError
from swelab.sft.train.trainer import trainers_of


@dataclass(frozen=True)
class Family:
    """bias: query, key and value have biases. head_norms: queries and keys are normalised, each head by
    weights of its width."""

    bias: bool
    head_norms: bool


FAMILIES = {
    "Qwen2ForCausalLM": Family(bias=True, head_norms=False),  # Qwen2, 2.5, 2.5-Coder
    "Qwen3ForCausalLM": Family(bias=False, head_norms=True),
    "LlamaForCausalLM": Family(bias=False, head_norms=False),
}
"""By the architecture in config.json; each trainer says which of them it trains."""
UNKNOWN = FAMILIES["Qwen2ForCausalLM"]
"""What an architecture that is not listed is taken for, where its weights are counted."""


def family_of(config: ModelConfig, where: Path) -> Family:
    """The family of a config.json, that of `where`. Raises InputError for one that is not known here."""
    named = config.architectures
    if len(named) != 1 or named[0] not in FAMILIES:
        raise InputError(f"architecture {' '.join(named) or None}", where, f"one of {', '.join(FAMILIES)}")
    return FAMILIES[named[0]]


def check_trainer(config: ModelConfig, where: Path, trainer: str) -> Family:
    """The family of a config.json. Raises InputError where it is not known, or not to this trainer."""
    family, architecture = family_of(config, where), config.architectures[0]
    if trainer not in (known := trainers_of(architecture)):
        what = f"architecture {architecture} with trainer: {trainer}"
        raise InputError(what, where, f"trainer: {' or '.join(known)} in the SFT recipe")
    return family
