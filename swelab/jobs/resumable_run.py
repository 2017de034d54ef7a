"""Runs the instances of one job. A resumed run skips the instances that a killed run finished.

Instances run concurrently. Each finished instance is written to the journal.
"""

import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from swelab.console.terminal import Progress
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.ray_workers import Place, RayWorkers
from swelab.jobs.thread_pool import Done, Threads, Todo
from swelab.records import InputError, Kind

SUFFIX = ".seconds.tsv"


def _name(item: Any) -> str:
    """Returns the instance id of an item, or "" if it has none, such as a run for several tasks."""
    return str(item.get("instance_id", "") if isinstance(item, Mapping) else getattr(item, "instance_id", ""))


class Timings:
    """The durations of instances, also of other policies on the same subset."""

    def __init__(self, journal: Path):
        self.path = journal.with_suffix(SUFFIX)

    def note(self, done: Sequence[Done]) -> None:
        """Adds the durations of finished instances to the table."""
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.writelines(f"{name}\t{each.seconds:.3f}\n" for each in done if (name := _name(each.item)))

    def longest_first(self, todo: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Sorts `todo` by the last known duration, the longest first. An unknown one counts as the median.

        The journals of the policies are in <stage>/<policy>/<subset>/.
        """
        stage, subset = self.path.parents[2], self.path.parent.name
        durations: dict[str, float] = {}
        for path in sorted(stage.glob(f"*/{subset}/*{SUFFIX}")):
            for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
                with suppress(ValueError):
                    name, seconds = line.split("\t")
                    durations[name] = float(seconds)
        middle = statistics.median(durations.values()) if durations else 0.0
        return sorted(todo, key=lambda pair: -durations.get(_name(pair[1]), middle))


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
    is_refused: Callable[[Kind], bool] = lambda record: False,
    losses: Losses[Kind] | None = None,
) -> Iterator[Kind]:
    """Processes `items` (pairs of journal key and instance) and yields the record of each item, in order.

    `open_work` yields the function from an instance to its record. It is opened only if the journal lacks an
    instance, so that no model server starts for nothing. Instances with long past durations start first. If
    `is_lost` is true of a record (lost to infrastructure), the instance is repeated after each of
    RETRY_SECONDS, and by a later run. If `is_paused` is true, the instance is repeated only by a later run.
    If `is_refused` is true (repetition does not help), the instance counts as a loss and is never repeated.
    An exception ends the run after the running instances are written to the journal. With a `place` and
    $SWELAB_EXECUTOR "ray", instances are spread over a Ray cluster without `open_work`. Raises ShardLost
    before the first record if more instances are lost than `losses` allows. After several losses in a row
    beyond that number, no further instance starts.
    """
    progress = Progress(len(items), label)
    losses, finished = losses or Losses(), {}
    for key, item in items:
        record = _read_line(journal, key, item, kind)
        if record is not None and not (is_lost(record) or is_paused(record)):
            finished[key] = is_good(record)
            losses.note(record, is_refused(record))
    progress.skip(len(finished), sum(finished.values()))
    todo = [(key, item) for key, item in items if key not in finished]
    if todo:
        timings = Timings(journal.path)
        waiting = deque(timings.longest_first(todo))
        with _batches(waiting, open_work, workers, is_lost, place) as batches:
            for done in batches:
                journal.append(*({**each.record, "key": each.key, "journalled": now()} for each in done))
                timings.note(done)
                for record in (kind.of(each.record) for each in done):
                    progress.done(is_good(record))
                    losses.note(record, is_lost(record) or is_refused(record))
                if losses.hopeless(workers):
                    waiting.clear()
    progress.close()
    losses.check(len(items))
    for key, _ in items:
        yield journal.record(key, kind)


def _read_line(journal: Journal, key: str, item: Any, kind: type[Kind]) -> Kind | None:
    """Returns the record of an item in the journal, or None. A line that is no such record, or that is of
    another instance, counts as absent; a note says so."""
    if key not in journal:
        return None
    try:
        record = journal.record(key, kind)
    except InputError as fault:
        print(f"note: {fault}: the line counts as absent", file=sys.stderr)
        return None
    name = item.get("instance_id") if isinstance(item, Mapping) else getattr(item, "instance_id", None)
    if name is not None and record.get("instance_id", name) != name:
        what = f"the line of {name} is of {record['instance_id']}: it counts as absent"
        print(f"note: {journal.path}: {what}", file=sys.stderr)
        return None
    return record


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
    """Returns the seconds since the epoch, to the millisecond."""
    return round(time.time(), 3)
