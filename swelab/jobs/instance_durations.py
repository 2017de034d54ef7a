"""Records how long instances take, so that long instances start first.

So a long instance does not delay the end of a shard. Next to each journal there is a small table of instance
ids and wall seconds (`<shard>.seconds.tsv`). It affects only the order of work, so a damaged or missing line
costs only time.
"""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from swelab.jobs.thread_pool import Done

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
