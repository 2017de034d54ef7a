"""The exec server: sandboxes of one container host over HTTP. docs/pool.md describes paths and fields."""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swelab.http.front_door import FrontDoor, Handler, guarded
from swelab.pool import request_schemas
from swelab.pool.answers import ERRORS, TextAnswer, bytes_answer, error_answer, json_answer, until_sent
from swelab.pool.exit_verdicts import DIFF, check_script, evaluate, inside
from swelab.pool.held_sandbox import Held
from swelab.pool.host_sandboxes import SMALL_ANSWER, Host
from swelab.pool.prometheus import Figures
from swelab.pool.request_bodies import JSON_BYTES, described, fingerprint, read_json, spooled
from swelab.pool.request_schemas import FILE_BYTES, PoolRequest, tar_bytes
from swelab.records import Record
from swelab.sandbox.protocol import DEFAULT_LIMITS, WORKDIR, EngineDown, ExecResult
from swelab.sandbox.remote_protocol import BYTES, Refused

_PATCH_BYTES = 16 << 20
_ACTS = request_schemas.acts("container_id")
T = TypeVar("T")


def node_app(host: Host, token: str) -> FrontDoor:
    """The server of a host. `token` is what callers must show."""
    node = _Node(host)
    figures = node.figures = Figures("exec", node.gauges)
    posts: dict[str, Handler] = {
        "/container/create": node.create,
        "/container/exec": node.exec,
        "/container/session_start": node.session_start,
        "/container/session_say": node.session_say,
        "/container/session_end": node.session_end,
        "/container/put": node.put,
        "/container/fill": node.fill,
        "/container/get": node.get,
        "/container/diff": node.diff,
        "/container/evaluate": node.evaluate,
        "/container/destroy": node.destroy,
        "/container/renew": node.renew,
    }
    gets = {
        "/healthz": node.healthz,
        "/status": node.status,
        "/images": node.images,
        "/metrics": figures.page,
    }
    routes = [Route(path, each, methods=["POST"]) for path, each in posts.items()]
    routes += [Route(path, each, methods=["GET"]) for path, each in gets.items()]
    node.door = guarded(
        routes, {"node": [token]}, error_answer, ERRORS, lifespan=node.living, count=figures.seen
    )
    return node.door


