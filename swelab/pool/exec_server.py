"""The exec server: sandboxes of one container host over HTTP. docs/pool.md describes paths and fields."""

import asyncio
import hashlib
import re
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swelab.pool import request_schemas
from swelab.pool.host_sandboxes import Held, Host
from swelab.pool.prometheus import Figures
from swelab.pool.request_schemas import PoolRequest
from swelab.pool.server_http import (
    Handler,
    TokenGuard,
    answering,
    bytes_answer,
    described,
    fingerprint,
    guarded,
    json_answer,
    read_json,
    spool,
)
from swelab.records import Record
from swelab.sandbox.protocol import DEFAULT_LIMITS, WORKDIR, EngineDown, Limits
from swelab.sandbox.remote_protocol import BYTES, Refused

TREE_BYTES = 8 << 30
FILE_BYTES = 256 << 20
_ACTS = request_schemas.acts("container_id")
_DIFF = "git add -A >/dev/null 2>&1 && git diff --cached 2>/dev/null"
_STRICT = re.compile(r"^\s*set\s+-[a-z]*e", re.MULTILINE)
_SHOWN = 2000  # characters of the output of `evaluate`


def node_app(host: Host, token: str) -> TokenGuard:
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
    routes = [Route(path, answering(each), methods=["POST"]) for path, each in posts.items()]
    routes += [Route(path, answering(each), methods=["GET"]) for path, each in gets.items()]
    return guarded(routes, node.living, {"node": token}, figures.seen)


