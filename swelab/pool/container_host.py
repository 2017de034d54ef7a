"""Creates, uses and ends the sandboxes of one container host, within the limits of that host."""

import asyncio
import contextlib
import functools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, TypeVar

from swelab.pool.budget import Budget
from swelab.pool.host_sandbox import HostLimits, HostSandbox, answer_bytes, command_bytes
from swelab.pool.idempotency import Once, Shelf
from swelab.pool.image_allowlist import AllowedImages
from swelab.pool.renewal import LONGEST_SECONDS
from swelab.pool.request_schemas import PoolRequest, footprint
from swelab.records import Record
from swelab.sandbox.docker_backend import DockerBackend, DockerSandbox
from swelab.sandbox.protocol import ExecResult, Image, Limits, PathRefused, SandboxLost, SessionAnswer
from swelab.sandbox.remote_protocol import NoPlace, Refused

SMALL_ANSWER = 1 << 20
_COMMANDS = 8  # maximum number of concurrent commands in one sandbox
_SESSIONS = 8  # maximum number of concurrent sessions in one sandbox
_TICK_SECONDS = 0.25
_MAKE_SECONDS = 2000.0  # how long a pool repeats its request to create a sandbox
_PING_SECONDS = 3.0
_AGAIN_SECONDS = 5.0
_log = logging.getLogger(__name__)
T = TypeVar("T")