class _Node:
    figures: Figures
    door: FrontDoor

    def __init__(self, host: Host) -> None:
        self.host = host

    @asynccontextmanager
    async def living(self, app: Starlette) -> AsyncIterator[None]:
        """Tends the sandboxes while the server runs, and ends all of them with it."""
        tending = asyncio.ensure_future(self.host.tend())
        yield
        tending.cancel()
        await asyncio.to_thread(self.host.close)

    def gauges(self) -> dict[str, float]:
        """Values for /metrics: sandboxes, commands that run, bytes, connections."""
        return {**self.host.gauges(), **self.door.connections.counts()}

    # -- the host

    async def healthz(self, request: Request) -> Response:
        """Places and memory of the host, taken and in all. Raises EngineDown."""
        if not await self.host.engine_answers():
            raise EngineDown(f"the engine at {self.host.backend.engine.address} does not answer")
        return json_answer(running_containers=str(len(self.host.held)), **self._place())

    def _place(self) -> Record:
        host = self.host
        return {
            "boot": host.boot,
            "active_containers": len(host.held) + len(host.making),
            "max_containers": host.limits.containers,
            "memory_bytes": host.memory(),
            "max_memory_bytes": host.limits.memory_bytes,
            "max_limits": vars(host.limits.most),
        }

    async def status(self, request: Request) -> Response:
        """Each sandbox with its image and the seconds until it ends."""
        now = time.monotonic()
        containers = {
            each.id: {
                "name": each.name,
                "image": each.image,
                "created_at": each.created,
                "expires_in": round(each.until() - now, 3),
                "running": each.running,
            }
            for each in self.host.held.values()
        }
        return json_answer(**{**self._place(), "active_containers": len(containers)}, containers=containers)

    async def images(self, request: Request) -> Response:
        """Names of the engine's images that the allow-list lets in."""
        host = self.host
        names = await host.thread(lambda: host.allowed.listed(host.backend.engine))
        return json_answer(images=names, count=len(names))

    async def renew(self, request: Request) -> Response:
        """Sets seconds to live of a pool's sandboxes; which are `unknown` here, which `extra`."""
        asked = await read_json(request, request_schemas.RENEW, JSON_BYTES)
        healthy = await self.host.engine_answers()
        told = self.host.renew(asked.owner, asked.containers)
        return json_answer(healthy=healthy, **told, **self._place())

    # -- sandboxes

    async def create(self, request: Request) -> Response:
        """Makes a sandbox; one `request_id` makes one. Raises NoPlace, Refused, ImageMissing."""
        asked = await read_json(request, request_schemas.CREATE)
        asked.pop("timeout", None)
        limits = request_schemas.limits_of(asked, DEFAULT_LIMITS)
        began = time.monotonic()
        container, name = await self.host.create(asked, limits, fingerprint(asked))
        self.figures.waited.observe(time.monotonic() - began)
        return json_answer(container_id=container, name=name, boot=self.host.boot)

    async def destroy(self, request: Request) -> Response:
        """Ends a sandbox; `found` is false where there was none."""
        asked = await read_json(request, _ACTS["destroy"])
        return json_answer(found=await self.host.destroy(asked.container_id))

    async def _once(
        self,
        asked: PoolRequest,
        work: Callable[[Held], Awaitable[T]],
        answer: Callable[[T], Response],
        seconds: float = 0.0,
    ) -> Response:
        """The answer to what the work with the sandbox told, which is done once for its request id."""
        async with AsyncExitStack() as stack:
            held = stack.enter_context(self.host.taken(asked, seconds))
            told = await held.once.run(asked.request_id, fingerprint(asked), lambda: work(held))
            made = answer(told)
            if isinstance(made, TextAnswer):
                await made.write(self.door.turns)
            if len(made.body) > SMALL_ANSWER:
                self.host.find(held.id)
            stack.enter_context(held.command(len(made.body)))  # it takes memory until it has been sent
            return until_sent(made, stack, held.unread)

    async def exec(self, request: Request) -> Response:
        """Runs a line of bash; its output as bytes where the caller accepts them."""
        asked = await read_json(request, _ACTS["exec"], JSON_BYTES)
        limits = request_schemas.limits_of(asked, self.host.find(asked.container_id).limits)
        self.host.limits.check(limits)
        as_bytes = BYTES in request.headers.get("accept", "")
        if not as_bytes:  # JSON may take six times as many bytes
            limits = replace(limits, output_bytes=min(limits.output_bytes, JSON_BYTES))
        command = asked.command
        if asked.cwd != WORKDIR:
            command = f"cd -- {shlex.quote(asked.cwd)} || exit 1\n{command}"

        def answer(result: ExecResult) -> Response:
            told = {name: value for name, value in vars(result).items() if name != "output"}
            if as_bytes:
                return bytes_answer(result.output, told)
            return TextAnswer("output", result.output, told)

        return await self._once(
            asked,
            lambda held: self.host.exec(held, command, asked.env, limits),
            answer,
            limits.wall_seconds,
        )

    async def session_start(self, request: Request) -> Response:
        """Starts a program that stays and is spoken to; its name."""
        asked = await read_json(request, _ACTS["session_start"], JSON_BYTES)
        limits = request_schemas.limits_of(asked, self.host.find(asked.container_id).limits)
        self.host.limits.check(limits)
        return await self._once(
            asked,
            lambda held: self.host.open_session(held, asked.command, asked.env, limits),
            lambda name: json_answer(session=name),
            limits.wall_seconds,
        )

    async def session_say(self, request: Request) -> Response:
        """Says a line to a session and answers with what it wrote, as bytes, until prompt or silence."""
        asked = await read_json(request, _ACTS["session_say"], JSON_BYTES)
        told: Record = {name: asked[name] for name in ("timeout", "quiet") if name in asked}
        told["until"] = asked.until.encode("utf-8", "surrogateescape")
        return await self._once(
            asked,
            lambda held: self.host.say(held, asked.session, asked.line, told),
            lambda got: bytes_answer(got.output, {k: v for k, v in vars(got).items() if k != "output"}),
            asked.timeout,
        )

    async def session_end(self, request: Request) -> Response:
        """Kills a session's processes; `found` is false where there was none."""
        asked = await read_json(request, _ACTS["session_end"])
        return await self._once(
            asked,
            lambda held: self.host.end_session(held, asked.session),
            lambda found: json_answer(found=found),
        )

    async def put(self, request: Request) -> Response:
        """Writes the body, at most FILE_BYTES, to a file of the sandbox."""
        asked, host = described(request, _ACTS["put"]), self.host
        async with AsyncExitStack() as stack:
            held = stack.enter_context(host.taken(asked))
            spool = spooled(request, FILE_BYTES, host.spool, held.client)
            file, digest, size = await stack.enter_async_context(spool)
            await stack.enter_async_context(host.answers.hold(held.id, size))
            data = await host.thread(file.read)
            work = lambda: host.thread(held.box.put, asked.path, data)  # noqa: E731
            await held.once.run(asked.request_id, fingerprint(asked, digest), work)
            return until_sent(json_answer(), stack, held.unread)

    async def fill(self, request: Request) -> Response:
        """Unpacks the body, a tar that fits the sandbox's disk and TREE_BYTES, as its repository."""
        asked, host = described(request, _ACTS["fill"]), self.host
        async with AsyncExitStack() as stack:
            held = stack.enter_context(host.taken(asked))
            spool = spooled(request, tar_bytes(held.limits), host.spool, held.client)
            file, digest, _ = await stack.enter_async_context(spool)
            work = lambda: host.fill(held, file)  # noqa: E731
            await held.once.run(asked.request_id, fingerprint(asked, digest), work)
            return until_sent(json_answer(), stack, held.unread)

    async def get(self, request: Request) -> Response:
        """The bytes of a file. Raises PathRefused, FileNotFoundError.

        Reading may be done again, so its answer is not kept.
        """
        asked = await read_json(request, _ACTS["get"])
        asked.pop("request_id", None)
        async with AsyncExitStack() as stack:
            held = stack.enter_context(self.host.taken(asked))
            data = await stack.enter_async_context(self.host.read(held, asked.path, asked.max_bytes))
            return until_sent(bytes_answer(data), stack, held.unread)

    async def diff(self, request: Request) -> Response:
        """What changed since the last commit, new files included. Raises Refused where git fails."""
        asked = await read_json(request, _ACTS["diff"])
        command = inside(asked) + DIFF

        def answer(result: ExecResult) -> Response:
            if result.returncode or result.limit:
                told = f"exit {result.returncode} {result.limit}".rstrip()
                raise Refused(f"git could not tell the changes: {told}")
            return TextAnswer("patch", result.output, {"returncode": 0, "error": ""})

        async def work(held: Held) -> ExecResult:
            limits = replace(held.limits, wall_seconds=120, cpu_seconds=60, output_bytes=_PATCH_BYTES)
            return await self.host.exec(held, command, {}, limits)

        return await self._once(asked, work, answer, 120)

    async def evaluate(self, request: Request) -> Response:
        """Applies a patch and runs a script that must use `set -e`: resolved if both end with 0."""
        asked = await read_json(request, _ACTS["evaluate"], JSON_BYTES)
        check_script(asked.eval_script)
        start = self.host.find(asked.container_id).limits
        limits = self.host.limits.check(replace(start, wall_seconds=asked.timeout, cpu_seconds=28800))

        async def work(held: Held) -> Record:
            with held.command(self.host.room(held, limits)):
                return await self.host.thread(evaluate, held, asked, limits)

        return await self._once(asked, work, lambda told: json_answer(**told), limits.wall_seconds + 120)
