"""Spreads instances over an existing Ray cluster: one process of ours on each host, with several threads.

The repository (code, recipes, results) is on a file system that all hosts see under the same path. Each host
makes the sandboxes for its own instances. The loss of a host is an infrastructure loss. Its instances are
repeated on other hosts.
"""

import contextlib
import logging
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from swelab.jobs.thread_pool import RETRY_SECONDS, Done, Todo, Work, attempt
from swelab.records import Fault, InputError, Record, shorten

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ("SWELAB_BACKEND", "SWELAB_TOOLBOX", "SWELAB_SANDBOX_IMAGE", "SWELAB_RUN", "DOCKER_HOST")
"""Environment variables of this process that hosts get in addition to `Place.variables`."""
CONNECT_SECONDS = 20
START_SECONDS = 300
CLOSE_SECONDS = 60


class RayFailed(Fault):
    """The cluster cannot be reached, or no host is left."""


class Place(Protocol):
    """The settings that a host needs for its work. They are pickled, so they hold only records and paths."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Additional environment variables that the work needs."""
        ...

    def open(self, count: int) -> AbstractContextManager[Work]:
        """Opens a function that computes the record of an instance, for `count` calls at the same time."""
        ...

    def is_lost(self, record: Any) -> bool:
        """Returns whether a record is an infrastructure loss."""
        ...

    def lost_record(self, item: Any, reason: str) -> Record:
        """Returns the record of an instance whose hosts were lost repeatedly."""
        ...


class RayHost:
    """The worker on one host of the Ray cluster. It lives in a process of ours."""

    def __init__(self, folder: str, environment: dict[str, str], place: bytes, count: int):
        os.chdir(folder)
        os.environ.update(environment)
        self._place: Place = pickle.loads(place)
        self._count = count
        self._stack = contextlib.ExitStack()

    def open(self) -> str:
        """Prepares for work. Returns "" or a line about the fault."""
        try:
            self._work = self._stack.enter_context(self._place.open(self._count))
        except Fault as fault:
            return str(fault)
        return ""

    def attempt(self, key: str, item: Any) -> Done | str:
        """Returns the finished instance, or a line about a fault that ends the run."""
        try:
            return attempt(key, item, self._work, self._place.is_lost)
        except Fault as fault:
            return str(fault)

    def close(self) -> None:
        """Closes what `open` opened."""
        self._stack.close()


def _boot(root: str) -> Any:
    """Returns a class that is pickled by value and imports this module from the host's shared folder."""

    class BootHost:
        def __init__(self, *arguments: Any):
            sys.path.insert(0, root)
            from swelab.jobs.ray_workers import RayHost

            self.host = RayHost(*arguments)

        def call(self, name: str, *arguments: Any) -> Any:
            return getattr(self.host, name)(*arguments)

    return BootHost


@dataclass
class _Seat:
    """A host's actor, and the number of further instances that the host can process."""

    node: str
    actor: Any
    room: int


class RayWorkers:
    """Processes up to `count` instances at the same time, over all hosts of a Ray cluster.

    address: host:port of the cluster, by default $RAY_ADDRESS.
    """

    def __init__(self, count: int, address: str | None = None):
        self.count = count
        self.address = address or os.environ.get("RAY_ADDRESS") or ""
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdecimal():
            what = f"{self.address!r} names no Ray cluster"
            raise InputError(what, "$RAY_ADDRESS", "host:port of `ray start --head`")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise RayFailed(f"no Ray cluster answers at {self.address}: {error}") from None

    def run(self, todo: Todo, place: Place) -> Generator[list[Done], None, None]:
        """Yields finished instances as they come. Instances are started in the order of `todo`.

        Raises Fault (from the work), RayFailed.
        """
        with self._spread(place) as spread:
            yield from spread.run(todo)

    @contextmanager
    def calls(self, place: Place) -> Iterator[Callable[[str, Any], Done]]:
        """Yields a function that processes an instance on a host, and waits for the result.

        `count` threads may call the function. It raises Fault (from the work), RayFailed.
        """
        with self._spread(place) as spread:
            yield spread.call

    @contextmanager
    def _spread(self, place: Place) -> Iterator["_Spread"]:
        try:
            import ray
        except ImportError:
            raise InputError("the package ray is not installed", "executor: ray", "envs/cpu.txt") from None
        try:
            ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise RayFailed(f"no Ray cluster answers at {self.address}: {error}") from None
        try:
            with closing(_Spread(ray, self.count, place)) as spread:
                yield spread
        finally:
            ray.shutdown()


