"""The client of a pool server, for sandboxes on other machines (docs/pool.md).

Every request with an effect has a unique id. If the client repeats a request after a broken connection, it
gets the response to the first request. So nothing runs twice. A thread renews the leases of open sandboxes.
"""

import json
import logging
import os
import re
import secrets
import threading
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from swelab.records import InputError
from swelab.sandbox.bwrap_process import refusal, refusal_of
from swelab.sandbox.container_owner import this_run
from swelab.sandbox.live_session import line_bytes
from swelab.sandbox.protocol import (
    DEFAULT_LIMITS,
    BackendMissing,
    Closing,
    EngineDown,
    ExecResult,
    Image,
    Limits,
    SandboxError,
    SandboxLost,
    SessionAnswer,
)
from swelab.sandbox.remote_client import PoolClient
from swelab.sandbox.remote_protocol import CREATE_SECONDS, LATE_SECONDS, RESULT, Grant, find_token
from swelab.sandbox.tree_tar import archive, check_folder

_FILE_SECONDS = 660.0
_RESTART_SECONDS = 120.0  # how long a request waits while a pool server restarts
_LONGEST_WAIT = 86400
_HOPS = 3  # hops of a request (client, pool, host), each with LATE_SECONDS
_log = logging.getLogger(__name__)


