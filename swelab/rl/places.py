"""Places that make the rollouts of a training: this process, or the hosts of a Ray cluster."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.grading.grading_stage import Bench
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.serving.server import Endpoint
from swelab.records.task_records import Task
from swelab.rl.idle_shares import Busy
from swelab.rl.judging import Judge, open_judge
from swelab.rl.model_maker import model_maker
from swelab.rl.ray_place import ray_places
from swelab.rl.rollouts import Maker, Place
from swelab.rl.token_model import Watched
from swelab.rl.token_template import TokenTemplate
from swelab.sandbox import Backend, Image, open_backend
from swelab.sandbox.deferred import Deferred
from swelab.tasks.checkout import RepoStore, scratch_folder

MakePlace = Callable[[float, bool], Maker]
"""From a temperature of sampling, and whether the recipe's judge scores the steps."""


@dataclass(frozen=True)
class Reads:
    """Inputs of a training: tasks to learn from, tasks for validation, their images and repositories."""

    tasks: Sequence[Task]
    repos_dir: Path
    held_out: Sequence[Task] = ()
    images: Mapping[str, Image] = field(default_factory=dict)
    witness: Sequence[Path] = ()


@contextmanager
def open_places(
    recipe: Rl, start: Path, reads: Reads, folder: Path, endpoint: Endpoint
) -> Iterator[tuple[MakePlace, Busy | None]]:
    """Opens the maker of rollouts: this process, or hosts of a Ray cluster if $SWELAB_EXECUTOR is ray.

    Also yields a meter of the times at which the policy generates, or None with Ray. Raises Fault,
    InputError.
    """
    if os.environ.get("SWELAB_EXECUTOR") == "ray":
        host_reads = (reads.repos_dir, reads.images, reads.witness)
        with ray_places(recipe, start, *host_reads, folder, endpoint) as on_hosts:
            yield lambda temperature, judged: on_hosts(temperature), None
        return
    scaffold = loop_of(recipes.named(SCAFFOLD, recipe.scaffold))
    with (
        open_bench(reads, folder, recipe.rollouts.at_once) as (bench, scratch),
        judge_of(recipe, folder) as judge,
    ):
        asked = Busy()
        engine, template = Watched(ServedTokens(endpoint), asked), TokenTemplate.of(start)

        def place(temperature: float, judged: bool) -> Place:
            maker = model_maker(recipe, engine, template, scaffold, temperature)
            return Place(bench, scaffold, scratch, maker, judge if judged else None)

        yield place, asked


@contextmanager
def open_bench(reads: Reads, folder: Path, at_once: int) -> Iterator[tuple[Bench, Path]]:
    """The grader, with sandboxes for `at_once` rollouts, and a folder for what is gone with it.

    folder: of the run, where patches that were tested are remembered. Raises BackendMissing, InputError.
    """
    with scratch_folder() as scratch, Deferred(open_backend(), most=at_once) as backend:
        store = RepoStore(reads.repos_dir, scratch / "repos")
        archive, witnesses = Archive(folder / "runs"), Witnesses(*reads.witness)
        yield Bench(store, cast(Backend, backend), dict(reads.images), archive, witnesses), scratch


def judge_of(recipe: Rl, folder: Path) -> AbstractContextManager[Judge | None]:
    """The judge of single steps, where the recipe has one."""
    if not (asked := recipe.judge):
        return nullcontext()
    policy = recipes.named(POLICY, asked.policy)
    return open_judge(policy, asked.policy, asked.votes, asked.at_once, folder)
