"""Records how long instances take, so that long instances start first.

So a long instance does not delay the end of a shard. Next to each journal there is a small table of instance
ids and wall seconds (`<shard>.seconds.tsv`). It affects only the order of work, so a damaged or missing line
costs only time.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from swelab.files.text_lines import lines_of
from swelab.jobs.thread_pool import Done

SUFFIX = ".seconds.tsv"


def _name(item: Any) -> str:
    """Returns the instance id of an item, or "" if it has none, such as a run for several tasks."""
    return str(item.get("instance_id", "") if isinstance(item, Mapping) else getattr(item, "instance_id", ""))


class Timings:
    """The durations of a journal's instances.

    Durations of other policies on the same subset are read, too.
    """

    def __init__(self, journal: Path):
        self.path = journal.with_suffix(SUFFIX)
        self._stream: IO[str] | None = None

    def __enter__(self) -> "Timings":
        self._stream = open(self.path, "a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stream is not None
        self._stream.close()

    def note(self, done: Sequence[Done]) -> None:
        """Adds the durations of finished instances to the table."""
        assert self._stream is not None
        for each in done:
            if name := _name(each.item):
                self._stream.write(f"{name}\t{each.seconds:.3f}\n")
        self._stream.flush()

    def longest_first(self, todo: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Sorts `todo` by duration, the longest first. An unknown duration counts as the median."""
        known = self.known_durations({_name(item) for _, item in todo})
        if not known:
            return list(todo)
        middle = statistics.median(known.values())
        return sorted(todo, key=lambda pair: -known.get(_name(pair[1]), middle))

    def known_durations(self, names: set[str]) -> dict[str, float]:
        """Returns the mean seconds of each instance over all policies.

        The journals of the policies are in <stage>/<policy>/<subset>/.
        """
        durations: dict[str, list[float]] = {}
        stage, subset = self.path.parent.parent.parent, self.path.parent.name
        for path in sorted({self.path, *stage.glob(f"*/{subset}/*{SUFFIX}")}):
            for line in lines_of(path.read_text(encoding="utf-8", errors="replace")):
                name, _, seconds = line.partition("\t")
                if name in names and seconds.replace(".", "", 1).isdecimal():
                    durations.setdefault(name, []).append(float(seconds))
        return {name: statistics.fmean(seconds) for name, seconds in durations.items()}
