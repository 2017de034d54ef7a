"""Compares our RL learner with TRL's, and rollouts in step with the weights with rollouts ahead of them.

    .venv/bin/python -m benchmarks.rl [--samples 64] [--repeats 5] [--threads 2] [--device cpu]
    .venv/bin/python -m benchmarks.rl --metrics results/rl/demo/metrics.jsonl
    .venv/bin/python -m benchmarks.rl --engine verl

Learner: both learners make one optimizer step of GRPO on the same sequences, rewards and random weights, with
the same loss (clipped, without a reference) in float32. Our learner groups its passes by length. TRL's
GRPOTrainer gets the sequences from a `rollout_func`. It runs once in passes of 8 and once in a single pass,
and the faster run counts. Prints trained tokens per second and ratio_vs_trl=... .

Pacing: 512 rollouts in 8 steps, whose durations have a long tail, and a learner with a fixed duration. The
classes of real training run them. Rollouts and learner only sleep, for a hundredth of real time. Prints the
makespans and async_ratio=... .

With --metrics, prints the figures of a finished run: rollouts per second, and where its time went. With
--engine verl, compares the overhead of verl with that of the embedded engine (`rl_verl`; run `make verl`
before).
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.rl_verl import show_verl
from benchmarks.sft_train import make_model
from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.console.terminal import run_script
from swelab.records import Record, read_jsonl
from swelab.records.task_records import Task
from swelab.rl.advantages import group_relative
from swelab.rl.ahead import Ahead
from swelab.rl.learner import Learner, TrainingSample
from swelab.rl.prompts import Prompts
from swelab.rl.samples import Sample
from swelab.rl.token_weights import token_weights

GROUP = 8
STEPS, PER_STEP, SPEED = 8, 8, 100.0
"""For the pacing: number of steps, groups per step, and how many times faster than real time it runs."""
LEARNER_SECONDS, MEDIAN_SECONDS, TAIL = 60.0, 60.0, 1.0
"""For the pacing: seconds of training per step, and median and sigma of a rollout's log-normal seconds."""


def make_samples(count: int, vocabulary: int) -> list[Sample]:
    """Makes conversations: a prompt, then alternating sampled and observed tokens.

    Lengths have a long tail.
    """
    chance = random.Random(0)
    samples = []
    for _ in range(count):
        sample, left = Sample(), min(1500, int(chance.lognormvariate(0, 0.6) * 350))
        sample.observe([chance.randrange(3, vocabulary) for _ in range(60)])
        while left > 0:
            sampled, observed = chance.randint(10, 40), chance.randint(15, 80)
            start = len(sample.ids)
            sample.ids += [chance.randrange(3, vocabulary) for _ in range(sampled)]
            sample.mask += [1] * sampled
            sample.logprobs += [0.0] * sampled
            sample.steps += [start] * sampled
            sample.observe([chance.randrange(3, vocabulary) for _ in range(observed)])
            left -= sampled + observed
        samples.append(sample)
    return samples


def ours(
    model: Path, samples: Sequence[Sample], repeats: int, device: str
) -> tuple[float, list[list[float]]]:
    """Returns the seconds of our fastest step, and the log-probabilities before training."""
    train = {"steps": 1, "lr": 1e-6, "batch_tokens": 8192, "device": device.partition(":")[0]}
    given = {"start": "model:toy", "subset": "some", "scaffold": "demo", "train": train}
    learner = Learner(model, recipes.complete(RL, given, "benchmark"), device)
    logprobs = learner.logprobs(samples)
    rewards = rewards_of(len(samples))
    advantages = [
        each
        for start in range(0, len(rewards), GROUP)
        for each in group_relative(rewards[start : start + GROUP])
    ]
    weights = token_weights([each.trained for each in samples], list(range(len(samples))), "token-mean", 0)
    batch = [
        TrainingSample(
            Sample(sample.ids, sample.mask, known, sample.steps),
            [advantage * trained for trained in sample.mask],
            [weight * trained for trained in sample.mask],
        )
        for sample, known, advantage, weight in zip(samples, logprobs, advantages, weights, strict=True)
    ]
    return fastest(lambda: learner.train(batch), repeats, device), logprobs


def rewards_of(count: int) -> list[float]:
    """Returns rewards of 0 or 1. Each group has both."""
    chance = random.Random(1)
    return [
        float((number % GROUP == 0) or (number % GROUP != 1 and chance.random() < 0.5))
        for number in range(count)
    ]


