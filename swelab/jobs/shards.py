"""Shards: assigns instances to jobs, and runs the instances of one job.

An instance belongs to a shard by a hash of its id, so that a new instance does not move other instances. A
policy that attempts its tasks k times has a shard of the same instances for each of its samples, so that a
further sample touches no file of the other samples. Within a shard, instances run concurrently. Each finished
instance is journalled, and a resumed run does only instances that are not in the journal.
"""

import hashlib
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, TypeVar

from swelab.console.terminal import Progress
from swelab.jobs.instance_durations import Timings
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.ray_workers import Place, RayWorkers
from swelab.jobs.thread_pool import Done, Threads, Todo
from swelab.records import InputError, Kind, Record

Row = TypeVar("Row", bound=Mapping[str, Any])
SHAPES = {"sample": r"(?:\.s[1-9]\d*)?", "shard": r"\d{3}of\d{3}(?:s[1-9]\d*)?"}
"""Regular expressions of the parts of paths that are not names of recipes."""


def shard_of(instance_id: str, shards: int) -> int:
    """The shard (0 .. shards-1) that an instance belongs to."""
    return int.from_bytes(hashlib.sha256(instance_id.encode("utf-8", "surrogatepass")).digest()[:8]) % shards


def shard_names(shards: int, samples: Iterable[int] = (0,)) -> list[str]:
    """File names of the shards of some samples: `<number>of<count>`, followed by s<sample> unless it is 0."""
    names = [f"{number:03d}of{shards:03d}" for number in range(shards)]
    return [f"{name}s{sample}" if sample else name for sample in samples for name in names]


def parse_shard(name: str) -> tuple[int, int, int]:
    """(number, count, sample) of a shard's name. Raises InputError."""
    found = re.fullmatch(r"(\d+)of(\d+)(?:s([1-9]\d*))?", name)
    if not found or int(found[1]) >= int(found[2]):
        text = "<number>of<count>, such as 000of004, or 000of004s1 of sample 1"
        raise InputError(f"{name!r} is not a shard", expected=text)
    return int(found[1]), int(found[2]), int(found[3] or 0)


def sample_of(shard: str) -> int:
    """The number of a shard's sample; 0 for a policy without samples. Raises InputError."""
    return parse_shard(shard)[2]


def sample_suffix(sample: int) -> str:
    """The part of a file's name that names the sample, before its extension; "" for sample 0."""
    return f".s{sample}" if sample else ""


def numbered(rows: Iterable[Record], shard: str) -> Iterator[Record]:
    """Adds the number of the sample to each row; rows of sample 0 are unchanged."""
    sample = sample_of(shard)
    return ({**row, "sample": sample} if sample else row for row in rows)


def attempt_name(row: Record) -> str:
    """The name of one attempt of a policy: its instance id, followed by #<sample> from sample 1 on."""
    sample = row.get("sample", 0)
    return f"{row['instance_id']}#{sample}" if sample else row["instance_id"]


def belongs_to(name: str) -> Callable[[str], bool]:
    """Returns a function: whether an instance id belongs to the shard `name`. Raises InputError."""
    number, count, _ = parse_shard(name)
    return lambda instance_id: shard_of(instance_id, count) == number


def in_shard(rows: Sequence[Row], name: str) -> list[Row]:
    """The rows whose instance belongs to the shard `name`, in their order."""
    mine = belongs_to(name)
    return [row for row in rows if mine(row["instance_id"])]


def run_shard(
    items: Sequence[tuple[str, Any]],
    open_work: Callable[[], AbstractContextManager[Callable[[Any], Kind]]],
    journal: Journal,
    *,
    workers: int,
    label: str,
    kind: type[Kind],
    is_lost: Callable[[Kind], bool],
    is_good: Callable[[Kind], bool],
    place: Place | None = None,
    is_paused: Callable[[Kind], bool] = lambda record: False,
    losses: Losses[Kind] | None = None,
) -> Iterator[Kind]:
    """Works through `items` (pairs of journal key and instance) and yields a record of each, in order.

    `open_work` yields the function from an instance to its record. It is opened only if the journal lacks an
    instance, so that no model server starts for nothing. Instances with long past durations start first. If
    `is_lost` is true of a record (lost to infrastructure), the instance is repeated after each of
    RETRY_SECONDS, and by a later run; if `is_paused` is true, only by a later run. An exception ends the run,
    after the running instances are journalled. With a `place` and $SWELAB_EXECUTOR "ray", instances are
    spread over a Ray cluster without `open_work`. Raises ShardLost before the first record if more instances
    are lost than `losses` allows. After several losses in a row beyond that number, no further instance
    starts.
    """
    progress = Progress(len(items), label)
    kept = ((key, journal.record(key, kind)) for key, _ in items if key in journal)
    finished = {key: is_good(record) for key, record in kept if not (is_lost(record) or is_paused(record))}
    progress.skip(len(finished), sum(finished.values()))
    todo = [(key, item) for key, item in items if key not in finished]
    losses = losses or Losses()
    if todo:
        with Timings(journal.path) as timings:
            waiting = deque(timings.longest_first(todo))
            with _batches(waiting, open_work, workers, is_lost, place) as batches:
                for done in batches:
                    journal.append(*({**each.record, "key": each.key, "journalled": now()} for each in done))
                    timings.note(done)
                    for record in (kind.of(each.record) for each in done):
                        progress.done(is_good(record))
                        losses.note(record, is_lost(record))
                    if losses.hopeless(workers):
                        waiting.clear()
    progress.close()
    losses.check(len(items))
    for key, _ in items:
        yield journal.record(key, kind)


@contextmanager
def _batches(
    waiting: Todo,
    open_work: Callable[[], AbstractContextManager[Callable[[Any], Kind]]],
    workers: int,
    is_lost: Callable[[Kind], bool],
    place: Place | None,
) -> Iterator[Iterator[list[Done]]]:
    """Yields batches of finished instances, from a Ray cluster or from threads of this process."""
    if place and os.environ.get("SWELAB_EXECUTOR") == "ray":
        with closing(RayWorkers(workers).run(waiting, place)) as batches:
            yield batches
        return
    with open_work() as work, closing(Threads(workers).run(waiting, work, is_lost)) as batches:
        yield batches


def now() -> float:
    """Seconds since the epoch, to the millisecond."""
    return round(time.time(), 3)
