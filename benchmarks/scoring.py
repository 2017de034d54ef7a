"""Scores of many policies with many runs each, and every two of them compared.

    .venv/bin/python -m benchmarks.scoring [--tasks 500] [--runs 10] [--policies 10]

Verdicts are drawn from a seed; tasks differ in how hard they are, policies in how good. Prints wall seconds
of making the scores from reports, and of the verified score with all pairs, and the largest memory.
"""

import argparse
import random
import resource
import time

from swelab.console.terminal import run_script
from swelab.grading.swebench_report import build_report
from swelab.scores.score import score
from swelab.scores.verified_score import score_experiment

LOST = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--policies", type=int, default=10)
    args = parser.parse_args()
    rng = random.Random(0)
    tasks = [{"instance_id": f"o__r-{number}", "repo": f"o/r{number % 12}"} for number in range(args.tasks)]
    ease = [rng.betavariate(0.4, 0.8) for _ in tasks]
    reports = {
        f"p{number}": [
            report(tasks, [each * (0.7 + 0.03 * number) for each in ease], f"p{number}", sample, rng)
            for sample in range(args.runs)
        ]
        for number in range(args.policies)
    }
    start = time.monotonic()
    scores = [score(tasks, runs, name, "mini") for name, runs in reports.items()]
    scored = time.monotonic()
    record = score_experiment(scores, ("p0", "p1"))
    done = time.monotonic()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tests = record.get("pairwise", [record["comparison"]])
    found = sum(test.get("p_adjusted", test["p_value"]) < 0.05 for test in tests)
    print(f"{args.policies} policies x {args.runs} runs x {args.tasks} tasks")
    print(f"scores_seconds={scored - start:.2f} verified_seconds={done - scored:.2f} memory_mb={memory:.0f}")
    print(f"{found} of {len(tests)} pairs differ by more than noise after Holm's correction")


def report(tasks: list[dict], chances: list[float], policy: str, sample: int, rng: random.Random) -> dict:
    """The report of one run."""
    grades = []
    for task, chance in zip(tasks, chances, strict=True):
        lost = rng.random() < LOST
        status = "infra_error" if lost else "resolved" if rng.random() < chance else "unresolved"
        row = {"instance_id": task["instance_id"], "status": status, "outcome": "submitted", "sample": sample}
        grades.append(row)
    return build_report(tasks, grades, policy, "mini")


if __name__ == "__main__":
    run_script(main)
