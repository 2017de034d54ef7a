"""The seam of trainers: the library that trains a model on rows, in processes of its own, over our plan.

`training.py` checks, plans, runs and stages; a recipe's `trainer:` names the library that runs the steps.
A further trainer is a file with a class like `trl_bridge.Trl`, and one of what its processes run, like
`trl_worker`. It has an entry in TRAINERS, and its name in `trainer` of configs/kinds/sft.py.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from swelab.configs.kinds.sft import Sft, Train
from swelab.files.model_config import Family, ModelConfig, family_of
from swelab.records import InputError, Record

if TYPE_CHECKING:
    from swelab.sft.train.run_plan import RunPlan

TRAINERS = {
    "torchtune": "swelab.sft.train.torchtune_bridge:Torchtune",
    "trl": "swelab.sft.train.trl_bridge:Trl",
}
"""Trainers by the name that recipes give them."""


class Trainer(Protocol):
    """A library that trains.

    Its processes write `<work>/output/epoch_<number>/` after the last epoch, in Hugging Face layout, and a
    line for every step to `<work>/output/` (`step_log.StepLog`). They follow the plan in `<work>` as it is,
    and resume from their last saved step when they are started again.
    """

    architectures: tuple[str, ...]
    """Architectures, as config.json names them, that it trains."""
    lacks: tuple[str, ...]
    """Settings under `train` that are not supported with it."""
    own_tokenizer: bool
    """Whether it reads vocab.json and merges.txt itself: they must say what tokenizer.json says."""
    fills_packs: bool
    """Whether its packs are filled up to their limit."""
    replicates: bool
    """Whether it can leave all weights with every process (`sharded: false`)."""

    def command(self, base: Path, dataset: Path, recipe: Sft, plan: "RunPlan", work: Path) -> list[str]:
        """The command line that trains; writes its configuration. Raises InputError, SlurmError."""
        ...

    def settings(self, base: Path, dataset: Path, output: Path, train: Train) -> Record:
        """The part of its configuration that the checkpoint's config.yaml keeps."""
        ...


def open_trainer(name: str) -> Trainer:
    """The trainer of that name. Raises InputError."""
    if name not in TRAINERS:
        raise InputError(f"no trainer is called {name!r}", expected=" or ".join(TRAINERS))
    module, _, kind = TRAINERS[name].partition(":")
    trainer: Trainer = getattr(import_module(module), kind)()
    return trainer


def trainers_of(architecture: str) -> list[str]:
    """Names of the trainers that train an architecture."""
    return [name for name in TRAINERS if architecture in open_trainer(name).architectures]


def check_trainer(config: ModelConfig, where: Path, trainer: str) -> Family:
    """The family of a config.json. Raises InputError where FAMILIES or the trainer lack it."""
    family, architecture = family_of(config, where), config.architectures[0]
    if trainer not in (trainers := trainers_of(architecture)):
        what = f"architecture {architecture} with trainer: {trainer}"
        raise InputError(what, where, f"trainer: {' or '.join(trainers)} in the SFT recipe")
    return family
