"""Which models can be fine-tuned, and by which trainer."""

from pathlib import Path

from swelab.files.model_config import FAMILIES, Family, ModelConfig
from swelab.records import InputError
from swelab.sft.train.trainer import trainers_of


def family_of(config: ModelConfig, where: Path) -> Family:
    """The family of a config.json, that of `where`. Raises InputError for one that is not in FAMILIES."""
    named = config.architectures
    if len(named) != 1 or named[0] not in FAMILIES:
        raise InputError(f"architecture {' '.join(named) or None}", where, f"one of {', '.join(FAMILIES)}")
    return FAMILIES[named[0]]


def check_trainer(config: ModelConfig, where: Path, trainer: str) -> Family:
    """The family of a config.json. Raises InputError where FAMILIES or the trainer lack it."""
    family, architecture = family_of(config, where), config.architectures[0]
    if trainer not in (trainers := trainers_of(architecture)):
        what = f"architecture {architecture} with trainer: {trainer}"
        raise InputError(what, where, f"trainer: {' or '.join(trainers)} in the SFT recipe")
    return family
