"""Keeps a task's question runs and its test runs apart in time, on this machine.

Sandboxes that run at the same time can signal to each other, at least through the processor load. The code in
a test run sees expected values. The code that runs the witness question must not learn these values. So a
question run and a test run of a task never overlap, but runs of the same kind may. Test runs of a task are in
one process at a time.
"""

import fcntl
import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

QUESTION, TESTS = "question", "tests"
_OTHER = {QUESTION: TESTS, TESTS: QUESTION}
_LOCK_TYPES = {QUESTION: fcntl.F_RDLCK, TESTS: fcntl.F_WRLCK}


@dataclass
class _Phase:
    """Runs of one kind (question runs or test runs), which may overlap.

    count: how many runs are active or about to start.
    """

    task: str
    kind: str
    count: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)
    descriptor: int | None = None

    def hold(self) -> None:
        """Waits until no other process runs the other kind for this task. Raises OSError."""
        with self.lock:
            if self.descriptor is None:
                self.descriptor = _lock(self.task, self.kind)

    def release(self) -> None:
        """Releases the lock, so that other processes can start their runs."""
        if self.descriptor is not None:
            os.close(self.descriptor)


@dataclass
class _Turns:
    """The current phase of a task, and the runs of each kind that wait for the next phase."""

    phase: _Phase
    waiting: dict[str, list[Future[_Phase]]] = field(default_factory=lambda: {QUESTION: [], TESTS: []})


_TURNS: dict[str, _Turns] = {}
_TURNS_LOCK = threading.Lock()


@contextmanager
def phase(task: str, kind: str) -> Iterator[None]:
    """Runs the body while no run of the other kind is active for this task. kind: QUESTION or TESTS.

    The two kinds alternate if both wait, so neither starves. Raises OSError if the lock file cannot be used.
    """
    entered = _enter(task, kind)
    try:
        entered.hold()
        yield
    finally:
        _leave(entered)


def lock_file() -> str:
    """Returns the path of the lock file that all processes of a user share.

    Each task locks one byte of the file.
    """
    return f"/tmp/swelab-gradings-{os.getuid()}.lock"


def _enter(task: str, kind: str) -> _Phase:
    with _TURNS_LOCK:
        turns = _TURNS.get(task)
        if turns is None:
            turns = _TURNS[task] = _Turns(_Phase(task, kind))
            return turns.phase
        if turns.phase.kind == kind and not turns.waiting[_OTHER[kind]]:
            turns.phase.count += 1
            return turns.phase
        place: Future[_Phase] = Future()
        turns.waiting[kind].append(place)
    return place.result()


def _leave(ended: _Phase) -> None:
    with _TURNS_LOCK:
        ended.count -= 1
        if ended.count:
            return
        ended.release()
        turns = _TURNS[ended.task]
        kind = _OTHER[ended.kind] if turns.waiting[_OTHER[ended.kind]] else ended.kind
        places, turns.waiting[kind] = turns.waiting[kind], []
        if not places:
            del _TURNS[ended.task]
            return
        turns.phase = _Phase(ended.task, kind, len(places))
    for place in places:
        place.set_result(turns.phase)


def _lock(task: str, kind: str) -> int:
    """Returns a descriptor that locks the task's byte of the lock file until it is closed."""
    descriptor = os.open(lock_file(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, lock_request(task, kind))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock_request(task: str, kind: str) -> bytes:
    """Returns the `struct flock` for a task's byte of the lock file: shared for question runs, exclusive for
    test runs.
    """
    place = int.from_bytes(hashlib.sha256(task.encode()).digest()[:7], "big")
    return struct.pack("hhqqi4x", _LOCK_TYPES[kind], os.SEEK_SET, place, 1, 0)
