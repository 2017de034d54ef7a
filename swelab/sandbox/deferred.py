"""Removes sandboxes in a separate thread, since an engine needs time for the removal."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from swelab.sandbox.protocol import Backend, Closing, Sandbox, SandboxLost

_log = logging.getLogger(__name__)


class DeferredBackend:
    """A backend that removes its sandboxes in a separate thread.

    The end of its `with` block waits for the thread. If `most` sandboxes already wait for removal, `close`
    removes a sandbox immediately, in the caller's thread.
    """

    def __init__(self, backend: Backend, most: int) -> None:
        self._backend = backend
        self._room = threading.BoundedSemaphore(most)
        self._remover = ThreadPoolExecutor(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def start(self, tree: Path | None, **options: Any) -> "DeferredSandbox":
        """See `protocol.Backend.start`."""
        return DeferredSandbox(self._backend.start(tree, **options), self._remove)

    def _remove(self, close: Callable[[], None]) -> None:
        if not self._room.acquire(blocking=False):
            close()
            return

        def later() -> None:
            try:
                close()
            except Exception as error:
                _log.warning("a sandbox could not be removed: %s", error)
            finally:
                self._room.release()

        self._remover.submit(later)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remover.shutdown(wait=True)


class DeferredSandbox(Closing):
    """A sandbox that accepts no commands after `close`, and is removed soon afterwards."""

    def __init__(self, sandbox: Sandbox, remove: Callable[[Callable[[], None]], None]) -> None:
        self._sandbox, self._remove, self._closed = sandbox, remove, False

    def __getattr__(self, name: str) -> Any:
        if self._closed:
            raise SandboxLost("the sandbox is closed")
        return getattr(self._sandbox, name)

    def close(self) -> None:
        """See `protocol.Sandbox.close`. Does not wait for the removal."""
        if not self._closed:
            self._closed = True
            self._remove(self._sandbox.close)