def theirs(model: Path, samples: Sequence[Sample], rows: int, repeats: int, device: str) -> float:
    """Returns the seconds of the fastest step of TRL's trainer, with `rows` sequences per pass."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    firsts = [sample.mask.index(1) for sample in samples]
    given = {
        "prompt_ids": [sample.ids[:first] for sample, first in zip(samples, firsts, strict=True)],
        "completion_ids": [sample.ids[first:] for sample, first in zip(samples, firsts, strict=True)],
        "logprobs": [sample.logprobs[first:] for sample, first in zip(samples, firsts, strict=True)],
        "env_mask": [sample.mask[first:] for sample, first in zip(samples, firsts, strict=True)],
    }
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(time.perf_counter() - self.began)

    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output_dir=output, use_cpu=device == "cpu", bf16=device != "cpu", learning_rate=1e-6, beta=0.0,
            per_device_train_batch_size=rows, gradient_accumulation_steps=len(samples) // rows,
            num_generations=GROUP, max_completion_length=4096, max_steps=repeats + 1, report_to="none",
            save_strategy="no", logging_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
            temperature=1.0, loss_type="dapo", shuffle_dataset=False,
        )  # fmt: skip
        rewards = iter(lambda: rewards_of(len(samples)), None)
        trainer = GRPOTrainer(
            model=str(model),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["x"] * (len(samples) // GROUP)}),
            processing_class=AutoTokenizer.from_pretrained(model),
            reward_funcs=lambda completions, **_: next(rewards)[: len(completions)],
            rollout_func=lambda prompts, _: {name: values[: len(prompts)] for name, values in given.items()},
            callbacks=[Clock()],
        )
        trainer.train()
    return min(seconds[1:])


def fastest(step: Any, repeats: int, device: str) -> float:
    """Returns the seconds of the fastest of `repeats` calls. An additional first call is not counted."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def makespan(ahead: int, workers: int, folder: Path) -> float:
    """Returns the seconds in real time of all steps. Rollouts may be `ahead` steps ahead of the weights."""
    chance = random.Random(2)
    took = [
        [chance.lognormvariate(0, TAIL) * MEDIAN_SECONDS for _ in range(GROUP)]
        for _ in range(STEPS * PER_STEP)
    ]

    def roll_out(request: Any, journal: Any) -> Any:
        time.sleep(took[request.prompt][request.sample] / SPEED)

    began = time.perf_counter()
    prompts = Prompts([Task.of({"instance_id": "x"})], seed=0)
    with Ahead(folder, prompts, GROUP, roll_out, workers, per_file=PER_STEP) as groups:
        for step in range(STEPS):
            later = min(ahead, STEPS - step - 1)
            groups.allow((step + 1 + later) * PER_STEP)
            for number in range(step * PER_STEP, (step + 1) * PER_STEP):
                groups.take(number)
            time.sleep(LEARNER_SECONDS / SPEED)
    return (time.perf_counter() - began) * SPEED


def show_learner(args: argparse.Namespace) -> None:
    """Prints the tokens with loss per second, ours and TRL's."""
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as work:
        model = make_model(Path(work) / "model", args.shape, 4096, args.device)
        samples = make_samples(args.samples, 300)
        mine, logprobs = ours(model, samples, args.repeats, args.device)
        trained = sum(sample.trained for sample in samples)
        known = [Sample(s.ids, s.mask, at, s.steps) for s, at in zip(samples, logprobs, strict=True)]
        other = {
            rows: theirs(model, known, rows, args.repeats, args.device) for rows in (GROUP, args.samples)
        }
    total = sum(len(sample.ids) for sample in samples)
    print(f"{len(samples)} sequences, {total:,} tokens, {trained:,} of them trained")
    print(f"ours               {trained / mine:>10,.0f} trained tokens a second, {mine:.2f} s a step")
    for rows, seconds in other.items():
        print(
            f"TRL, {rows:>2} in a pass  {trained / seconds:>10,.0f} trained tokens a second, {seconds:.2f} s"
        )
    print(f"ratio_vs_trl={min(other.values()) / mine:.2f}")


def show_pacing() -> None:
    """Prints makespans of 512 rollouts that may be 0, 1 or 3 steps ahead."""
    rollouts = STEPS * PER_STEP * GROUP
    for workers in (PER_STEP * GROUP, 4 * PER_STEP * GROUP):
        makespans = {}
        for ahead in (0, 1, 3):
            with tempfile.TemporaryDirectory() as folder:
                makespans[ahead] = makespan(ahead, workers, Path(folder))
            speed = f"{makespans[ahead]:,.0f} s, {rollouts / makespans[ahead] * 3600:,.0f} rollouts an hour"
            print(f"{rollouts} rollouts, {workers} at once, {ahead} steps ahead: {speed}")
        print(
            f"async_ratio={makespans[0] / makespans[1]:.2f} async_ratio_3={makespans[0] / makespans[3]:.2f}"
        )


def show_run(path: Path) -> None:
    """Prints the rollouts per second of a finished run, and shares of its time."""
    steps = [row for row in read_jsonl(path) if "rollouts" in row]
    seconds = {name: sum(row.get(f"time/{name}", 0.0) for row in steps) for name in ("rollouts", "train")}
    total, count = sum(seconds.values()), sum(row["rollouts"] for row in steps)
    print(f"{count:,.0f} rollouts in {total:,.0f} s: {count / total:.2f} rollouts a second")
    print(f"trainer works {seconds['train'] / total:.0%} of the time")

    def mean(name: str) -> float:
        values = [row[name] for row in steps if name in row]
        return sum(values) / max(1, len(values))

    shares: Record = {part: mean(f"agent/{part}_ratio") for part in ("model_time", "env_time", "eval_time")}
    print("of a rollout's time: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
    worst = max(row["train/logprob_mismatch_max"] for row in steps if "train/logprob_mismatch_max" in row)
    print(f"logprob_mismatch_mean={mean('train/logprob_mismatch'):.1e} logprob_mismatch_max={worst:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shape", default="small")
    parser.add_argument("--metrics", type=Path)
    parser.add_argument("--engine", choices=("embedded", "verl"), default="embedded")
    args = parser.parse_args()
    if args.metrics:
        show_run(args.metrics)
        return
    if args.engine == "verl":
        show_verl()
        return
    show_learner(args)
    show_pacing()


if __name__ == "__main__":
    run_script(main)
