"""The exec server: serves the sandboxes of one container host over HTTP (docs/pool.md)."""

import asyncio
import hashlib
import re
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

from swelab.http.front_door import FrontDoor, Handler
from swelab.pool import request_schemas
from swelab.pool.answers import ERRORS, TextAnswer, bytes_answer, error_answer, json_answer, release_when_sent
from swelab.pool.container_host import SMALL_ANSWER, Host
from swelab.pool.host_sandbox import HostSandbox
from swelab.pool.prometheus import Figures
from swelab.pool.request_bodies import JSON_BYTES, fingerprint, read_header, read_json, spool_body
from swelab.pool.request_schemas import FILE_BYTES, PoolRequest, tar_bytes
from swelab.records import Record
from swelab.records.patch_contents import Files, resolve
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch
from swelab.sandbox.protocol import DEFAULT_LIMITS, WORKDIR, EngineDown, ExecResult, Limits
from swelab.sandbox.remote_protocol import BYTES, Refused
from swelab.sandbox.working_copy import plain_files

DIFF = (
    "export GIT_NO_REPLACE_OBJECTS=1; git add -A >/dev/null 2>&1 &&"
    " git diff --cached --no-renames --no-ext-diff --no-textconv 2>/dev/null"
)
_CLEAR = (
    r"git apply --numstat -z %s.diff 2>/dev/null | sed -z 's/^[^\t]*\t[^\t]*\t//'"
    " | xargs -0 -r git --literal-pathspecs clean -fdqx --"
)
"""Removes untracked files that a patch would add. A patch is applied to the index, too, so that the next
reset removes the files that it added."""
_STRICT = re.compile(r"^\s*set\s+(-[a-z]*e|-o\s+errexit)", re.MULTILINE)
_SHOWN = 2000  # maximum number of characters of output that `evaluate` returns


def check_script(script: str) -> None:
    """Raises Refused unless the script uses `set -e`.

    Without `set -e`, the script's exit code does not show whether a command failed.
    """
    if not _STRICT.search(script):
        raise Refused(
            "eval_script: expected `set -e`; without it the exit code says nothing about its commands"
        )


def inside(request: PoolRequest) -> str:
    """Returns the start of a bash command that changes to the requested folder.

    The caller appends a command.
    """
    return f"cd -- {shlex.quote(request.cwd)} && "


