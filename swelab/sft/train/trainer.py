"""The interface of trainers: the libraries that train a model on rows, in separate processes, by our plan.

`training.py` checks, plans, runs and stages; a recipe's `trainer:` names the library that runs the steps. To
add a trainer, write a class like `trl_bridge.Trl`, and a module like `trl_worker` for its processes. Add the
class to TRAINERS, and its name to `trainer` in configs/kinds/sft.py.
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
    line for every step to `<work>/output/` (`step_log.StepLog`). They follow the plan in `<work>` exactly,
    and resume from their last saved step when restarted.
    """

    architectures: tuple[str, ...]
    """The architectures that it trains, as config.json names them."""
    lacks: tuple[str, ...]
    """Settings under `train` that it does not support."""
    own_tokenizer: bool
    """Whether it reads vocab.json and merges.txt itself, so that both must agree with tokenizer.json."""
    fills_packs: bool
    """Whether it pads packs to their limit."""
    replicates: bool
    """Whether it can keep all weights in every process (`sharded: false`)."""

    def command(self, base: Path, dataset: Path, recipe: Sft, plan: "RunPlan", work: Path) -> list[str]:
        """Writes the configuration; returns the command line that trains. Raises InputError, SlurmError."""
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
    """The family of a config.json. Raises InputError if FAMILIES or the trainer lack it."""
    family, architecture = family_of(config, where), config.architectures[0]
    if trainer not in (trainers := trainers_of(architecture)):
        what = f"architecture {architecture} with trainer: {trainer}"
        raise InputError(what, where, f"trainer: {' or '.join(trainers)} in the SFT recipe")
    return family
