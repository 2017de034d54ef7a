"""Compares verl's overhead with that of the embedded engine (`python -m benchmarks.rl --engine verl`).

Both engines train the same 0.1 M weights on a CPU, with 8 x 8 rollouts per step. In the first steps rollouts
cost nothing. Prints the seconds per step, and where they go. Then 512 rollouts in 8 steps, 64 at once, sleep
for durations with a long tail. Their makespan is compared with that of a schedule without overhead. Rollouts
are in step with the weights, or one step ahead of them.
"""

import heapq
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks import rl_pace
from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.configs.kinds.rl import Rl
from swelab.records import Record, read_jsonl
from swelab.records.task_records import Task
from swelab.rl.engines import verl_run
from swelab.rl.rollout_inputs import Reads
from swelab.rl.training_run import train_policy
from tests.toy_checkpoint import make_checkpoint

PROMPTS, SAMPLES, AT_ONCE = 8, 8, 64
FREE_STEPS, PACED_STEPS = rl_pace.FREE // PROMPTS, 8
STEPS = FREE_STEPS + PACED_STEPS
RECIPE: Record = {
    "start": "model:toy",
    "subset": "some",
    "scaffold": "demo",
    "rollouts": {
        "prompts": PROMPTS, "samples": SAMPLES, "at_once": AT_ONCE, "max_tokens": 24, "context_length": 512,
        "max_total_tokens": 4096, "keep": "none", "shuffled": False,
    },
    "train": {"steps": STEPS, "lr": 1e-4, "threads": 1, "batch_tokens": 4096, "device": "cpu"},
}  # fmt: skip
AHEAD = {"ahead": 1, "update": "in_turns"}
ALONE, APART = {"loops": 1}, {"loops": 1, "nodes": 1}
ENGINES: Mapping[str, Record] = {
    "embedded": {},
    "embedded, 1 ahead": {"rollouts": AHEAD},
    "verl, sync": {"engine": "verl", "verl": {"gpus": 1, "save": STEPS, "rollout": ALONE}},
    "verl, separate_async": {
        "engine": "verl",
        "rollouts": AHEAD,
        "verl": {"gpus": 1, "save": STEPS, "mode": "separate_async", "rollout": APART},
    },
}
PARTS = ("rollouts", "train", "publish")


def recipe_of(engine: str) -> Rl:
    """Returns the recipe for an engine in ENGINES."""
    own = ENGINES[engine]
    recipe = {**RECIPE, **own, "rollouts": {**RECIPE["rollouts"], **own.get("rollouts", {})}}
    return recipes.complete(RL, recipe, engine)


def train(engine: str) -> list[Record]:
    """Trains with an engine, and returns the metrics of each step."""
    with tempfile.TemporaryDirectory(prefix="pace-") as name:
        folder = Path(name)
        start = make_checkpoint(folder / "toy")
        tasks = [Task.of({"instance_id": f"task-{number}"}) for number in range(PROMPTS)]
        train_policy(recipe_of(engine), start, Reads(tasks, folder), folder / "run")
        return [row for row in read_jsonl(folder / "run/metrics.jsonl") if "rollouts" in row]


def seconds_of(row: Mapping[str, float]) -> float:
    """Returns the seconds of a step, as its engine measured them."""
    if (seconds := row.get("verl/timing_s/step")) is not None:
        return seconds
    return sum(row.get(f"time/{part}", 0.0) for part in PARTS)


def lossless(ahead: int, learner: float) -> float:
    """Returns the seconds of a schedule without overhead.

    A rollout starts when a place is free and the weights of `ahead` steps before exist. A step's training
    takes `learner` seconds, after all its rollouts have ended.
    """
    places, ends = [0.0] * AT_ONCE, [0.0] * (ahead + 1)
    for step in range(PACED_STEPS):
        weights, last = ends[step], 0.0
        for number in range(PROMPTS * SAMPLES):
            prompt = rl_pace.FREE + step * PROMPTS + number // SAMPLES
            end = max(heapq.heappop(places), weights) + rl_pace.seconds_of(prompt, number % SAMPLES)
            heapq.heappush(places, end)
            last = max(last, end)
        ends.append(max(last, ends[-1]) + learner)
    assert all(one <= other for one, other in pairwise(ends))
    return ends[-1]


def show_free(engine: str, rows: Sequence[Record]) -> float:
    """Prints and returns the seconds per step if rollouts cost nothing. Excludes the first step."""
    later = rows[1:FREE_STEPS]
    whole = sum(map(seconds_of, later))
    spent = {part: sum(row.get(f"time/{part}", 0.0) for row in later) / whole for part in PARTS}
    shares = ", ".join(f"{part} {share:.0%}" for part, share in spent.items())
    rest = max(0.0, 1 - sum(spent.values()))
    print(f"{engine}: {whole / len(later):.2f} s a step: {shares}, the rest {rest:.0%}", flush=True)
    return whole / len(later)


def show_paced(engine: str, rows: Sequence[Record], learner: float) -> None:
    """Prints the makespan of the rollouts with a long tail."""
    makespan = sum(map(seconds_of, rows[FREE_STEPS:]))
    best = lossless(recipe_of(engine).rollouts.ahead, 0.0)
    own = lossless(recipe_of(engine).rollouts.ahead, learner)
    text = f"{makespan:.1f} s, {makespan / best:.2f} x the {best:.1f} s of a schedule that loses nothing"
    text += f", {makespan / own:.2f} x with {learner:.2f} s a step on top"
    count = PACED_STEPS * PROMPTS * SAMPLES
    print(f"{engine}: {count} rollouts, {AT_ONCE} at once: {text}", flush=True)


def show_verl() -> None:
    """Runs and prints everything. Most of the time passes until verl's processes have started."""
    rl_pace.pace_places()
    verl_run.LOOP = "benchmarks.rl_verl_loop.PacedLoop"
    free: dict[str, float] = {}
    for engine in ENGINES:
        rows = train(engine)
        free[engine] = show_free(engine, rows)
        show_paced(engine, rows, free[engine])
    print(f"verl_ratio_vs_embedded={free['verl, sync'] / free['embedded']:.2f}")
