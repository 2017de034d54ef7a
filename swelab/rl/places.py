"""Opens the places where a training run's rollouts are made: this process, or the hosts of a Ray cluster."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.serving.server import Endpoint
from swelab.rl.idle_shares import Busy
from swelab.rl.judging import Judge, open_judge
from swelab.rl.model_maker import model_maker
from swelab.rl.ray_place import ray_places
from swelab.rl.rollout_inputs import Reads, open_bench
from swelab.rl.rollouts import Maker, Place
from swelab.rl.token_model import TimedEngine
from swelab.rl.token_template import TokenTemplate

MakePlace = Callable[[float, bool], Maker]
"""A function that returns a maker of rollouts. Its arguments are the sampling temperature, and whether the
recipe's judge scores the steps."""


@contextmanager
def open_places(
    recipe: Rl, start: Path, reads: Reads, folder: Path, endpoint: Endpoint
) -> Iterator[tuple[MakePlace, Busy | None]]:
    """Yields a function that creates a maker of rollouts, and a meter.

    The rollouts are made in this process, or on the hosts of a Ray cluster if $SWELAB_EXECUTOR is ray. The
    meter measures the time in which the policy generates, and is None with Ray. Raises Fault, InputError.
    """
    if os.environ.get("SWELAB_EXECUTOR") == "ray":
        with ray_places(recipe, start, reads, folder, endpoint) as on_hosts:
            yield lambda temperature, judged: on_hosts(temperature), None
        return
    scaffold = loop_of(recipes.load_named(SCAFFOLD, recipe.scaffold))
    with (
        open_bench(reads, folder, recipe.rollouts.at_once, recipe.method.reward) as (bench, scratch),
        judge_of(recipe, folder) as judge,
    ):
        busy = Busy()
        engine, template = TimedEngine(ServedTokens(endpoint), busy), TokenTemplate.of(start)

        def place(temperature: float, judged: bool) -> Place:
            maker = model_maker(recipe, engine, template, scaffold, temperature)
            return Place(bench, scaffold, scratch, maker, judge if judged else None)

        yield place, busy


def judge_of(recipe: Rl, folder: Path) -> AbstractContextManager[Judge | None]:
    """Returns a context manager that opens the judge of single steps. The context manager yields None if the
    recipe has no judge."""
    if not (asked := recipe.judge):
        return nullcontext()
    policy = recipes.load_named(POLICY, asked.policy)
    return open_judge(policy, asked.policy, asked.votes, asked.at_once, folder)