class RemoteSandbox(Closing):
    """See `protocol.Sandbox`."""

    def __init__(self, backend: "RemoteBackend", lease: Grant, limits: Limits) -> None:
        self._backend, self._limits = backend, limits
        self.lease_id, self.container_id = lease.lease_id, lease.container_id
        self._patience = lease.ttl_seconds
        self.closed = False

    def exec(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> ExecResult:
        """Runs `bash -c command` in /testbed; see `protocol.Sandbox.exec`.

        Raises SandboxLost, ValueError (env).
        """
        limits = limits or self._limits
        if (result := refusal_of(command, env or {})) is not None:
            return result
        body = {"command": command, "env": dict(env or {}), "limits": vars(limits)}
        answer = self.ask("/exec", body, seconds=limits.wall_seconds + _HOPS * LATE_SECONDS)
        return ExecResult(output=answer.content, **json.loads(answer.headers[RESULT]))

    def session(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> "RemoteSession":
        """Starts `bash -c command` as an interactive session; see `protocol.Sandbox.session`."""
        limits = limits or self._limits
        if reason := refusal(command, env or {}):
            raise ValueError(reason)
        body = {"command": command, "env": dict(env or {}), "limits": vars(limits)}
        started = self.ask("/session_start", body, seconds=CREATE_SECONDS + _HOPS * LATE_SECONDS)
        return RemoteSession(self, str(started.json()["session"]))

    def put(self, path: str, data: bytes) -> None:
        """Writes a file; see `protocol.Sandbox.put`."""
        self.ask("/put", {"path": path}, seconds=_FILE_SECONDS, data=lambda: data)

    def get(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Reads a regular file; see `protocol.Sandbox.get`."""
        return self.ask("/get", {"path": path, "max_bytes": max_bytes}, seconds=_FILE_SECONDS).content

    def fill(self, tree: Path) -> None:
        """Unpacks a copy of a folder to /testbed. Raises SandboxLost, OSError."""
        check_folder(tree)

        def chunks() -> Iterable[bytes]:
            with archive(tree) as pieces:
                yield from pieces

        self.ask("/fill", {}, seconds=_FILE_SECONDS, data=chunks)

    def ask(self, path: str, body: dict[str, Any], **options: Any) -> httpx.Response:
        """Sends a request about this sandbox and returns the response.

        Raises SandboxLost and the pool's errors.
        """
        if self.closed:
            raise SandboxLost("the sandbox is closed")
        named = {**body, "lease_id": self.lease_id, "request_id": secrets.token_hex(16)}
        return self._backend.line.ask(path, named, patience=self._patience, **options)

    def containers(self) -> list[str]:
        """Returns a list with the id of the sandbox's container on its host."""
        return [self.container_id]

    def close(self) -> None:
        """Ends the sandbox and its lease. If the request fails, the lease expires later."""
        if self.closed:
            return
        self.closed = True
        self._backend.forget(self)
        try:
            self._backend.line.ask("/close", {"lease_id": self.lease_id}, patience=self._patience / 2)
        except SandboxError as error:
            _log.warning("lease %s could not be ended and will expire: %s", self.lease_id, error)


class RemoteSession(Closing):
    """See `protocol.Session`."""

    def __init__(self, sandbox: RemoteSandbox, name: str) -> None:
        self._sandbox, self._name, self._closed = sandbox, name, False

    def say(
        self, line: str | None, *, until: bytes = b"", timeout: float = 10.0, quiet: float = 0.5
    ) -> SessionAnswer:
        """Writes a line and waits for the end of the output; see `protocol.Session.say`."""
        line_bytes(line, until, timeout, quiet)
        if self._closed:
            raise SandboxError("the session is closed")
        prompt = until.decode("utf-8", "surrogateescape")
        body = {"session": self._name, "until": prompt, "timeout": timeout, "quiet": quiet}
        body |= {} if line is None else {"line": line}
        answer = self._sandbox.ask("/session_say", body, seconds=timeout + _HOPS * LATE_SECONDS)
        return SessionAnswer(output=answer.content, **json.loads(answer.headers[RESULT]))

    def close(self) -> None:
        """Kills the process and its descendants; see `protocol.Session.close`."""
        if self._closed or self._sandbox.closed:
            return
        self._closed = True
        self._sandbox.ask("/session_end", {"session": self._name}, seconds=_HOPS * LATE_SECONDS)


def _seconds(text: str) -> float:
    try:
        if 0 <= float(text) <= _LONGEST_WAIT:
            return float(text)
    except ValueError:
        pass
    raise InputError(f"{text!r} is no waiting time", "$SWELAB_POOL_WAIT", f"seconds, at most {_LONGEST_WAIT}")


class RemoteBackend:
    """See `protocol.Backend`. Raises BackendMissing, InputError (invalid token or waiting time).

    $SWELAB_POOL: URL of the pool server. $SWELAB_POOL_WAIT: maximum seconds to wait for a lease, by default
    3600.
    """

    name = "remote"

    def __init__(self) -> None:
        self.url = os.environ.get("SWELAB_POOL", "")
        if not self.url.startswith(("http://", "https://")):
            raise BackendMissing("backend remote: $SWELAB_POOL is not the address of a pool server")
        self._token = find_token()
        self._wait = _seconds(os.environ.get("SWELAB_POOL_WAIT") or "3600")
        self._run = "run-" + re.sub(r"[^A-Za-z0-9_.:@/+=-]", "-", this_run())[:100]
        self._lock = threading.Lock()
        self._process = 0
        try:
            self.line.ask("/healthz", {})
        except SandboxError as error:
            raise BackendMissing(f"backend remote: {error}") from None

    @property
    def line(self) -> PoolClient:
        """The connection to the pool. A forked process opens its own connection."""
        with self._lock:
            if self._process != os.getpid():
                self._line, self._process = PoolClient(self.url, self._token), os.getpid()
                self._open: weakref.WeakSet[RemoteSandbox] = weakref.WeakSet()
                self._beating: threading.Thread | None = None
            return self._line

    def start(
        self,
        tree: Path | None,
        *,
        image: Image | None = None,
        limits: Limits = DEFAULT_LIMITS,
        forgets: bool = False,
    ) -> RemoteSandbox:
        """Starts a sandbox on any host; see `protocol.Backend.start`.

        Also raises NoPlace, which is a kind of SandboxLost.
        """
        if tree is None and image is None:
            raise ValueError("a sandbox needs a tree or an image")
        body: dict[str, Any] = {"tree": tree is not None, "limits": vars(limits), "heartbeats": True}
        body |= {"forgets": True} if forgets else {}
        if image:
            body |= {"image": image.name, "digest": image.digest, "cwd": image.workdir}
        box = RemoteSandbox(self, self._allocate(body), limits)
        with self._lock:
            self._open.add(box)
            if self._beating is None or not self._beating.is_alive():
                self._beating = threading.Thread(target=self._beat, args=(box._patience / 4,), daemon=True)
                self._beating.start()
        try:
            if tree is not None:
                box.fill(Path(tree))
        except BaseException:
            box.close()
            raise
        return box

    def _allocate(self, body: dict[str, Any]) -> Grant:
        request_id = secrets.token_hex(16)
        named = {**body, "run": self._run, "request_id": request_id}
        try:
            answer = self.line.ask(
                "/allocate",
                {**named, "deadline_seconds": self._wait},
                seconds=self._wait + CREATE_SECONDS + LATE_SECONDS,
                patience=min(self._wait, _RESTART_SECONDS),
            )
            return Grant.of(answer.json())
        except BaseException as error:
            if not isinstance(error, SandboxError) or isinstance(error, EngineDown):
                self._cancel(request_id)
            raise

    def _cancel(self, request_id: str) -> None:
        try:
            self.line.ask("/cancel", {"request_id": request_id}, seconds=5.0)
        except (SandboxError, OSError) as error:
            _log.warning("a request for a sandbox could not be cancelled: %s", error)

    def forget(self, box: RemoteSandbox) -> None:
        """Stops renewing the lease of this sandbox."""
        with self._lock:
            self._open.discard(box)

    def _beat(self, seconds: float) -> None:
        line, pause = self.line, threading.Event()
        while True:
            with self._lock:
                leases = [box.lease_id for box in self._open]
                if not leases:
                    self._beating = None
                    return
            try:
                line.ask("/heartbeat", {"lease_ids": leases}, seconds=max(1.0, seconds))
            except Exception as error:
                _log.warning("leases were not renewed: %s", error)
            pause.wait(seconds)
