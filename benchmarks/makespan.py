"""Simulates 512 rollouts at once in a long-tailed world, with the shard runner and journal of real runs.

The duration of a rollout is the number of steps times the seconds per step. Both follow published runs of
mini-swe-agent:

- Steps are log-normal, with median 45, sigma 0.53, and mini-swe-agent's own limit of 250. This fits two
  published counts: 71 of 412 finished instances of SWE-bench Verified used up a budget of 75 steps
  (SemiAnalysisAI/InferenceX, pull request 2318), and 6 of 500 a budget of 150 (vals-ai/Valkyrie, pull
  request 138). With these values, 93 % of rollouts end within 100 steps. In a third run (LiveBench, pull
  request 465), 92 % of the resolved ones did.
- Seconds per step are uniform in 30 to 60 (the same LiveBench pull request, slow models with long contexts).

Time is scaled down. The seed is a constant. The bound is max(sum / workers, longest).
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
"""Sigma of the log-normal factor between two policies' durations of the same instance (assumed)."""


@dataclass
class Makespan:
    """One simulated run.

    seconds: its duration. bound: the theoretical minimum. Both are in scaled seconds.
    """

    name: str
    rollouts: int
    seconds: float
    bound: float
    visible: int
    """Number of records in the journal when the longest rollout ended."""

    @property
    def ratio(self) -> float:
        return self.seconds / self.bound


def durations(count: int, draw: random.Random) -> list[float]:
    """Returns random wall seconds of rollouts."""
    steps = (min(MOST_STEPS, MEDIAN_STEPS * draw.lognormvariate(0, SIGMA)) for _ in range(count))
    return [each * draw.uniform(*STEP_SECONDS) for each in steps]


def simulate(name: str, count: int, earlier: int, target_seconds: float, folder: Path) -> Makespan:
    """Runs `count` rollouts, with time scaled so that the bound is `target_seconds`.

    earlier: number of policies whose duration tables exist already. These durations are noisy.
    """
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
    """Measures a shard whose instances only sleep. path: the shard's journal."""
    straggler = max(seconds, key=seconds.__getitem__)
    lines: list[int] = []

    def work(item: Record) -> TypedRecord:
        time.sleep(seconds[item["instance_id"]])
        if item["instance_id"] == straggler:
            lines.append(path.read_bytes().count(b"\n"))
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
    return Makespan(name, len(seconds), took, target_seconds, lines[0])


def measure(seconds: float) -> list[Makespan]:
    """Returns the cases that have a limit, and then a case that is only for comparison."""
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
    """Returns a line for each run."""
    lines = [
        f"{'rollouts, 512 at once':38s}{'bound s':>9s}{'took s':>9s}{'ratio':>7s}  kept before the longest"
    ]
    for run in runs:
        kept = f"{run.visible:,} of {run.rollouts:,}"
        lines.append(f"{run.name:38s}{run.bound:9.2f}{run.seconds:9.2f}{run.ratio:7.3f}  {kept}")
    return lines
