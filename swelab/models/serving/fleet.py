"""Model servers that are kept running: one, or several behind a router, on a node or on all of a SLURM job.

Each server has a thread that starts it, asks it to generate now and then, and starts it again when it has
ended or hangs. Meanwhile the others serve; requests that were lost with it are repeated by the router
or the client.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from swelab.cluster import slurm
from swelab.configs.kinds.policy import Job
from swelab.jobs.child_process import fault_line
from swelab.jobs.proxies import bypass
from swelab.models import ServingError
from swelab.models.serving.engine import DEFAULT_ENGINE, Keeper, Weights, open_engine
from swelab.models.serving.replica import serve_on
from swelab.models.serving.server import Endpoint, new_key, serve
from swelab.records import Fault, InputError, Record

CHECK_SECONDS = 10.0
ANSWER_SECONDS = 30.0
MUTE_CHECKS = 3
RESTARTS = 5
STEADY_SECONDS = 600
"""A server that ran so long may fail as often again."""
DRAIN_SECONDS = 60.0

Start = Callable[[int | None, Callable[[], bool]], AbstractContextManager[Endpoint]]
"""Starts a server, given its port (None for any) and whether to give up waiting for it."""


class Server(threading.Thread):
    """One server kept running. `endpoint` is None while it is down, `fault` is there when it stays so.

    `weights` are those that replaced the ones it starts with, None while nothing did.
    """

    def __init__(self, name: str, start: Start, log: Path, changed: threading.Condition):
        super().__init__(name=name, daemon=True)
        self.log = log
        self.endpoint: Endpoint | None = None
        self.fault: BaseException | None = None
        self.weights: Weights | None = None
        self.starts = 0
        self._start_server, self._changed, self._ending = start, changed, threading.Event()

    def run(self) -> None:
        """Until `end`, or until it failed RESTARTS times in a row."""
        port, failures = None, 0
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                with self._start_server(port, self._ending.is_set) as endpoint:
                    port = httpx.URL(endpoint.url).port
                    self.starts += 1
                    self._open(endpoint)
                    watch(endpoint, self.log, self._ending)
            except Exception as fault:
                failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
                lasting = not self.starts or failures > RESTARTS or not isinstance(fault, Fault)
                self._tell(None, fault if lasting else None)
                if lasting:
                    return
                kept = self._keep_log()
                print(f"{self.name}: {fault}; starting it again; log: {kept}", file=sys.stderr, flush=True)
                self._ending.wait(2 ** (failures - 1))

    def _open(self, endpoint: Endpoint) -> None:
        """Publishes a server's endpoint once it serves the current weights, which may change meanwhile."""
        served = None
        while True:
            with self._changed:
                wanted = self.weights
                if wanted is served:
                    self._tell(endpoint, None)
                    return
            assert wanted is not None
            replace(endpoint, wanted)
            served = wanted

    def _keep_log(self) -> Path:
        """The log of the server that ended, out of the way of the next one's."""
        kept = self.log.with_suffix(f".{self.starts}{self.log.suffix}")
        with suppress(OSError):
            self.log.replace(kept)
        return kept

    def _tell(self, endpoint: Endpoint | None, fault: BaseException | None) -> None:
        with self._changed:
            self.endpoint, self.fault = endpoint, fault
            self._changed.notify_all()

    def up(self) -> bool:
        """Whether the server runs."""
        endpoint = self.endpoint
        return bool(endpoint and endpoint.alive())

    def end(self) -> None:
        """Lets the server finish what it does, and ends it; `join` waits for that."""
        self._ending.set()


def replace(endpoint: Endpoint, weights: Weights, in_turns: bool = False) -> None:
    """Has one server of ours serve other weights; see `Engine.replace_weights`. Raises ServingError."""
    address = endpoint.url.removesuffix("/v1")
    open_engine(endpoint.engine).replace_weights(address, endpoint.admin_key, weights, in_turns)


def watch(endpoint: Endpoint, log: Path, ending: threading.Event) -> None:
    """Until `ending`. Raises ServingError when the server has ended, or generates nothing any more."""
    mute, due = 0, time.monotonic() + CHECK_SECONDS
    while not ending.wait(min(1.0, CHECK_SECONDS)):
        if not endpoint.alive():
            said = f": {fault_line(log)}" if log.is_file() else ""
            raise ServingError(f"the model server has ended{said}")
        if time.monotonic() >= due:
            mute = 0 if generates(endpoint) else mute + 1
            if mute >= MUTE_CHECKS:
                raise ServingError(f"the model server generated nothing in {mute} checks")
            due = time.monotonic() + CHECK_SECONDS


def generates(endpoint: Endpoint) -> bool:
    """Whether a server generates tokens; without requests of clients the check asks for one."""
    headers = {"Authorization": f"Bearer {endpoint.api_key}"}
    try:
        address = endpoint.url.removesuffix("/v1") + open_engine(endpoint.engine).generates
        return httpx.get(address, headers=headers, timeout=ANSWER_SECONDS).status_code == 200
    except httpx.HTTPError:
        return False