def _ignore_result(ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled() and ended.exception():
        _log.warning("a sandbox could not be ended: %s", ended.exception())


class Host:
    """The sandboxes of one container host. All methods except `close` must run in the same event loop."""

    def __init__(self, backend: DockerBackend, limits: HostLimits, allowed: AllowedImages) -> None:
        self.backend, self.limits, self.allowed = backend, limits, allowed
        self.boot = secrets.token_hex(16)
        self.sandboxes: dict[str, HostSandbox] = {}
        self.making: list[int] = []  # bytes of memory for each sandbox that is being created
        self.expired = 0
        self.spool = Budget("this host's disk for uploads", limits.spool_bytes)
        self.answers = Budget("this host's memory for answers", limits.answer_bytes)
        self._creating = Once(most=10_000, keep_errors=False, known_seconds=_MAKE_SECONDS)
        self.shelf = Shelf()
        self._threads = ThreadPoolExecutor(
            limits.containers * (_COMMANDS + 2) + 16, thread_name_prefix="host"
        )
        self._ping: asyncio.Future[bool] | None = None

    async def thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs a blocking function in a thread and returns its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    # -- life

    async def create(self, request: PoolRequest, limits: Limits, fingerprint: str) -> tuple[str, str]:
        """Creates the sandbox that a request describes. Returns (sandbox id, name).

        Raises NoPlace, Refused, ImageMissing, SandboxLost, OSError.
        """
        self.limits.check(limits)
        if (need := footprint(limits)) > self.limits.memory_bytes:
            raise Refused(f"the sandbox's limits need {need} bytes of memory: this host has less")
        make = functools.partial(self._create, request, limits)
        return await self._creating.run(request.request_id, fingerprint, make)

    async def _create(self, request: PoolRequest, limits: Limits) -> tuple[str, str]:
        with self._place(footprint(limits)):
            box, image = await self.thread(self._start, request, limits)
            ttl = request.ttl_seconds or self.limits.ttl_seconds
            sandbox = HostSandbox(
                id=box.containers()[0],
                name=request.name or f"swe-{secrets.token_hex(6)}",
                box=box,
                image=image,
                owner=request.owner,
                client=request.client or box.containers()[0],
                request_id=request.request_id,
                limits=limits,
                beats="ttl_seconds" in request,
                ttl=ttl,
                ends=time.monotonic() + ttl,
                once=Once(answer_bytes, shelf=self.shelf),
            )
            self.sandboxes[sandbox.id] = sandbox
        return sandbox.id, sandbox.name

    @contextlib.contextmanager
    def _place(self, memory: int) -> Iterator[None]:
        if len(self.sandboxes) + len(self.making) >= self.limits.containers:
            raise NoPlace(f"this host already has its {self.limits.containers} sandboxes")
        if self.memory() + memory > self.limits.memory_bytes:
            raise NoPlace(f"this host has less than {memory} bytes of memory left")
        self.making.append(memory)
        try:
            yield
        finally:
            self.making.remove(memory)

    def memory(self) -> int:
        """Returns the bytes of memory that all sandboxes may use according to their limits."""
        return sum(each.memory() for each in self.sandboxes.values()) + sum(self.making)

    def gauges(self) -> dict[str, float]:
        """Returns the values for /metrics: sandboxes, running commands, bytes of memory and disk."""
        return {
            "sandboxes": len(self.sandboxes),
            "sandboxes_being_made": len(self.making),
            "sandboxes_most": self.limits.containers,
            "sandboxes_expired_total": self.expired,
            "commands_running": sum(each.running for each in self.sandboxes.values()),
            "memory_bytes": self.memory(),
            "memory_most_bytes": self.limits.memory_bytes,
            "answers_bytes": self.answers.used,
            "uploads_bytes": self.spool.used,
            "kept_bytes": self.shelf.size(),
        }

    def _start(self, request: PoolRequest, limits: Limits) -> tuple[DockerSandbox, str]:
        image: Image | None = None
        if request.image:
            image = self.allowed.find(self.backend.engine, request.image, request.digest, request.cwd)
        elif not request.tree:
            raise ValueError("a sandbox needs a tree or an image")
        start = self.backend.start_empty if request.tree else functools.partial(self.backend.start, None)
        return start(image=image, limits=limits, forgets=request.forgets), request.image

    def find(self, container: str) -> HostSandbox:
        """Returns the sandbox with this id. Raises SandboxLost if there is none."""
        held = self.sandboxes.get(container)
        if held is None:
            raise SandboxLost(
                "this host has no such sandbox: it was ended, it expired, or the host restarted"
            )
        return held

    async def destroy(self, container: str) -> bool:
        """Ends a sandbox and waits until its containers are removed. Returns False if the id is unknown."""
        sandbox = self.sandboxes.get(container)
        if sandbox is None:
            return False
        sandbox.closing = True
        try:
            await self.thread(sandbox.box.close)
        except BaseException:
            sandbox.closing = False
            raise
        self.sandboxes.pop(container, None)
        self.shelf.leave(sandbox.once)
        for sending in sandbox.unread:
            sending.cancel()
        return True

    def renew(self, owner: str, seconds: dict[str, Any]) -> Record:
        """Sets the remaining time to live of the owner's sandboxes. seconds: maps sandbox ids to seconds.

        Returns three fields. "unknown" lists the ids for which the owner has no sandbox on this host. "extra"
        maps the id of each other sandbox of the owner to its request id. "refused" lists the ids with an
        invalid number of seconds, whose sandboxes are not changed.
        """
        now = time.monotonic()
        unknown, refused = [], []
        for container, left in seconds.items():
            sandbox = self.sandboxes.get(container)
            if sandbox is None or sandbox.owner != owner or sandbox.closing:
                unknown.append(container)
            elif isinstance(left, bool) or not isinstance(left, int | float) or left <= 0:
                refused.append(container)
            else:
                sandbox.ends = now + min(left, LONGEST_SECONDS)
        own = {
            each.id: each.request_id
            for each in self.sandboxes.values()
            if each.owner == owner and not each.closing
        }
        extra = {key: value for key, value in own.items() if key not in seconds}
        return {"unknown": unknown, "extra": extra, "refused": refused}

    async def tend(self) -> None:
        """Ends expired sandboxes, and retries removals that failed in the engine. Runs until cancelled."""
        clearing = asyncio.ensure_future(self.thread(self.backend.clear))
        while True:
            now = time.monotonic()
            for each in list(self.sandboxes.values()):
                if each.until() < now and not each.closing:
                    self.expired += 1
                    each.ends = now + _AGAIN_SECONDS  # when to try again; the task below may take long
                    _log.warning("sandbox %s expired", each.id[:12])
                    asyncio.ensure_future(self.destroy(each.id)).add_done_callback(_ignore_result)
            self.shelf.clear()
            if clearing.done():
                _ignore_result(clearing)
                clearing = asyncio.ensure_future(self.thread(self.backend.clear))
            await asyncio.sleep(_TICK_SECONDS)

    def close(self) -> None:
        """End all sandboxes."""
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda each: each.box.close(), list(self.sandboxes.values())))
        self.sandboxes.clear()

    async def engine_answers(self) -> bool:
        """Returns whether the engine responds. Concurrent calls share one ping."""
        if self._ping is None or self._ping.done():
            self._ping = asyncio.ensure_future(self.thread(self.backend.engine.answers))
        try:
            return await asyncio.wait_for(asyncio.shield(self._ping), _PING_SECONDS)
        except TimeoutError:
            return False

    # -- use

    @contextlib.contextmanager
    def using(self, request: PoolRequest, seconds: float = 0.0) -> Iterator[HostSandbox]:
        """Yields the sandbox of a request, and counts the request as running during the block.

        seconds: maximum duration of the request. If the client sends no heartbeats, the sandbox cannot expire
        within `seconds` plus its time to live. Raises SandboxLost, Refused (too many concurrent requests).
        """
        sandbox = self.find(request.container_id)
        most = 2 * _COMMANDS if sandbox.once.knows(request.request_id) else _COMMANDS
        if sandbox.running >= most:
            raise Refused(f"{_COMMANDS} requests at once are the most in one sandbox")
        sandbox.running += 1
        try:
            with sandbox.in_use(0.0 if sandbox.beats else seconds + sandbox.ttl):
                yield sandbox
            if not sandbox.beats:
                sandbox.renew(sandbox.ttl)
        finally:
            sandbox.running -= 1

    async def exec(self, place: HostSandbox, command: str, env: dict[str, str], limits: Limits) -> ExecResult:
        """Runs a command, see protocol.Sandbox.exec. Raises Refused."""
        with place.command(self.command_memory(place, limits)):
            return await self.thread(lambda: place.box.exec(command, env=env, limits=limits))

    def command_memory(self, place: HostSandbox, limits: Limits) -> int:
        """Returns the bytes of memory that a command may use. Raises Refused if the host has fewer left."""
        more = command_bytes(self.limits.check(limits))
        if self.memory() - place.memory() + place.memory(more) > self.limits.memory_bytes:
            raise Refused(f"this host has less than {more} bytes of memory left")
        return more

    async def open_session(
        self, place: HostSandbox, command: str, env: dict[str, str], limits: Limits
    ) -> str:
        """Starts a session, see protocol.Sandbox.session. Returns the name of the session. Raises Refused."""
        size = self.command_memory(place, limits)
        if len(place.sessions) >= _SESSIONS:
            raise Refused(f"{_SESSIONS} sessions at once are the most in one sandbox")
        with place.command(size):
            session = await self.thread(lambda: place.box.session(command, env=env, limits=limits))
        name = secrets.token_hex(8)
        place.sessions[name] = session, size
        return name

    async def say(self, place: HostSandbox, name: str, line: str | None, limits: Record) -> SessionAnswer:
        """Sends a line to a session, see protocol.Session.say. Raises Refused if there is no such session."""
        if name not in place.sessions:
            raise Refused(f"this sandbox has no session {name}: it was ended")
        session, _ = place.sessions[name]
        return await self.thread(lambda: session.say(line, **limits))

    async def end_session(self, place: HostSandbox, name: str) -> bool:
        """Kills the processes of a session. Returns False if there is no such session."""
        found = place.sessions.pop(name, None)
        if found is not None:
            await self.thread(found[0].close)
        return found is not None

    @contextlib.asynccontextmanager
    async def read(self, place: HostSandbox, path: str, most: int) -> AsyncIterator[bytes]:
        """Yields the bytes of a file, see protocol.Sandbox.get. `self.answers` counts these bytes. A sandbox
        reads one large file at a time."""
        async with contextlib.AsyncExitStack() as stack:
            grant = await stack.enter_async_context(self.answers.hold(place.id, min(most, SMALL_ANSWER)))
            try:
                data = await self.thread(place.box.get, path, grant.size)
            except PathRefused:
                if most <= grant.size:
                    raise
                await stack.enter_async_context(place.large)
                await grant.reach(most)
                data = await self.thread(place.box.get, path, most)
                self.find(place.id)  # otherwise nothing would abort the response of an ended sandbox
            grant.keep(len(data))
            yield data

    async def fill(self, place: HostSandbox, archive: IO[bytes]) -> None:
        """Unpacks a tar file into /testbed. Raises SandboxLost, OSError."""
        await self.thread(place.box.fill, iter(lambda: archive.read(1 << 20), b""))
