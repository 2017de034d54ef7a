"""The resources of a verl process that makes rollouts. The resources are opened for the first rollout and
closed when the process ends."""

import asyncio
import atexit
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from swelab.jobs.journal import Journal
from swelab.records import Fault, write_bytes
from swelab.rl.engines.verl_order import Order, read_order
from swelab.rl.model_maker import model_maker
from swelab.rl.places import judge_of
from swelab.rl.rollout_inputs import open_bench
from swelab.rl.rollouts import Place, RolledOut, RolloutRequest, StepJournal
from swelab.rl.token_model import TokenEngine
from swelab.rl.token_template import TokenTemplate

FAULT = "fault.txt"
"""Name of a file in the run's folder for a fault that would make every further rollout fail too."""


class Gathering:
    """Collects the rollouts of one prompt until all are finished."""

    def __init__(self, size: int):
        self.done: dict[int, RolledOut] = {}
        self._open, self._whole = size, asyncio.Event()

    def close(self, session: int, done: RolledOut | None) -> None:
        """Records that a rollout has ended. done: the finished rollout, or None if the rollout failed."""
        if done:
            self.done[session] = done
        self._open -= 1
        if not self._open:
            self._whole.set()

    async def whole(self) -> dict[int, RolledOut]:
        """Waits until all rollouts have ended. Returns the rollouts that did not fail, keyed by their number
        in the group."""
        await self._whole.wait()
        return self.done


class Workplace:
    """The sandboxes, grader, template and threads of one process. verl's event loop calls the methods."""

    def __init__(self, order: Order, open_until: ExitStack):
        """Opens the resources. Raises Fault, InputError. open_until: stack that closes the resources."""
        self.order, self._scaffold = order, order.loop
        self._template = TokenTemplate.of(order.start)
        bench = open_bench(order.reads, order.folder, order.at_once, order.recipe.method.reward)
        self._bench, self._scratch = open_until.enter_context(bench)
        self._judge = open_until.enter_context(judge_of(order.recipe, order.folder))
        self._threads = ThreadPoolExecutor(order.at_once)
        open_until.callback(self._threads.shutdown, wait=False, cancel_futures=True)
        self._groups: dict[str, Gathering] = {}

    def request_of(self, number: int, session: int, held_out: bool) -> RolloutRequest:
        """Returns the request for one rollout. number: the prompt's number. session: the rollout's number in
        its group. held_out: whether the prompt is a validation task."""
        task = self.order.held_out[number] if held_out else self.order.prompts.task(number)
        return RolloutRequest(number, session, task)

    def group(self, name: str) -> Gathering:
        """Returns the collected rollouts of the prompt that verl calls `name`."""
        if name not in self._groups:
            self._groups[name] = Gathering(self.order.recipe.rollouts.samples)
        return self._groups[name]

    def forget(self, name: str) -> None:
        """Removes a group that will not be requested again."""
        self._groups.pop(name, None)

    async def roll_out(
        self, request: RolloutRequest, journal: Path, engine: TokenEngine, temperature: float, judged: bool
    ) -> RolledOut:
        """Makes and grades a rollout in a thread, or reads it from the journal. Raises Fault."""
        maker = model_maker(self.order.recipe, engine, self._template, self._scaffold, temperature)
        judge = self._judge if judged else None
        place = Place(self._bench, self._scaffold, self._scratch, maker, judge)

        def work() -> RolledOut:
            with Journal(journal) as kept:
                return place.roll_out(request, StepJournal(kept))

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Fault as fault:
            write_bytes(self.order.folder / FAULT, f"{request.name}: {fault}\n".encode())
            raise


@cache
def _opener(order: str) -> Callable[[], Workplace]:
    lock, workplaces = threading.Lock(), list[Workplace]()

    def get() -> Workplace:
        with lock:
            if not workplaces:
                stack = ExitStack()
                atexit.register(stack.close)
                workplaces.append(Workplace(read_order(Path(order)), stack))
            return workplaces[0]

    return get


def workplace(order: str) -> Workplace:
    """Returns the workplace of this process. The first call opens the workplace, with the order in the file
    `order`. Raises Fault, InputError."""
    return _opener(order)()
