"""Keeps model servers running behind one gate, on one node or on all nodes of a SLURM job.

While a server restarts, the other servers answer. The gate or the client repeats the requests that were lost.
Clients know only the token of the gate. The keys of the engines stay in this process, where `Fleet.publish`
uses them to replace weights.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from swelab.cluster import slurm
from swelab.configs.kinds.policy import Job
from swelab.jobs.proxies import bypass
from swelab.models import ServingError
from swelab.models.serving.complete_checkpoint import vocabulary
from swelab.models.serving.engine import DEFAULT_ENGINE, Weights, open_engine
from swelab.models.serving.gate_process import GateProcess, GateSettings
from swelab.models.serving.server import Endpoint, new_key, serve
from swelab.models.serving.server_watchdog import Server, Start, replace
from swelab.models.serving.srun_server import serve_on
from swelab.records import InputError, Record

DRAIN_SECONDS = 60.0
LOOPBACK = "127.0.0.1"
GATE_STARTS = 5
"""Number of failed restarts in a row after which the gate counts as failed."""


class Fleet:
    """Model servers, running or restarting, and the gate in front of them."""

    def __init__(self, servers: list[Server], changed: threading.Condition):
        self.servers, self.changed = servers, changed
        self.gate: GateProcess | None = None
        self.fault: BaseException | None = None
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def await_first(self) -> list[Endpoint]:
        """Waits until all servers are up, and returns their endpoints. Raises the error of a server that
        fails."""
        with self.changed:
            self.changed.wait_for(
                lambda: any(s.fault for s in self.servers) or all(s.endpoint for s in self.servers)
            )
            ends = [server.endpoint for server in self.servers]
        for server in self.servers:
            if server.fault:
                raise server.fault
        return [endpoint for endpoint in ends if endpoint]

    def alive(self) -> bool:
        """Returns whether any server is up. Waits while all servers restart. Returns False if no server will
        come up again."""
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
        """Replaces the weights of all servers, and returns how many running servers have the new weights now.

        in_turns: whether running turns continue with the new weights. Otherwise each server finishes them
        first. A server that starts later, or dies meanwhile, starts with the new weights. Raises ServingError
        if a running server refuses.
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

    def open_gate(self, settings: GateSettings, log: Path) -> str:
        """Starts the gate and a thread that keeps it running, and returns the gate's URL. Raises
        ServingError."""
        ready = threading.Event()
        faults: list[BaseException] = []

        def keep() -> None:
            try:
                self.gate = GateProcess(settings, log)
                ready.set()
                try:
                    self._keep_gate(self.gate)
                finally:
                    self.gate.stop()
            except Exception as fault:
                faults.append(fault)
                self.give_up(fault)
            finally:
                ready.set()

        self._keeper = threading.Thread(target=keep, name="gate", daemon=True)
        self._keeper.start()
        ready.wait()
        if faults or not self.gate:
            raise faults[0]
        with self.changed:
            for server in self.servers:
                server.on_change = self._update_gate
            self._update_gate()
        return f"{self.gate.url}/v1"

    def _keep_gate(self, gate: GateProcess) -> None:
        """Restarts the gate whenever it dies, until `end`. Raises ServingError after GATE_STARTS failures in
        a row."""
        failed = 0
        while not self._ended.wait(0.5):
            if gate.alive():
                continue
            print(f"the gate has ended; starting it again; log: {gate.log}", file=sys.stderr, flush=True)
            try:
                gate.start(engines=0)
                failed = 0
            except ServingError:
                failed += 1
                if failed >= GATE_STARTS:
                    raise
                self._ended.wait(2**failed)

    def _update_gate(self) -> None:
        if self.gate:
            self.gate.set_up([server.endpoint is not None for server in self.servers])

    def give_up(self, fault: BaseException) -> None:
        """Marks the whole fleet as failed, because of `fault`."""
        with self.changed:
            self.fault = fault
            self._ended.set()
            self.changed.notify_all()

    def await_end(self) -> None:
        """Waits until no server will come up again, and then raises the reason."""
        while self.alive():
            self._ended.wait(1.0)
        faults = [self.fault, *(server.fault for server in self.servers)]
        raise next((fault for fault in faults if fault), ServingError("the model servers have ended"))

    def end(self) -> None:
        """Stops the gate after its running requests were answered, and then all servers at once."""
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
    """Returns (start function, log) of each server.

    There are `job.servers` servers on each node, each with an equal share of the GPUs. Raises InputError if
    the GPUs cannot be divided evenly, or if several nodes are needed without a SLURM job.
    """
    if job.gpus % job.servers:
        raise InputError(
            f"{job.gpus} GPUs for {job.servers} servers of a node", expected="a multiple of the servers"
        )
    each = job.gpus // job.servers
    nodes = slurm.job_nodes() if job.nodes > 1 else [slurm.Node("", LOOPBACK)]
    bypass(*(node.address for node in nodes))
    if len(nodes) < job.nodes:
        raise InputError(
            f"job.nodes is {job.nodes}, this SLURM job has {len(nodes)}", expected="as many nodes"
        )
    engine = open_engine(settings.get("engine", DEFAULT_ENGINE))
    servers: list[tuple[Start, Path]] = []
    for number in range(len(nodes) * job.servers):
        node, place = nodes[number // job.servers], number % job.servers
        gpus = engine.gpu_options(each, place * each) if each else ()
        own = log.with_name(f"{log.stem}{number or ''}{log.suffix}")
        further = [*gpus, *settings.get("extra_args", ())]
        mine = {"drain_seconds": DRAIN_SECONDS, **settings, "extra_args": further, "host": node.address}
        servers.append((_start(weights, node, job.gpus, mine | {"log": own}), own))
    return servers


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
    """Serves a checkpoint on the nodes, servers and GPUs of `job` during the block.

    settings: as for `serve`, but `host`, `port` and `api_key` apply to the gate, because clients cannot reach
    the engines. Further servers log to numbered files next to `log`. Raises InputError, and ServingError if a
    server does not start. A later failure leads to restarts. If these fail too, the endpoint's `alive`
    becomes false.
    """
    with open_fleet(weights, name=name, job=job, log=log, engine=engine, **settings) as (_, endpoint):
        yield endpoint


@contextmanager
def open_fleet(
    weights: Path, *, name: str, job: Job, log: Path, engine: str = DEFAULT_ENGINE, **settings: Any
) -> Iterator[tuple[Fleet, Endpoint]]:
    """Like `serve_fleet`, but also yields the fleet, whose weights can be replaced while it serves."""
    token, host, port = (settings.pop(each, None) for each in ("api_key", "host", "port"))
    changed = threading.Condition()
    same = {"name": name, "api_key": new_key(), "admin_key": new_key(), "engine": engine}
    openers = starts(weights, job, log, {**settings, **same})
    servers = [Server(f"model server {n}", start, log, changed) for n, (start, log) in enumerate(openers)]
    fleet = Fleet(servers, changed)
    with ExitStack() as stack:
        stack.callback(fleet.end)
        for server in servers:
            server.start()
        ends = fleet.await_first()
        lent = [open_engine(engine).adapter_model(name, each) for each in settings.get("adapters") or ()]
        gate = GateSettings(
            host=host or LOOPBACK,
            port=port,
            token=token or new_key(),
            engine=engine,
            engine_key=same["api_key"],
            urls=[endpoint.url.removesuffix("/v1") for endpoint in ends],
            names=[name, *lent],
            context_length=settings["context_length"],
            vocabulary=vocabulary(weights, settings.get("base")),
            drain_seconds=settings.get("drain_seconds", DRAIN_SECONDS),
        )
        url = fleet.open_gate(gate, log.with_name(f"{log.stem}.gate{log.suffix}"))
        yield fleet, Endpoint(url, gate.token, name, alive=fleet.alive, engine=engine)