class _Node:
    figures: Figures

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
        """Values for /metrics: sandboxes, commands that run, bytes of memory."""
        host = self.host
        return {
            "sandboxes": len(host.held),
            "sandboxes_being_made": len(host.making),
            "sandboxes_most": host.limits.containers,
            "sandboxes_expired_total": host.expired,
            "commands_running": sum(each.running for each in host.held.values()),
            "memory_bytes": host.memory(),
            "memory_most_bytes": host.limits.memory_bytes,
        }

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
        }

    async def status(self, request: Request) -> Response:
        """Each sandbox with its image and the seconds until it ends."""
        now = time.monotonic()
        containers = {
            each.id: {
                "name": each.name,
                "image": each.image,
                "created_at": each.created,
                "expires_in": round(each.ends - now, 3),
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
        asked = await read_json(request, request_schemas.RENEW)
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
        held = await self.host.create(asked, limits, fingerprint(asked))
        self.figures.waited.observe(time.monotonic() - began)
        return json_answer(container_id=held.id, name=held.name, boot=self.host.boot)

    async def destroy(self, request: Request) -> Response:
        """Ends a sandbox; `found` is false where there was none."""
        asked = await read_json(request, _ACTS["destroy"])
        return json_answer(found=await self.host.destroy(asked.container_id))

    async def exec(self, request: Request) -> Response:
        """Runs a line of bash; its output as bytes where the caller accepts them."""
        asked = await read_json(request, _ACTS["exec"])
        command, start = asked.command, self.host.find(asked.container_id).limits
        limits = request_schemas.limits_of(asked, start)
        if asked.cwd != WORKDIR:
            command = f"cd -- {shlex.quote(asked.cwd)} || exit 1\n{command}"
        result = await self.host.use(
            asked,
            fingerprint(asked),
            lambda held: self.host.exec(held, command, asked.env, limits),
            limits.wall_seconds,
        )
        told = {name: value for name, value in vars(result).items() if name != "output"}
        if BYTES in request.headers.get("accept", ""):
            return bytes_answer(result.output, told)
        return json_answer(output=_text(result.output), **told)

    async def session_start(self, request: Request) -> Response:
        """Starts a program that stays and is spoken to; its name."""
        asked = await read_json(request, _ACTS["session_start"])
        limits = request_schemas.limits_of(asked, self.host.find(asked.container_id).limits)
        name = await self.host.use(
            asked,
            fingerprint(asked),
            lambda held: self.host.open_session(held, asked.command, asked.env, limits),
            limits.wall_seconds,
        )
        return json_answer(session=name)

    async def session_say(self, request: Request) -> Response:
        """Says a line to a session and answers with what it wrote, as bytes, until prompt or silence."""
        asked = await read_json(request, _ACTS["session_say"])
        told: Record = {name: asked[name] for name in ("timeout", "quiet") if name in asked}
        told["until"] = asked.until.encode("utf-8", "surrogateescape")
        answer = await self.host.use(
            asked,
            fingerprint(asked),
            lambda held: self.host.say(held, asked.session, asked.line, told),
            asked.timeout,
        )
        return bytes_answer(answer.output, {k: v for k, v in vars(answer).items() if k != "output"})

    async def session_end(self, request: Request) -> Response:
        """Kills a session's processes; `found` is false where there was none."""
        asked = await read_json(request, _ACTS["session_end"])
        found = await self.host.use(
            asked, fingerprint(asked), lambda held: self.host.end_session(held, asked.session)
        )
        return json_answer(found=found)

    async def put(self, request: Request) -> Response:
        """Writes the body, at most FILE_BYTES, to a file of the sandbox."""
        asked = described(request, _ACTS["put"])
        file, digest = await spool(request, FILE_BYTES)
        data = await self.host.thread(file.read)
        await self.host.use(
            asked,
            fingerprint(asked, digest),
            lambda held: self.host.thread(held.box.put, asked.path, data),
        )
        return json_answer()

    async def fill(self, request: Request) -> Response:
        """Unpacks the body, a tar of at most TREE_BYTES, as the sandbox's repository."""
        asked = described(request, _ACTS["fill"])
        file, digest = await spool(request, TREE_BYTES)
        await self.host.use(asked, fingerprint(asked, digest), lambda held: self.host.fill(held, file))
        return json_answer()

    async def get(self, request: Request) -> Response:
        """The bytes of a file. Raises PathRefused, FileNotFoundError."""
        asked = await read_json(request, _ACTS["get"])
        asked.pop("request_id", None)  # reading may be done again, and big answers are not to be kept
        most = asked.max_bytes
        data = await self.host.use(asked, "", lambda held: self.host.thread(held.box.get, asked.path, most))
        return bytes_answer(data)

    async def diff(self, request: Request) -> Response:
        """What changed since the last commit, new files included. Raises Refused where git fails."""
        asked = await read_json(request, _ACTS["diff"])
        limits = Limits(wall_seconds=120, output_bytes=64 << 20)
        command = _in(asked) + _DIFF
        result = await self.host.use(
            asked,
            fingerprint(asked),
            lambda held: self.host.exec(held, command, {}, limits),
            limits.wall_seconds,
        )
        if result.returncode or result.limit:
            raise Refused(f"git could not tell the changes: exit {result.returncode} {result.limit}".rstrip())
        return json_answer(patch=_text(result.output), returncode=0, error="")

    async def evaluate(self, request: Request) -> Response:
        """Applies a patch and runs a script that must use `set -e`: resolved if both end with 0."""
        asked = await read_json(request, _ACTS["evaluate"])
        if not _STRICT.search(asked.eval_script):
            raise Refused("the exit code of an eval_script without `set -e` says nothing")
        limits = Limits(wall_seconds=asked.timeout, cpu_seconds=28800)
        self.host.limits.check(limits)

        async def work(held: Held) -> Record:
            return await self.host.thread(_evaluate, held, asked, limits)

        told = await self.host.use(asked, fingerprint(asked), work, limits.wall_seconds + 120)
        return json_answer(**told)


def _in(asked: PoolRequest) -> str:
    return f"cd -- {shlex.quote(asked.cwd)} && "


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _evaluate(held: Held, asked: PoolRequest, limits: Limits) -> Record:
    """Apply a patch to the last commit and run a script: resolved when both end with 0."""
    name = f"/tmp/.swelab-{hashlib.sha256(asked.eval_script.encode()).hexdigest()[:16]}"
    held.box.put(f"{name}.diff", asked.patch.encode("utf-8", "surrogateescape"))
    held.box.put(f"{name}.sh", asked.eval_script.encode("utf-8", "surrogateescape"))
    apply = f"{_in(asked)} git reset -q --hard HEAD && {{ test ! -s {name}.diff || git apply {name}.diff; }}"
    applied = held.box.exec(apply, limits=Limits(wall_seconds=120))
    if applied.returncode:
        shown = _text(applied.output)[-_SHOWN:]
        return {"resolved": False, "error": "the patch does not apply", "output": shown}
    result = held.box.exec(f"{_in(asked)} exec bash {name}.sh", limits=limits)
    if result.limit not in ("", "output"):
        error = f"limit: {result.limit}"
        return {"resolved": False, "error": error, "returncode": result.returncode, "output": ""}
    shown = _text(result.output)[-_SHOWN:]
    return {"resolved": result.returncode == 0, "returncode": result.returncode, "output": shown}
