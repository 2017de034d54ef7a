"""Simulates 512 rollouts at once in a long-tailed world, with the shard runner and journal of real runs.

How long a rollout takes is steps times seconds a step, both from published runs of mini-swe-agent:

- steps: log-normal, median 45, sigma 0.53, at most 250 (its own limit). Fitted to two published counts: 71
  of 412 finished instances of SWE-bench Verified ran out of a budget of 75 steps (SemiAnalysisAI/InferenceX,
  pull request 2318), and 6 of 500 out of 150 (vals-ai/Valkyrie, pull request 138). It then has 93 % within
  100 steps, where a third (LiveBench, pull request 465) has 92 % of its resolved ones.
- seconds a step: 30 to 60, evenly (the same LiveBench pull request, slow models with long contexts).

Time is scaled down; the seed is a constant. The bound is max(sum / workers, longest).
"""

import random
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from swelab.jobs.journal import Journal
from swelab.jobs.resumable_run import run_shard
from swelab.records import Record
from swelab.records.typed import TypedRecord

SEED = 20261121
MEDIAN_STEPS, SIGMA, MOST_STEPS = 45, 0.53, 250
STEP_SECONDS = (30, 60)
WORKERS = 512
SPREAD = 0.5
"""Sigma of the log-normal factor between an instance's time with another policy and its time now
(assumed)."""


@dataclass
class Makespan:
    """One simulated run: number of rollouts, its duration and the bound (both in scaled seconds)."""

    name: str
    rollouts: int
    seconds: float
    bound: float
    visible: int
    """Records that were in the journal when the longest rollout ended."""

    @property
    def ratio(self) -> float:
        return self.seconds / self.bound


def durations(count: int, draw: random.Random) -> list[float]:
    """Wall seconds of rollouts."""
    steps = (min(MOST_STEPS, MEDIAN_STEPS * draw.lognormvariate(0, SIGMA)) for _ in range(count))
    return [each * draw.uniform(*STEP_SECONDS) for each in steps]


def simulate(name: str, count: int, earlier: int, target_seconds: float, folder: Path) -> Makespan:
    """Runs `count` rollouts whose bound is scaled to `target_seconds`. `earlier` policies left tables of
    their durations for each instance, which are noisy hints."""
    draw = random.Random(SEED)
    real = durations(count, draw)
    scale = target_seconds / max(sum(real) / WORKERS, max(real))
    seconds = {f"i{number:05d}": value * scale for number, value in enumerate(real)}
    path = folder / "mine" / name / "000of001.jsonl"
    path.parent.mkdir(parents=True)
    for policy in range(earlier):
        write_hints(folder / f"earlier{policy}" / name / "000of001.seconds.tsv", seconds, draw)
    return run(path, name, seconds, target_seconds)


def write_hints(table: Path, seconds: dict[str, float], draw: random.Random) -> None:
    """Writes the table of an earlier policy's durations for each instance."""
    table.parent.mkdir(parents=True)
    hints = (f"{key}\t{value * draw.lognormvariate(0, SPREAD):.3f}\n" for key, value in seconds.items())
    table.write_text("".join(hints))


def run(path: Path, name: str, seconds: dict[str, float], target_seconds: float) -> Makespan:
    """Measures a shard of instances that sleep for their seconds; `path` is its journal."""
    straggler = max(seconds, key=seconds.__getitem__)
    seen: list[int] = []

    def work(item: Record) -> TypedRecord:
        time.sleep(seconds[item["instance_id"]])
        if item["instance_id"] == straggler:
            seen.append(path.read_bytes().count(b"\n"))
        return TypedRecord.of({**item, "outcome": "submitted"})

    items = [(key, {"instance_id": key, "body": "x" * 2000}) for key in seconds]
    start = time.monotonic()
    with Journal(path) as journal:
        rows = run_shard(
            items,
            lambda: nullcontext(work),
            journal,
            workers=WORKERS,
            label=name,
            kind=TypedRecord,
            is_lost=lambda record: False,
            is_good=lambda record: True,
        )
        first = next(rows)
        took = time.monotonic() - start
        assert [first["instance_id"], *(row["instance_id"] for row in rows)] == list(seconds)
    return Makespan(name, len(seconds), took, target_seconds, seen[0])


def measure(seconds: float) -> list[Makespan]:
    """The cases whose ratio must be within the limit, and at the end a case only for comparison."""
    many = 50_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            simulate("512, nothing known", WORKERS, 0, seconds, folder),
            simulate("50,000, nothing known", many, 0, 3 * seconds, folder),
            simulate("4,096, times of two policies known", 8 * WORKERS, 2, seconds, folder),
            simulate("4,096, nothing known (not held)", 8 * WORKERS, 0, seconds, folder),
        ]


def table(runs: list[Makespan]) -> list[str]:
    """A line for each run."""
    lines = [
        f"{'rollouts, 512 at once':38s}{'bound s':>9s}{'took s':>9s}{'ratio':>7s}  kept before the longest"
    ]
    for run in runs:
        kept = f"{run.visible:,} of {run.rollouts:,}"
        lines.append(f"{run.name:38s}{run.bound:9.2f}{run.seconds:9.2f}{run.ratio:7.3f}  {kept}")
    return lines
