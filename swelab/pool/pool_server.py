"""The pool server: leases sandboxes over HTTP (docs/pool.md)."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from swelab.http.bodies import SMALL_BYTES, disconnect
from swelab.http.front_door import FrontDoor, Handler
from swelab.pool import request_schemas
from swelab.pool.answers import ERRORS, error_answer, json_answer
from swelab.pool.budget import Budget
from swelab.pool.idempotency import Conflict
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import ACTIVE, WAITING, Lease
from swelab.pool.pool import Pool
from swelab.pool.prometheus import Figures
from swelab.pool.renewal import renew_leases, renew_on_host
from swelab.pool.request_bodies import JSON_BYTES, read_header, read_json, sender
from swelab.pool.request_schemas import FILE_BYTES, NODE, PoolRequest, first_fault, tar_bytes
from swelab.records import InputError, Record
from swelab.sandbox.protocol import SandboxLost
from swelab.sandbox.remote_protocol import LATE_SECONDS, NotReached, Refused

_LEAVE_SECONDS = 40.0
_PAUSE_SECONDS = 0.1


def take_in(store: LeaseStore, urls: Iterable[str]) -> str:
    """Adds the nodes of the command line to the stored nodes.

    Returns a message about the nodes of an earlier start, or "" if there were none. A drained node stays
    drained. A node that was removed by request is not added: only `join` can add it again. Raises InputError,
    and OSError if the disk is full.
    """
    given = list(dict.fromkeys(url.rstrip("/") for url in urls))
    for url in given:
        if first_fault(NODE, {"url": url}):
            raise InputError(f"--node {url}", expected="an address such as http://host:5000")
    nodes, left = store.nodes(), store.left_nodes()
    new = [url for url in given if url not in nodes and url not in left]
    for url in new:
        store.set_node(url, False)
    out = [url for url in given if url in left and url not in nodes]
    if not nodes and not out:
        return ""
    shown = [url + " (drained)" * drained for url, drained in nodes.items()]
    line = f"nodes of an earlier start: {', '.join(shown) or 'none'}; added: {', '.join(new) or 'none'}"
    return line + f"; not added, as they left by request: {', '.join(out)}" * bool(out)


async def join(pool: Pool, url: str) -> None:
    """Adds a node, or uses a drained node again. Raises NotReached, Conflict, and the errors of the node."""
    link = pool.open_link(url)
    try:
        health = await renew_on_host(link, pool.id, {}, 10.0)
    except TimeoutError as error:
        raise NotReached(str(error)) from None
    finally:
        await link.close()
    if any(each.boot == health.boot and other != url for other, each in pool.nodes.items()):
        raise Conflict("that host is in the pool under another address")
    pool.store.set_node(url, False)
    node = pool.nodes.get(url) or pool.add(url, False)
    node.capacity.draining = False
    pool.pump()


def drain(pool: Pool, url: str) -> int:
    """Stops placing leases on a node. Returns the number of leases on the node.

    Raises Refused if the pool has no such node, OSError if the disk is full.
    """
    if url not in pool.nodes:
        raise Refused("there is no such node")
    pool.store.set_node(url, True)
    pool.nodes[url].capacity.draining = True
    return len(pool.placed_leases(url))


async def leave(pool: Pool, url: str, force: bool) -> None:
    """Removes a node. With `force`, ends the node's leases first.

    Raises Refused if the pool has no such node, Conflict if the node still has leases.
    """
    count = drain(pool, url)
    node, ends = pool.nodes[url], time.monotonic() + _LEAVE_SECONDS
    if count and not force:
        raise Conflict(f"{count} leases still run on it; the node is drained")
    for lease in pool.placed_leases(url):
        if lease.state == ACTIVE:
            pool.end(lease, "its node left the pool")
    while pool.placed_leases(url) and time.monotonic() < ends:
        await asyncio.sleep(_PAUSE_SECONDS)
    if pool.placed_leases(url):
        raise Conflict("its leases have not ended in time; the node is drained")
    pool.store.drop_node(url)
    pool.nodes.pop(url, None)
    if node.watching:
        node.watching.cancel()
    await node.link.close()


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .5rem 0 2rem }
th, td { white-space: nowrap; text-align: left; padding: .25rem 1.2rem .25rem 0 }
tr { border-bottom: 1px solid #ddd }
th { font-weight: 600; color: #555 }
"""
_MOST_ROWS = 500


def page(status: Record, leases: Sequence[Record]) -> str:
    """Returns HTML with the nodes, the queue and the first 500 leases."""
    counts = {name: value for name, value in status.items() if name != "nodes"}
    shown = ", ".join(f"{escape(name.replace('_', ' '))} {value}" for name, value in counts.items())
    more = f"<p>and {len(leases) - _MOST_ROWS} more</p>" if len(leases) > _MOST_ROWS else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="10">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>Sandbox pool</title><style>{_STYLE}</style>"
        f"<h1>Sandbox pool</h1><p>{shown}</p>"
        f"<h2>Nodes</h2>{_table(status['nodes'])}<h2>Leases</h2>{_table(leases[:_MOST_ROWS])}{more}"
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