def as_text(data: bytes) -> str:
    """Decodes bytes as UTF-8. Invalid bytes become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def evaluate(sandbox: HostSandbox, request: PoolRequest, limits: Limits) -> Record:
    """Resets the repository to the last commit, applies a patch, and runs a script.

    Files that an earlier patch added, and untracked files in the patch's place, are removed. Other untracked
    files stay, such as what the image's build made. `resolved` in the result is true if the patch applies and
    the script exits with 0.
    """
    start = f"{inside(request)} git reset -q --hard HEAD"

    def files(names: list[str]) -> Files:
        sandbox.box.exec(start, limits=replace(limits, wall_seconds=120))
        return plain_files(sandbox.box, names, request.cwd)

    try:
        patch = resolve(read_patch(request.patch), files).text
    except PatchRefused as refusal:
        return {"resolved": False, "error": "the patch does not apply", "output": str(refusal)}
    name = f"/tmp/.swelab-{hashlib.sha256(request.eval_script.encode()).hexdigest()[:16]}"
    sandbox.box.put(f"{name}.diff", patch.encode("utf-8", "surrogateescape"))
    sandbox.box.put(f"{name}.sh", request.eval_script.encode("utf-8", "surrogateescape"))
    apply = f"{{ test ! -s {name}.diff || {{ {_CLEAR % name}; git apply --index {name}.diff; }}; }}"
    command = f"{start} && {apply}"
    applied = sandbox.box.exec(command, limits=replace(limits, wall_seconds=120))
    if applied.returncode:
        shown = as_text(applied.output)[-_SHOWN:]
        return {"resolved": False, "error": "the patch does not apply", "output": shown}
    result = sandbox.box.exec(f"{inside(request)} exec bash {name}.sh", limits=limits)
    if result.limit not in ("", "output"):
        error = f"limit: {result.limit}"
        return {"resolved": False, "error": error, "returncode": result.returncode, "output": ""}
    shown = as_text(result.output)[-_SHOWN:]
    return {"resolved": result.returncode == 0, "returncode": result.returncode, "output": shown}


_PATCH_BYTES = 16 << 20
_ACTS = request_schemas.acts("container_id")
T = TypeVar("T")


def node_app(host: Host, token: str) -> FrontDoor:
    """Returns the exec server of a host as an ASGI application. Every request must send `token`."""
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
    node.door = FrontDoor(
        routes, {"node": [token]}, error_answer, ERRORS, lifespan=node.lifespan, count=figures.count_answer
    )
    return node.door


class _Node:
    figures: Figures
    door: FrontDoor

    def __init__(self, host: Host) -> None:
        self.host = host

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Ends expired sandboxes while the server runs. Ends all sandboxes when the server stops."""
        tending = asyncio.ensure_future(self.host.tend())
        yield
        tending.cancel()
        await asyncio.to_thread(self.host.close)

    def gauges(self) -> dict[str, float]:
        """Returns the values for /metrics: sandboxes, running commands, bytes, connections."""
        return {**self.host.gauges(), **self.door.connections.counts()}

    # -- the host

    async def healthz(self, request: Request) -> Response:
        """Responds with the number of sandboxes, the memory in use, and the maximum of each. Raises
        EngineDown."""
        if not await self.host.engine_answers():
            raise EngineDown(f"the engine at {self.host.backend.engine.address} does not answer")
        return json_answer(running_containers=str(len(self.host.sandboxes)), **self._place())

    def _place(self) -> Record:
        host = self.host
        return {
            "boot": host.boot,
            "active_containers": len(host.sandboxes) + len(host.making),
            "max_containers": host.limits.containers,
            "memory_bytes": host.memory(),
            "max_memory_bytes": host.limits.memory_bytes,
            "max_limits": vars(host.limits.most),
        }

    async def status(self, request: Request) -> Response:
        """Responds with the sandboxes: name, image, and seconds until each sandbox expires."""
        now = time.monotonic()
        containers = {
            each.id: {
                "name": each.name,
                "image": each.image,
                "created_at": each.created,
                "expires_in": round(each.until() - now, 3),
                "running": each.running,
            }
            for each in self.host.sandboxes.values()
        }
        return json_answer(**{**self._place(), "active_containers": len(containers)}, containers=containers)

    async def images(self, request: Request) -> Response:
        """Responds with the names of the engine's images that are on the allow-list."""
        host = self.host
        names = await host.thread(lambda: host.allowed.allowed_names(host.backend.engine))
        return json_answer(images=names, count=len(names))

    async def renew(self, request: Request) -> Response:
        """Sets the remaining time to live of a pool's sandboxes. Responds with the result of Host.renew."""
        fields = await read_json(request, request_schemas.RENEW, JSON_BYTES)
        healthy = await self.host.engine_answers()
        state = self.host.renew(fields.owner, fields.containers)
        return json_answer(healthy=healthy, **state, **self._place())

    # -- sandboxes

    async def create(self, request: Request) -> Response:
        """Creates a sandbox, once for each `request_id`. Raises NoPlace, Refused, ImageMissing."""
        fields = await read_json(request, request_schemas.CREATE)
        fields.pop("timeout", None)
        limits = request_schemas.limits_of(fields, DEFAULT_LIMITS)
        began = time.monotonic()
        container, name = await self.host.create(fields, limits, fingerprint(fields))
        self.figures.waited.observe(time.monotonic() - began)
        return json_answer(container_id=container, name=name, boot=self.host.boot)

    async def destroy(self, request: Request) -> Response:
        """Ends a sandbox. `found` is false if there was no such sandbox."""
        fields = await read_json(request, _ACTS["destroy"])
        return json_answer(found=await self.host.destroy(fields.container_id))

    def _limits(self, fields: PoolRequest) -> Limits:
        """Returns a request's limits, by default the sandbox's. Raises Refused if a limit is forbidden."""
        own = self.host.find(fields.container_id).limits
        return self.host.limits.check(request_schemas.limits_of(fields, own))

    async def _once(
        self,
        fields: PoolRequest,
        work: Callable[[HostSandbox], Awaitable[T]],
        answer: Callable[[T], Response],
        seconds: float = 0.0,
    ) -> Response:
        """Runs `work` with the sandbox, once for each request id.

        answer: converts the result of `work` to a response. seconds: maximum duration of `work`.
        """
        async with AsyncExitStack() as stack:
            sandbox = stack.enter_context(self.host.using(fields, seconds))
            result = await sandbox.once.run(fields.request_id, fingerprint(fields), lambda: work(sandbox))
            response = answer(result)
            if isinstance(response, TextAnswer):
                await response.write(self.door.turns)
            if len(response.body) > SMALL_ANSWER:
                self.host.find(sandbox.id)
            # The response counts as memory of the sandbox until it has been sent.
            stack.enter_context(sandbox.command(len(response.body)))
            return release_when_sent(response, stack, sandbox.unread)

    async def exec(self, request: Request) -> Response:
        """Runs a bash command. The output is sent as bytes if the client accepts bytes, otherwise as JSON."""
        fields = await read_json(request, _ACTS["exec"], JSON_BYTES)
        limits = self._limits(fields)
        as_bytes = BYTES in request.headers.get("accept", "")
        if not as_bytes:  # JSON escapes can make the text six times longer
            limits = replace(limits, output_bytes=min(limits.output_bytes, JSON_BYTES))
        command = fields.command
        if fields.cwd != WORKDIR:
            command = f"cd -- {shlex.quote(fields.cwd)} || exit 1\n{command}"

        def answer(result: ExecResult) -> Response:
            facts = {name: value for name, value in vars(result).items() if name != "output"}
            if as_bytes:
                return bytes_answer(result.output, facts)
            return TextAnswer("output", result.output, facts)

        return await self._once(
            fields,
            lambda sandbox: self.host.exec(sandbox, command, fields.env, limits),
            answer,
            limits.wall_seconds,
        )

    async def session_start(self, request: Request) -> Response:
        """Starts an interactive program. The response contains the name of the session."""
        fields = await read_json(request, _ACTS["session_start"], JSON_BYTES)
        limits = self._limits(fields)
        return await self._once(
            fields,
            lambda sandbox: self.host.open_session(sandbox, fields.command, fields.env, limits),
            lambda name: json_answer(session=name),
            limits.wall_seconds,
        )

    async def session_say(self, request: Request) -> Response:
        """Sends a line to a session. Responds with the session's output up to the prompt or a pause."""
        fields = await read_json(request, _ACTS["session_say"], JSON_BYTES)
        settings: Record = {name: fields[name] for name in ("timeout", "quiet") if name in fields}
        settings["until"] = fields.until.encode("utf-8", "surrogateescape")
        return await self._once(
            fields,
            lambda sandbox: self.host.say(sandbox, fields.session, fields.line, settings),
            lambda got: bytes_answer(got.output, {k: v for k, v in vars(got).items() if k != "output"}),
            fields.timeout,
        )

    async def session_end(self, request: Request) -> Response:
        """Kills the processes of a session. `found` is false if there was no such session."""
        fields = await read_json(request, _ACTS["session_end"])
        return await self._once(
            fields,
            lambda sandbox: self.host.end_session(sandbox, fields.session),
            lambda existed: json_answer(found=existed),
        )

    async def put(self, request: Request) -> Response:
        """Writes the request body to a file of the sandbox. The body may have at most FILE_BYTES bytes."""
        fields, host = read_header(request, _ACTS["put"]), self.host
        async with AsyncExitStack() as stack:
            sandbox = stack.enter_context(host.using(fields))
            spool = spool_body(request, FILE_BYTES, host.spool, sandbox.client)
            file, digest, size = await stack.enter_async_context(spool)
            await stack.enter_async_context(host.answers.hold(sandbox.id, size))
            data = await host.thread(file.read)
            work = lambda: host.thread(sandbox.box.put, fields.path, data)  # noqa: E731
            await sandbox.once.run(fields.request_id, fingerprint(fields, digest), work)
            return release_when_sent(json_answer(), stack, sandbox.unread)

    async def fill(self, request: Request) -> Response:
        """Unpacks the request body, a tar of at most `tar_bytes()` bytes, as the sandbox's repository."""
        fields, host = read_header(request, _ACTS["fill"]), self.host
        async with AsyncExitStack() as stack:
            sandbox = stack.enter_context(host.using(fields))
            spool = spool_body(request, tar_bytes(sandbox.limits), host.spool, sandbox.client)
            file, digest, _ = await stack.enter_async_context(spool)
            work = lambda: host.fill(sandbox, file)  # noqa: E731
            await sandbox.once.run(fields.request_id, fingerprint(fields, digest), work)
            return release_when_sent(json_answer(), stack, sandbox.unread)

    async def get(self, request: Request) -> Response:
        """Responds with the bytes of a file. Raises PathRefused, FileNotFoundError.

        The response is not stored for repeated requests, since reading a file twice is harmless.
        """
        fields = await read_json(request, _ACTS["get"])
        fields.pop("request_id", None)
        async with AsyncExitStack() as stack:
            sandbox = stack.enter_context(self.host.using(fields))
            data = await stack.enter_async_context(self.host.read(sandbox, fields.path, fields.max_bytes))
            return release_when_sent(bytes_answer(data), stack, sandbox.unread)

    async def diff(self, request: Request) -> Response:
        """Responds with all changes since the last commit, as a diff. Raises Refused if git fails."""
        fields = await read_json(request, _ACTS["diff"])
        command = inside(fields) + DIFF

        def answer(result: ExecResult) -> Response:
            if result.returncode or result.limit:
                end = f"exit {result.returncode} {result.limit}".rstrip()
                raise Refused(f"git diff failed: {end}")
            return TextAnswer("patch", result.output, {"returncode": 0, "error": ""})

        async def work(sandbox: HostSandbox) -> ExecResult:
            limits = replace(sandbox.limits, wall_seconds=120, cpu_seconds=60, output_bytes=_PATCH_BYTES)
            return await self.host.exec(sandbox, command, {}, limits)

        return await self._once(fields, work, answer, 120)

    async def evaluate(self, request: Request) -> Response:
        """Applies a patch and runs a `set -e` script. `resolved` is true if both commands exit with 0."""
        fields = await read_json(request, _ACTS["evaluate"], JSON_BYTES)
        check_script(fields.eval_script)
        start = self.host.find(fields.container_id).limits
        limits = self.host.limits.check(replace(start, wall_seconds=fields.timeout, cpu_seconds=28800))

        async def work(sandbox: HostSandbox) -> Record:
            with sandbox.command(self.host.command_memory(sandbox, limits)):
                return await self.host.thread(evaluate, sandbox, fields, limits)

        return await self._once(
            fields, work, lambda verdict: json_answer(**verdict), limits.wall_seconds + 120
        )
