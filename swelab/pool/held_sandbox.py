"""What a host gives, and a sandbox that it holds."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from swelab.pool.idempotency import Once
from swelab.pool.lifetime import Living
from swelab.sandbox.docker_backend import DockerSandbox
from swelab.sandbox.live_session import LiveSession
from swelab.sandbox.protocol import ExecResult, Limits, SessionAnswer
from swelab.sandbox.remote_protocol import Refused


@dataclass(frozen=True)
class HostLimits:
    """What a host gives. `memory_bytes` is for all sandboxes together, their files among it; `most` the
    highest limits of one. `spool_bytes`: uploads on their way; `answer_bytes`: files on their way out."""

    containers: int = 16
    memory_bytes: int = 16 << 30
    ttl_seconds: float = 600.0  # of a sandbox whose maker names none
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
        """The same limits, if a sandbox may have them. Raises Refused."""
        for name, most in vars(self.most).items():
            if getattr(limits, name) > most:
                raise Refused(f"{name} {getattr(limits, name)} is more than this host's {most}")
        return limits


@dataclass
class HostSandbox(Living):
    """A sandbox and who it is for. `ends` is of time.monotonic(); a client with `beats` renews it in time.

    client: whose token it is for, as its pool says; its own id where no pool says so.
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
    large: asyncio.Lock = field(default_factory=asyncio.Lock)  # of who reads a large file
    sessions: dict[str, tuple[LiveSession, int]] = field(default_factory=dict)
    once: Once = field(default_factory=lambda: Once(answer_bytes))

    def memory(self, more: int = 0) -> int:
        """Bytes of the host that it may take: its files, and its commands' memory and output.

        It has room for one command by its own limits; those at the same time, sessions and greater limits
        come beyond it. `more` is for one command more.
        """
        sessions = sum(size for _, size in self.sessions.values())
        files = self.limits.disk_bytes + self.limits.shm_bytes
        return files + max(command_bytes(self.limits), sum(self.commands) + sessions + more)

    @contextlib.contextmanager
    def command(self, size: int) -> Iterator[None]:
        """Counts a command while it runs."""
        self.commands.append(size)
        try:
            yield
        finally:
            self.commands.remove(size)


def command_bytes(limits: Limits) -> int:
    """Memory that a command may take on its host, its output among it."""
    return limits.memory_bytes + limits.output_bytes


def answer_bytes(answer: Any) -> int:
    """Bytes of output that an answer holds."""
    return len(answer.output) if isinstance(answer, ExecResult | SessionAnswer) else len(str(answer))
