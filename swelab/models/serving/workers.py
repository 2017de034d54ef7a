"""Chooses the engine for each request of a gate, and checks which engines generate.

The list of engines is fixed when the gate starts. The process that runs the engines reports which of them are
up (`Workers.set_up`). A restarted engine counts as up only when it serves the current weights. The gate
itself checks whether an engine generates.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress

import httpx

CHECK_SECONDS = 5.0
"""The gate checks a worker that has sent no response for this many seconds."""
LOOK_SECONDS = 0.3
ANSWER_SECONDS = 15.0
REMEMBERED = 100_000
"""Number of prompt prefixes for which the gate remembers the worker that got them."""
SLACK = 4
"""A worker that has the prompt cached is preferred unless its requests exceed those of the least busy worker
by more than this number."""


class Worker:
    """One engine: its address, its number of running requests, and whether it is up and generates."""

    def __init__(self, url: str):
        self.url = url
        self.load = 0
        self.up = True
        self.generates = False
        self.proved = 0.0

    def mark_alive(self) -> None:
        """Records that the worker has just generated tokens."""
        self.generates, self.proved = True, time.monotonic()


class Workers:
    """All engines behind a gate."""

    def __init__(self, urls: Sequence[str], health: str, key: str):
        self.each = [Worker(url) for url in urls]
        self._health, self._headers = health, {"Authorization": f"Bearer {key}"}
        self._prefixes: OrderedDict[bytes, int] = OrderedDict()

    def set_up(self, up: Sequence[bool]) -> None:
        """Sets which workers are up."""
        for worker, now in zip(self.each, up, strict=True):
            worker.up, worker.generates = now, worker.generates and now

    def generating(self) -> int:
        """Returns the number of workers that are up and generate."""
        return sum(worker.up and worker.generates for worker in self.each)

    def choose(self, beginning: Sequence[bytes], tried: Collection[Worker] = ()) -> Worker | None:
        """Returns the worker that has most of the prompt cached, otherwise the least busy worker. Returns
        None if all workers are down.

        beginning: the prompt in pieces. tried: workers that have already lost this request, which are chosen
        last.
        """
        up = [worker for worker in self.each if worker.up]
        up = [worker for worker in up if worker.generates] or up
        up = [worker for worker in up if worker not in tried] or up
        if not up:
            return None
        if len(self.each) == 1:
            return up[0]
        least = min(up, key=lambda worker: worker.load)
        found = self._worker_with_prefix(marks := _marks(beginning))
        chosen = found if found in up and found.load <= least.load + SLACK else least
        self._remember(marks, chosen)
        return chosen

    def _worker_with_prefix(self, marks: Sequence[bytes]) -> Worker | None:
        """Returns the worker that got the longest prefix of a prompt, or None if no prefix of at least half
        the prompt is known."""
        for mark in reversed(marks[len(marks) // 2 :]):
            if mark in self._prefixes:
                return self.each[self._prefixes[mark]]
        return None

    def _remember(self, marks: Sequence[bytes], worker: Worker) -> None:
        number = self.each.index(worker)
        for mark in marks:
            self._prefixes[mark] = number
            self._prefixes.move_to_end(mark)
        while len(self._prefixes) > REMEMBERED:
            self._prefixes.popitem(last=False)

    async def watch(self, client: httpx.AsyncClient) -> None:
        """Checks regularly, until cancelled, whether each worker generates."""
        await asyncio.gather(*(self._watch(worker, client) for worker in self.each))

    async def _watch(self, worker: Worker, client: httpx.AsyncClient) -> None:
        while True:
            quiet = time.monotonic() - worker.proved
            if worker.generates and quiet < CHECK_SECONDS:
                await asyncio.sleep(min(LOOK_SECONDS, CHECK_SECONDS - quiet))
                continue
            generates = False
            if worker.up:
                with suppress(httpx.HTTPError):
                    answer = await client.get(
                        worker.url + self._health, headers=self._headers, timeout=ANSWER_SECONDS
                    )
                    generates = answer.status_code == 200
            worker.generates = generates and worker.up
            if worker.generates:
                worker.mark_alive()
            else:
                await asyncio.sleep(LOOK_SECONDS)


def _marks(beginning: Sequence[bytes]) -> list[bytes]:
    """Returns hashes of the prefixes of a prompt: of its first piece, its first two pieces, and so on."""
    state, found = hashlib.blake2b(digest_size=16), []
    for piece in beginning:
        state.update(len(piece).to_bytes(8, "big") + piece)
        found.append(state.digest())
    return found
