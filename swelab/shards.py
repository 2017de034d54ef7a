"""Shards: how instances are dealt to jobs, and how one job works through its instances.

An instance belongs to a shard by a hash of its id, so that adding an instance moves no other.
Inside a shard instances run side by side, each finished one is journalled, and a resumed run
takes up only what the journal lacks.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing

from swelab.console import Progress
from swelab.journal import Journal
from swelab.ray_workers import Place, RayWorkers
from swelab.records import InputError, Record
from swelab.timings import Timings
from swelab.workers import Threads


def shard_of(instance_id: str, shards: int) -> int:
    """The shard (0 .. shards-1) that an instance belongs to."""
    return int.from_bytes(hashlib.sha256(instance_id.encode()).digest()[:8]) % shards


def shard_names(shards: int) -> list[str]:
    """File names of the shards: `<number>of<count>`."""
    return [f"{number:03d}of{shards:03d}" for number in range(shards)]


def parse_shard(name: str) -> tuple[int, int]:
    """Number and count of a shard's name. Raises InputError."""
    number, _, count = name.partition("of")
    if not (number.isdigit() and count.isdigit() and int(number) < int(count)):
        raise InputError(f"{name!r} is not a shard", expected="<number>of<count>, such as 000of004")
    return int(number), int(count)


def belongs_to(name: str) -> Callable[[str], bool]:
    """Whether an instance id is of the shard `name`. Raises InputError."""
    number, count = parse_shard(name)
    return lambda instance_id: shard_of(instance_id, count) == number


def in_shard(rows: Sequence[Record], name: str) -> list[Record]:
    """The rows whose instance belongs to the shard `name`, in their order."""
    mine = belongs_to(name)
    return [row for row in rows if mine(row["instance_id"])]


def run_shard(
    items: Sequence[tuple[str, Record]],
    open_work: Callable[[], AbstractContextManager[Callable[[Record], Record]]],
    journal: Journal,
    *,
    workers: int,
    label: str,
    is_lost: Callable[[Record], bool],
    is_good: Callable[[Record], bool],
    place: Place | None = None,
    is_paused: Callable[[Record], bool] = lambda record: False,
) -> Iterator[Record]:
    """Works through `items` (pairs of journal key and instance) and yields one record each, in order.

    `open_work` gives the function that turns an instance into a record; it is entered only when
    the journal lacks something, so that no model server starts for nothing. Instances that took long
    before are begun first. Records for which `is_lost` holds (infrastructure losses) are tried again after
    each of RETRY_SECONDS, journalled, and taken up anew by a later run; those for which `is_paused` holds are
    not tried again before that. An exception ends the run, after the instances in flight, whose records are
    journalled too.

    With a `place` and $SWELAB_EXECUTOR "ray", instances are spread over a Ray cluster; `open_work` is then
    not entered here.
    """
    progress = Progress(len(items), label)
    finished = {}
    for key, _ in items:
        if key in journal and not (is_lost(record := journal.get(key)) or is_paused(record)):
            finished[key] = is_good(record)
    progress.skip(len(finished), sum(finished.values()))
    todo = [(key, item) for key, item in items if key not in finished]
    if todo:
        with Timings(journal.path) as timings, ExitStack() as stack:
            ordered = timings.longest_first(todo)
            if place and os.environ.get("SWELAB_EXECUTOR") == "ray":
                batches = RayWorkers(workers).run(ordered, place)
            else:
                batches = Threads(workers).run(ordered, stack.enter_context(open_work()), is_lost)
            stack.enter_context(closing(batches))
            for done in batches:
                journal.append(*({**each.record, "key": each.key, "journalled": now()} for each in done))
                timings.note(done)
                for each in done:
                    progress.done(is_good(each.record))
    progress.close()
    for key, _ in items:
        yield {name: value for name, value in journal.get(key).items() if name != "journalled"}


def now() -> float:
    """Seconds since the epoch, to the millisecond."""
    return round(time.time(), 3)
