"""Fine-tunes on rented GPUs at Modal: copies files into a volume, runs the training script, fetches outputs.

The user provides Modal's client (`make modal`, or another installation), and a token in the client's file or
in the environment. Modal runs `swelab.sft.train.modal_app`.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.sft import Sft
from swelab.files.weights import check_weights, identity, manifest_digest
from swelab.jobs.child_process import ChildProcess, fault_line
from swelab.records import Fault, InputError, read_jsonl
from swelab.sft.train.torchtune_file import placeholders, read_torchtune

APP = Path(__file__).with_name("modal_app.py")
TOKENS = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
OUTPUTS = ("checkpoint", "checkpoint.json", "loss.jsonl")
INSTALLED = Path(".venv-modal/bin/modal")


class ModalError(Fault):
    """Raised if Modal's client fails, or fetches something that is not the checkpoint."""


def find_modal(given: str = "") -> str:
    """Returns the path of Modal's client.

    This is the program `given`, or the one that `make modal` installs, or `modal` on the PATH. Raises
    InputError if there is no client, or no token. Without a token, the client would ask for one in a browser.
    """
    program = given or (str(INSTALLED.absolute()) if INSTALLED.is_file() else "modal")
    path = shutil.which(program)
    if not path:
        expected = "Modal's client: `make modal`, or `pip install modal` in an environment of yours"
        raise InputError("no such program", program, expected)
    config = Path(os.environ.get("MODAL_CONFIG_PATH", "") or Path.home() / ".modal.toml")
    if not all(os.environ.get(name) for name in TOKENS) and not config.is_file():
        raise InputError("Modal has no token", config, f"`modal setup`, or ${' and $'.join(TOKENS)}")
    return path


@dataclass(frozen=True)
class Modal:
    """Modal's client, the volume, the number of GPUs, and the log file for the client's output."""

    program: str
    volume: str
    gpus: int
    log: Path

    def call(self, *arguments: str, harmless: str = "") -> None:
        """Runs a command of the client.
        Raises ModalError if the command fails, unless its output contains `harmless`."""
        told = {"N_GPUS": str(self.gpus), "SWELAB_MODAL_VOLUME": self.volume, "NO_COLOR": "1", "TERM": "dumb"}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.log.parent, suffix=".log") as output:
            running = ChildProcess(
                lambda _: [self.program, *arguments], env={**os.environ, **told}, log=output.file
            )
            try:
                status = running.process.wait()
            finally:
                running.stop(grace_seconds=0)
                said, fault = Path(output.name).read_bytes(), fault_line(Path(output.name))
                with suppress(OSError), open(self.log, "ab") as log:
                    log.write(f"$ modal {' '.join(arguments)}\n".encode() + said)
        if status and not (harmless and harmless in said.decode("utf-8", "replace")):
            raise ModalError(f"modal {' '.join(arguments[:2])} ended with {status}: {fault}; log: {self.log}")

    def put(self, files: Sequence[tuple[Path, str]]) -> None:
        """Copies files and folders into the volume. Files that exist there are replaced."""
        for path, _ in files:
            if not path.exists():
                raise InputError("no such file", path)
        self.call("volume", "create", self.volume, harmless="already exists")
        for path, there in files:
            self.call("volume", "put", "--force", self.volume, str(path), there)

    def get(self, there: str, folder: Path) -> Path:
        """Copies a file or folder from the volume into `folder` and returns the path of the copy.
        `folder` must exist. Otherwise the client writes all files to one path."""
        self.call("volume", "get", self.volume, there, str(folder))
        copy = folder / Path(there).name
        if not copy.exists():
            raise ModalError(f"modal volume get brought no {there} of the volume {self.volume}")
        return copy


def train_on_modal(
    modal: Modal, name: str, dataset: Path, base: Path, recipe_file: Path, recipe: Sft, output: Path
) -> None:
    """Runs the rule train_sft at Modal. Writes checkpoint/, checkpoint.json and loss.jsonl to `output`.

    base: the base model's manifest, next to the model's folder. Raises InputError before anything costs
    money, for several nodes, a missing file, or a dataset without a row. Raises ModalError if the client
    fails, or if the fetched weights do not match their manifest.
    """
    if recipe.job.nodes > 1:
        raise InputError(f"job.nodes is {recipe.job.nodes}", recipe_file, "1: a run at Modal has one machine")
    if next(read_jsonl(dataset), None) is None:
        raise InputError("holds no row", dataset, "training rows")
    files = [(dataset, "dataset.jsonl"), (base, "base.json"), (recipe_file, "recipe.yaml")]
    modal.put([(path, f"/{name}/{there}") for path, there in [*files, (base.with_suffix(""), "base")]])
    modal.call("run", f"{APP}::train", "--name", name)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".modal-", dir=output) as scratch:
        made = [modal.get(f"/{name}/{file}", Path(scratch)) for file in OUTPUTS]
        check_weights(made[0])
        if identity(made[0]).digest != manifest_digest(made[1]):
            raise ModalError(f"the weights that came back are not those of {name}/checkpoint.json")
        shutil.rmtree(output / "checkpoint", ignore_errors=True)
        for path in made:
            os.replace(path, output / path.name)


def tune_on_modal(modal: Modal, config: Path) -> None:
    """Runs an unchanged torchtune configuration at Modal. Its paths are in the volume.
    Raises InputError, ModalError."""
    if found := placeholders(read_torchtune(config)):
        raise InputError(found[0], config, "paths of the volume, at /volume")
    modal.call("run", f"{APP}::tune_file", "--config", str(config))