def _last(error: Exception) -> str:
    return shorten(next(reversed(str(error).strip().splitlines()), type(error).__name__))


class _Spread:
    def __init__(self, ray: Any, count: int, place: Place):
        self.ray, self.count, self.place = ray, count, place
        self.seats: list[_Seat] = []
        self.running: dict[Any, tuple[_Seat, str, Record]] = {}
        self.losses: dict[str, int] = {}
        self._one = threading.Lock()
        self._without_hosts = False
        faults = ray.exceptions
        self._lost = (faults.RayActorError, faults.ObjectLostError, faults.NodeDiedError)
        self._fill()

    def run(self, todo: Todo) -> Generator[list[Done], None, None]:
        """See `RayWorkers.run`."""
        while todo or self.running:
            self._hand_out(todo)
            ready, _ = self.ray.wait(list(self.running), num_returns=1)
            more, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
            done = []
            for reference in dict.fromkeys([*ready, *more]):
                seat, key, item = self.running.pop(reference)
                if found := self._take(reference, seat, key, item):
                    done.append(found)
                else:
                    todo.appendleft((key, item))
            if done:
                yield done

    def call(self, key: str, item: Any) -> Done:
        """See `RayWorkers.calls`. Raises RayFailed if no host is left."""
        while True:
            with self._one:
                if not self.seats:
                    self._fill()
                seat = max(self.seats, key=lambda each: each.room)
                reference = seat.actor.call.remote("attempt", key, item)
                seat.room -= 1
            if found := self._take(reference, seat, key, item):
                return found

    def _hand_out(self, waiting: Todo) -> None:
        while waiting:
            seat = max((seat for seat in self.seats if seat.room), key=lambda seat: seat.room, default=None)
            if seat is None:
                if not self.seats:
                    self._fill()
                    continue
                return
            key, item = waiting.popleft()
            self.running[seat.actor.call.remote("attempt", key, item)] = (seat, key, item)
            seat.room -= 1

    def _take(self, reference: Any, seat: _Seat, key: str, item: Any) -> Done | None:
        """Returns the result of an instance, or None if its host was lost.

        After None, the instance must be repeated.
        """
        try:
            result: Done | str = self.ray.get(reference)
        except self._lost as error:
            with self._one:
                self._drop(seat)
                self.losses[key] = self.losses.get(key, 0) + 1
            if self.losses[key] <= len(RETRY_SECONDS):
                return None
            reason = f"hosts of the Ray cluster were lost: {_last(error)}"
            return Done(key, item, self.place.lost_record(item, reason), 0.0)
        with self._one:
            seat.room += 1
        if isinstance(result, str):
            raise Fault(result)
        return result

    def _drop(self, seat: _Seat) -> None:
        """Removes a lost host, and starts an actor on each new host."""
        if seat in self.seats:
            self.seats.remove(seat)
            self.ray.kill(seat.actor)
            self._fill()

    def _fill(self) -> None:
        """Starts an actor on each live host that has no actor.

        Raises RayFailed if there is no host for a while, and then immediately in each further call.
        """
        for wait in () if self._without_hosts else (0, *RETRY_SECONDS, *RETRY_SECONDS):
            time.sleep(wait)
            nodes = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
            taken = {seat.node for seat in self.seats}
            fresh = [self._sit(node, len(nodes)) for node in nodes if node not in taken]
            self.seats += [seat for seat in fresh if seat]
            if self.seats:
                return
        self._without_hosts = True
        raise RayFailed("the Ray cluster has no host that can work")

    def _sit(self, node: str, hosts: int) -> _Seat | None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        room = -(-self.count // hosts)
        names = (*CARRIED, *self.place.variables)
        environment = {name: os.environ[name] for name in names if name in os.environ}
        options = {
            "num_cpus": 0,
            "max_concurrency": room + 1,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        }
        actor = (
            self.ray.remote(_boot(str(ROOT)))
            .options(**options)
            .remote(str(Path.cwd()), environment, pickle.dumps(self.place), room)
        )
        try:
            fault = self.ray.get(actor.call.remote("open"), timeout=START_SECONDS)
        except (*self._lost, self.ray.exceptions.GetTimeoutError) as error:
            print(f"a host of the Ray cluster cannot work: {_last(error)}", file=sys.stderr)
            return None
        if fault:
            raise Fault(fault)
        return _Seat(node, actor, room)

    def close(self) -> None:
        """Lets every host clean up, and ends its process."""
        closing = [seat.actor.call.remote("close") for seat in self.seats]
        with contextlib.suppress(Exception):
            self.ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
        for seat in self.seats:
            self.ray.kill(seat.actor)
