"""Writes and reads the input of verl's processes: one file in the run's folder, and one row for each
prompt."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import RL, SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.records import Record, read_json, write_json
from swelab.records.task_records import Task
from swelab.rl.prompts import Prompts
from swelab.rl.rollout_inputs import Reads, validation_name
from swelab.rl.rollouts import RolloutRequest
from swelab.sandbox import Image

AGENT = "swelab"
"""verl's name for our agent loop."""


@dataclass(frozen=True)
class Order:
    """All facts that verl's worker processes need about a training run. Paths are absolute. loops: number of
    processes that make rollouts. folder: the run's folder, with the journals of all rollouts."""

    recipe: Rl
    scaffold: Record
    start: Path
    reads: Reads
    folder: Path
    loops: int = 1

    @property
    def loop(self) -> MiniLoop:
        """The settings of the agent's loop, from the scaffold's recipe. Raises InputError."""
        return loop_of(recipes.complete(SCAFFOLD, self.scaffold, "scaffold"))

    @property
    def prompts(self) -> Prompts:
        """The tasks in the order of training."""
        return Prompts(self.reads.tasks, self.recipe.train.seed, self.recipe.rollouts.shuffled)

    @property
    def held_out(self) -> Sequence[Task]:
        """The validation tasks. Empty if there is no validation."""
        asked = self.recipe.validation
        return self.reads.held_out[: asked.limit or None] if asked else ()

    @property
    def at_once(self) -> int:
        """Number of concurrent rollouts in one process."""
        return max(1, self.recipe.rollouts.at_once // self.loops)

    def journal(self, request: RolloutRequest) -> Path:
        """Returns the path of the journal with a rollout's turns and result."""
        step = request.prompt // self.recipe.rollouts.prompts
        return self.folder / "journals" / f"{step:05d}" / f"{request.name}.jsonl"

    def validation_folder(self, steps: int) -> Path:
        """Returns the folder of the validation after `steps` steps. The path contains a hash of all on which
        the validation depends."""
        return self.folder / f"validation-{self._validation_name}" / f"{steps:05d}"

    @cached_property
    def _validation_name(self) -> str:
        asked = self.recipe.validation
        return validation_name(asked, self.reads) if asked else "none"

    def validation_journal(self, request: RolloutRequest, steps: int) -> Path:
        """Returns the path of an attempt's journal in the validation after `steps` steps."""
        return self.validation_folder(steps) / f"{request.name}.jsonl"


def write_order(path: Path, order: Order) -> None:
    """Writes an order to a file that `read_order` can read."""
    reads = order.reads
    images = {name: asdict(image) for name, image in reads.images.items()}
    write_json(
        path,
        {
            "recipe": order.recipe.model_dump(exclude_none=True),
            "scaffold": order.scaffold,
            "start": str(order.start),
            "folder": str(order.folder),
            "loops": order.loops,
            "tasks": list(reads.tasks),
            "held_out": list(reads.held_out),
            "repos_dir": str(reads.repos_dir),
            "images": {n: each | {"folder": str(each["folder"] or "")} for n, each in images.items()},
            "witness": [str(each) for each in reads.witness],
        },
    )


def read_order(path: Path) -> Order:
    """Reads an order from a file that `write_order` wrote. Raises InputError."""
    order = read_json(path)
    images = {
        name: Image(**{**each, "folder": Path(each["folder"]) if each["folder"] else None})
        for name, each in order["images"].items()
    }
    return Order(
        recipes.complete(RL, order["recipe"], path),
        order["scaffold"],
        Path(order["start"]),
        Reads(
            [Task.of(row) for row in order["tasks"]],
            Path(order["repos_dir"]),
            [Task.of(row) for row in order["held_out"]],
            images,
            [Path(each) for each in order["witness"]],
        ),
        Path(order["folder"]),
        order["loops"],
    )


def rows(order: Order, count: int) -> Iterator[Record]:
    """Yields the rows of verl's training data: the first `count` prompts of the run, in order."""
    prompts = order.prompts
    for number in range(count):
        yield _row(prompts.task(number), number, False)


def validation_rows(order: Order) -> Iterator[Record]:
    """Yields the rows of verl's validation data. Without a validation there is still one row, because verl
    needs a row."""
    for number, task in enumerate(order.held_out or order.reads.tasks[:1]):
        yield _row(task, number, True)


def _row(task: Task, number: int, held_out: bool) -> Record:
    """Returns one row. The ground truth is the prompt's number, which verl copies to each trained sample."""
    return {
        "agent_name": AGENT,
        "data_source": "held-out" if held_out else "train",
        "prompt": [{"role": "user", "content": task.instance_id}],
        "reward_model": {"style": "rule", "ground_truth": str(number)},
        "extra_info": {"index": number, "held_out": held_out},
    }
