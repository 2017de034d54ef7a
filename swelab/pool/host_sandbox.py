"""The limits of a container host, and the state of one sandbox on the host."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from swelab.pool.idempotency import Once
from swelab.pool.renewal import Living
from swelab.sandbox.docker_backend import DockerSandbox
from swelab.sandbox.live_session import LiveSession
from swelab.sandbox.protocol import ExecResult, Limits, SessionAnswer
from swelab.sandbox.remote_protocol import Refused


@dataclass(frozen=True)
class HostLimits:
    """The limits of a host.

    containers: maximum number of sandboxes. memory_bytes: memory of all sandboxes together, including their
    files, which are kept in memory. most: the highest limits that one sandbox may have. spool_bytes: disk
    space for unfinished uploads. answer_bytes: memory for files that are being sent to clients.
    """

    containers: int = 16
    memory_bytes: int = 16 << 30
    ttl_seconds: float = 600.0  # time to live of a sandbox if the request does not specify it
    spool_bytes: int = 8 << 30
    answer_bytes: int = 512 << 20
    most: Limits = Limits(
        wall_seconds=7200,
        cpu_seconds=28800,
        memory_bytes=16 << 30,
        processes=4096,
        output_bytes=64 << 20,
        file_bytes=16 << 30,
        disk_bytes=32 << 30,
        shm_bytes=1 << 30,
    )

    def check(self, limits: Limits) -> Limits:
        """Returns `limits` if the host allows them for one sandbox, otherwise raises Refused."""
        for name, most in vars(self.most).items():
            if getattr(limits, name) > most:
                raise Refused(f"{name} {getattr(limits, name)} is more than this host's {most}")
        return limits


@dataclass
class HostSandbox(Living):
    """A sandbox on the host, and its client.

    ends: when the sandbox expires, by time.monotonic(). beats: whether the client sends heartbeats. client:
    hash of the client's token, sent by the pool. Without a pool, `client` is the sandbox's id.
    """

    id: str
    name: str
    box: DockerSandbox
    image: str
    owner: str
    client: str
    request_id: str
    limits: Limits
    beats: bool
    ttl: float
    ends: float
    created: float = field(default_factory=time.time)
    busy: list[float] = field(default_factory=list)
    running: int = 0
    closing: bool = False
    commands: list[int] = field(default_factory=list)
    unread: set[asyncio.Task[None]] = field(default_factory=set)
    large: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a large file is read and sent
    sessions: dict[str, tuple[LiveSession, int]] = field(default_factory=dict)
    once: Once = field(default_factory=lambda: Once(answer_bytes))

    def memory(self, more: int = 0) -> int:
        """Returns the bytes of the host's memory that the sandbox may use for files, commands and output.

        The result always includes memory for one command with the sandbox's own limits. If all running
        commands and sessions together need more, the result includes that number instead. more: bytes of one
        additional command.
        """
        sessions = sum(size for _, size in self.sessions.values())
        files = self.limits.disk_bytes + self.limits.shm_bytes
        return files + max(command_bytes(self.limits), sum(self.commands) + sessions + more)

    @contextlib.contextmanager
    def command(self, size: int) -> Iterator[None]:
        """Counts `size` bytes of memory for a command while the block runs."""
        self.commands.append(size)
        try:
            yield
        finally:
            self.commands.remove(size)


def command_bytes(limits: Limits) -> int:
    """Returns the bytes of the host's memory that a command may use, including its output."""
    return limits.memory_bytes + limits.output_bytes


def answer_bytes(answer: Any) -> int:
    """Returns the approximate size of a stored response in bytes."""
    return len(answer.output) if isinstance(answer, ExecResult | SessionAnswer) else len(str(answer))
