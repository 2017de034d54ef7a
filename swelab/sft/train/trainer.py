"""The interface of trainers. A trainer is a library that trains a model on rows, in separate processes.

`training.py` checks the inputs, plans the run, runs a trainer, and checks the result. A recipe's `trainer:`
names the trainer. To add a trainer, write a class like `trl_bridge.Trl`, and a module like `trl_worker` for
its processes. Add the class to TRAINERS, and its name to `trainer` in configs/kinds/sft.py.
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
"""Maps the name of a trainer in recipes to `module:class`."""


class Trainer(Protocol):
    """A library that trains.

    Its processes write `<work>/output/epoch_<number>/` after the last epoch, in Hugging Face layout. They
    write a line for every step to `<work>/output/` (`step_log.StepLog`). They follow the plan in `<work>`
    exactly. When restarted, they resume from their last saved step.
    """

    architectures: tuple[str, ...]
    """The architectures that the trainer supports, as config.json names them."""
    lacks: tuple[str, ...]
    """Settings under `train` that the trainer does not support."""
    fills_packs: bool
    """Whether the trainer pads each pack to `max_seq_len` tokens."""
    replicates: bool
    """Whether the trainer can keep all weights in every process (`sharded: false`)."""
    masters: bool
    """Whether the optimizer steps on weights in fp32 when the model computes in bf16."""

    def check_config(self, config: ModelConfig, where: Path) -> None:
        """Raises InputError if the trainer's model ignores a setting of config.json, and so computes
        something else than the server's."""
        ...

    def command(self, base: Path, dataset: Path, recipe: Sft, plan: "RunPlan", work: Path) -> list[str]:
        """Writes the configuration. Returns the command line that trains. Raises InputError, SlurmError."""
        ...

    def settings(self, base: Path, dataset: Path, output: Path, train: Train) -> Record:
        """Returns the part of the trainer's configuration that the checkpoint's config.yaml keeps."""
        ...


def open_trainer(name: str) -> Trainer:
    """Returns the trainer called `name`. Raises InputError."""
    if name not in TRAINERS:
        raise InputError(f"no trainer is called {name!r}", expected=" or ".join(TRAINERS))
    module, _, kind = TRAINERS[name].partition(":")
    trainer: Trainer = getattr(import_module(module), kind)()
    return trainer


def trainers_of(architecture: str) -> list[str]:
    """Returns the names of the trainers that support an architecture."""
    return [name for name in TRAINERS if architecture in open_trainer(name).architectures]


def check_trainer(config: ModelConfig, where: Path, trainer: str) -> Family:
    """Returns the family of a config.json.

    Raises InputError if FAMILIES does not contain the family, or if the trainer does not support the
    architecture or a setting.
    """
    family, architecture = family_of(config, where), config.architectures[0]
    if trainer not in (trainers := trainers_of(architecture)):
        what = f"architecture {architecture} with trainer: {trainer}"
        raise InputError(what, where, f"trainer: {' or '.join(trainers)} in the SFT recipe")
    open_trainer(trainer).check_config(config, where)
    return family