class Fleet:
    """Servers that are up or coming up again, and their router if they are several."""

    def __init__(self, servers: list[Server], changed: threading.Condition, engine: str = DEFAULT_ENGINE):
        self.servers, self.changed, self.engine = servers, changed, open_engine(engine)
        self.router: Keeper | None = None
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def await_first(self) -> None:
        """Until every server is up. Raises the fault of the first that does not come up."""
        with self.changed:
            self.changed.wait_for(
                lambda: any(s.fault for s in self.servers) or all(s.endpoint for s in self.servers)
            )
        for server in self.servers:
            if server.fault:
                raise server.fault

    def alive(self) -> bool:
        """Whether a server is up; waits while all are coming up again. False when none will."""
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self._ended.is_set()
                    or any(s.up() for s in self.servers)
                    or all(s.fault for s in self.servers)
                )
            )
            return not self._ended.is_set() and any(s.up() for s in self.servers)

    def publish(self, weights: Weights, in_turns: bool = False) -> int:
        """Has every server that is up serve other weights, and those that come up later; how many do now.

        in_turns: turns that run go on with the new weights; else a server ends them first.
        A server that ends meanwhile comes up again with them. Raises ServingError when one that runs refuses.
        """
        with self.changed:
            for server in self.servers:
                server.weights = weights
            up = [server.endpoint for server in self.servers if server.endpoint]
        count = 0
        for endpoint in up:
            try:
                replace(endpoint, weights, in_turns)
                count += 1
            except ServingError:
                if endpoint.alive():
                    raise
        return count

    def route(self, key: str, log: Path) -> str:
        """Starts the router and a thread that keeps it; its address."""
        ready = threading.Event()
        faults: list[BaseException] = []

        def keep() -> None:
            urls = [server.endpoint.url.removesuffix("/v1") for server in self.servers if server.endpoint]
            try:
                self.router = self.engine.router(urls, key, log, DRAIN_SECONDS)
                ready.set()
                while not self._ended.wait(0.5):
                    if not self.router.alive():
                        print(f"the router has ended; starting it again; log: {log}", file=sys.stderr)
                        self.router.start()
                self.router.stop()
            except Exception as fault:
                faults.append(fault)
            finally:
                ready.set()

        self._keeper = threading.Thread(target=keep, name="router", daemon=True)
        self._keeper.start()
        ready.wait()
        if faults or not self.router:
            raise faults[0]
        return f"{self.router.url}/v1"

    def end(self) -> None:
        """The router first, when what it sent on is answered; then the servers, all at a time."""
        with self.changed:
            self._ended.set()
            self.changed.notify_all()
        if self._keeper:
            self._keeper.join()
        for server in self.servers:
            server.end()
        for server in self.servers:
            server.join()


def starts(weights: Path, job: Job, log: Path, settings: Record) -> list[tuple[Start, Path]]:
    """How each server of a job is started, and its log: `servers` on each node, with a share of its GPUs.

    Raises InputError when the GPUs cannot be dealt out evenly, or there is no SLURM job for several nodes.
    """
    if job.gpus % job.servers:
        raise InputError(
            f"{job.gpus} GPUs for {job.servers} servers of a node", expected="a multiple of the servers"
        )
    each = job.gpus // job.servers
    nodes = slurm.job_nodes() if job.nodes > 1 else [slurm.Node("", settings.get("host", "127.0.0.1"))]
    bypass(*(node.address for node in nodes))
    if len(nodes) < job.nodes:
        raise InputError(
            f"job.nodes is {job.nodes}, this SLURM job has {len(nodes)}", expected="as many nodes"
        )
    engine = open_engine(settings.get("engine", DEFAULT_ENGINE))
    found: list[tuple[Start, Path]] = []
    for number in range(len(nodes) * job.servers):
        node, place = nodes[number // job.servers], number % job.servers
        gpus = engine.gpu_options(each, place * each) if each else ()
        own = log.with_name(f"{log.stem}{number or ''}{log.suffix}")
        mine = {"drain_seconds": DRAIN_SECONDS, **settings, "extra_args": gpus, "host": node.address}
        found.append((_start(weights, node, job.gpus, mine | {"log": own}), own))
    return found


def _start(weights: Path, node: slurm.Node, gpus: int, settings: Record) -> Start:
    if node.name:
        return lambda port, ending: serve_on(
            node, gpus, {"weights": weights, **settings, "port": port}, ending
        )
    return lambda port, ending: serve(weights, **settings, port=port, ending=ending)


@contextmanager
def serve_fleet(
    weights: Path, *, name: str, job: Job, log: Path, engine: str = DEFAULT_ENGINE, **settings: Any
) -> Iterator[Endpoint]:
    """Serves a checkpoint as `job` says ({"nodes", "servers", "gpus"}) while the block runs.

    `settings` are those of `serve`; further servers log to numbered files next to `log`. Raises InputError;
    ServingError when a server does not come up. Later faults are mended by restarts; when these do not help,
    the endpoint's `alive` turns false.
    """
    with open_fleet(weights, name=name, job=job, log=log, engine=engine, **settings) as (_, endpoint):
        yield endpoint


@contextmanager
def open_fleet(
    weights: Path, *, name: str, job: Job, log: Path, engine: str = DEFAULT_ENGINE, **settings: Any
) -> Iterator[tuple[Fleet, Endpoint]]:
    """`serve_fleet`, with the fleet itself: for weights that change while it serves."""
    key = settings.pop("api_key", None) or new_key()
    changed = threading.Condition()
    same = {"name": name, "api_key": key, "admin_key": new_key(), "engine": engine}
    openers = starts(weights, job, log, {**settings, **same})
    servers = [Server(f"model server {n}", start, log, changed) for n, (start, log) in enumerate(openers)]
    fleet = Fleet(servers, changed, engine)
    with ExitStack() as stack:
        stack.callback(fleet.end)
        for server in servers:
            server.start()
        fleet.await_first()
        assert servers[0].endpoint
        several = len(servers) > 1
        url = fleet.route(key, log.with_name(f"{log.stem}.router{log.suffix}")) if several else ""
        yield fleet, Endpoint(url or servers[0].endpoint.url, key, name, alive=fleet.alive, engine=engine)