_ACTS = request_schemas.acts("lease_id")
_BODIES = {"put": lambda limits: FILE_BYTES, "fill": tar_bytes}
"""Maps a verb to a function that computes the maximum body size in bytes from a sandbox's limits."""
_JSON = dict.fromkeys(("exec", "evaluate", "session_start", "session_say"), JSON_BYTES)
_FILE_SECONDS = 620.0
_UPLOADS = 64  # maximum number of concurrent uploads
_GRACE_SECONDS = 2.0


def pool_app(pool: Pool, tokens: Sequence[str], node_token: str) -> FrontDoor:
    """Returns the pool server as an ASGI application.

    Clients must send one of `tokens`. Requests to paths below /nodes/ must send `node_token`.
    """
    server = _Server(pool)
    figures = server.figures = Figures("pool", server.gauges)
    posts: dict[str, Handler] = {
        "/allocate": server.allocate,
        "/cancel": server.cancel,
        "/heartbeat": server.heartbeat,
        "/close": server.close,
        "/nodes/join": server.join,
        "/nodes/drain": server.drain,
        "/nodes/leave": server.leave,
        **{f"/{verb}": server.act(verb) for verb in _ACTS if verb != "destroy"},
    }
    gets = {"/": server.page, "/metrics": figures.page}
    routes = [Route(path, _for(path, each), methods=["POST"]) for path, each in posts.items()]
    routes += [Route(path, each, methods=["GET"]) for path, each in gets.items()]
    both = {"/healthz": server.healthz, "/status": server.status}
    routes += [Route(path, each, methods=["GET", "POST"]) for path, each in both.items()]
    roles = {"caller": tokens, "keeper": [node_token]}
    server.door = FrontDoor(
        routes, roles, error_answer, ERRORS, lifespan=server.lifespan, count=figures.count_answer
    )
    return server.door


def _for(path: str, endpoint: Handler) -> Handler:
    role = "keeper" if path.startswith("/nodes/") else "caller"

    async def check(request: Request) -> Response:
        if role not in request.scope["roles"]:
            raise Refused(f"this needs the token of a {role}")
        return await endpoint(request)

    return check


class _Server:
    figures: Figures
    door: FrontDoor

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.uploads = Budget("uploads that this server passes on", _UPLOADS)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Runs the background tasks of the pool while the server runs."""
        self.pool.start()
        yield
        await self.pool.stop()

    def gauges(self) -> dict[str, float]:
        """Returns the values for /metrics: leases by state, events, capacity of each node."""
        pool = self.pool
        states = [lease.state for lease in pool.leases.values()]
        values: dict[str, float] = {f"leases/state={state}": states.count(state) for state in set(states)}
        values |= {f"lease_events_total/event={name}": count for name, count in pool.counts.items()}
        for url, node in pool.nodes.items():
            values[f"node_up/node={url}"] = node.capacity.healthy
            values[f"node_leases/node={url}"] = len(pool.placed_leases(url))
            values[f"node_places/node={url}"] = node.capacity.most_places
        values |= self.door.connections.counts()
        return values | {"waiting": states.count(WAITING), "nodes": len(pool.nodes)}

    # -- the pool

    async def healthz(self, request: Request) -> Response:
        """Responds with the numbers of all nodes and of healthy nodes."""
        healthy = sum(node.capacity.healthy for node in self.pool.nodes.values())
        return json_answer(nodes=len(self.pool.nodes), healthy_nodes=healthy)

    async def status(self, request: Request) -> Response:
        """Responds with the numbers of leases and waiting requests, and the capacity of each node."""
        return json_answer(pool=self._status())

    def _status(self) -> Record:
        pool = self.pool
        nodes = [
            {
                "url": url,
                "active_containers": len(pool.placed_leases(url)) + node.capacity.foreign_places,
                "max_containers": node.capacity.most_places,
                "healthy": node.capacity.healthy,
                "draining": node.capacity.draining,
                "silent_seconds": round(node.silent_seconds(), 1),
            }
            for url, node in pool.nodes.items()
        ]
        waiting = sum(lease.state == WAITING for lease in pool.leases.values())
        return {"total_leases": len(pool.leases) - waiting, "waiting": waiting, "nodes": nodes, **pool.counts}

    async def page(self, request: Request) -> Response:
        """Responds with the status page: nodes, queue and leases, as HTML without scripts."""
        now = time.monotonic()
        leases = [
            {
                "lease": lease.id[-8:],
                "run": lease.request.run,
                "instance": lease.request.instance_id,
                "image": lease.request.image,
                "state": lease.state,
                "node": lease.node,
                "age_seconds": round(now - lease.since),
            }
            for lease in self.pool.leases.values()
        ]
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(page(self._status(), leases), headers=headers)

    # -- leases

    async def allocate(self, request: Request) -> Response:
        """Grants a lease. Waits at most `deadline_seconds` for free capacity. Raises NoPlace, Refused."""
        fields = await read_json(request, request_schemas.ALLOCATE)
        fields.pop("timeout", None)
        fields.setdefault("request_id", secrets.token_hex(16))
        fields["client"] = request.scope["token"]
        if not (fields.image or fields.tree):
            raise ValueError("a sandbox needs a tree or an image")
        leaving = asyncio.ensure_future(disconnect(request))
        began = time.monotonic()
        try:
            lease = await self.pool.allocate(fields, fields.deadline_seconds, leaving)
        finally:
            leaving.cancel()
        self.figures.waited.observe(time.monotonic() - began)
        return json_answer(**lease.answer(self.pool.limits.ttl_seconds))

    async def cancel(self, request: Request) -> Response:
        """Cancels a request for a lease, or ends the lease that the request got."""
        fields = await read_json(request, request_schemas.CANCEL)
        return json_answer(found=self.pool.cancel(fields.request_id))

    async def heartbeat(self, request: Request) -> Response:
        """Renews leases. In the response, `lost` maps the id of each ended lease to the reason."""
        fields = await read_json(request, request_schemas.HEARTBEAT, JSON_BYTES)
        if not fields:
            raise Refused("expected lease_id or lease_ids")
        ids = [*fields.lease_ids, *([fields.lease_id] if "lease_id" in fields else [])]
        lost = renew_leases(self.pool.find, ids, self.pool.limits.ttl_seconds)
        if lost and "lease_ids" not in fields:
            raise SandboxLost(*lost.values())
        return json_answer(lost=lost)

    async def close(self, request: Request) -> Response:
        """Ends a lease and its sandbox. `found` is false if there was no such lease."""
        fields = await read_json(request, _ACTS["destroy"])
        return json_answer(found=await self.pool.close(fields.lease_id))

    def act(self, verb: str) -> Handler:
        """Returns the handler that forwards requests with this verb to the sandbox's node."""

        async def forward(request: Request) -> Response:
            if verb in _BODIES:
                fields = read_header(request, _ACTS[verb])
            else:
                fields = await read_json(request, _ACTS[verb], _JSON.get(verb, SMALL_BYTES))
            lease = self.pool.find(fields.pop("lease_id"))
            seconds, ttl = _seconds(verb, lease, fields), self.pool.limits.ttl_seconds
            fields["container_id"] = lease.container
            link = self.pool.nodes[lease.node].link
            most = _BODIES[verb](lease.limits) if verb in _BODIES else 0
            sent = link.forward(f"/container/{verb}", fields, request, most, seconds + 2 * LATE_SECONDS)
            # A request that the host rejects does not renew the lease.
            async with AsyncExitStack() as stack:
                stack.enter_context(lease.in_use(0.0 if lease.beats else seconds + ttl))
                if verb in _BODIES:
                    await stack.enter_async_context(self.uploads.hold(sender(request), 1))
                answer = await _unless_over(lease, sent)
            if answer.status_code == 200:
                lease.renew(ttl)
            return answer

        return forward

    # -- nodes

    async def join(self, request: Request) -> Response:
        """Adds a node. The node must accept the token that the pool sends to nodes."""
        fields = await read_json(request, request_schemas.NODE)
        await join(self.pool, fields.url)
        return json_answer()

    async def drain(self, request: Request) -> Response:
        """Stops placing leases on a node. The response contains the number of leases on the node."""
        fields = await read_json(request, request_schemas.NODE)
        return json_answer(leases=drain(self.pool, fields.url))

    async def leave(self, request: Request) -> Response:
        """Removes a node that has no leases. With `force`, ends the node's leases first."""
        fields = await read_json(request, request_schemas.LEAVE)
        await leave(self.pool, fields.url, fields.force)
        return json_answer()


def _seconds(verb: str, lease: Lease, fields: PoolRequest) -> float:
    if verb == "exec":
        return request_schemas.limits_of(fields, lease.limits).wall_seconds
    if verb == "session_say":
        return fields.timeout
    return fields.timeout + 120 if verb == "evaluate" else _FILE_SECONDS


async def _unless_over(lease: Lease, sent: Coroutine[Any, Any, Response]) -> Response:
    """Returns the response of a host. Raises SandboxLost if the lease ends before the response arrives."""
    sending, over = asyncio.ensure_future(sent), asyncio.ensure_future(lease.over.wait())
    try:
        await asyncio.wait({sending, over}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({sending}, timeout=_GRACE_SECONDS)  # the host may be about to send the reason
        if not sending.done():
            raise SandboxLost(lease.reason or "the sandbox was closed while a command ran")
        return sending.result()
    finally:
        sending.cancel()
        over.cancel()
