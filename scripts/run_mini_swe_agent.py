"""Runs the program mini-swe-agent on a benchmark against a server of ours, or merges slices of such runs.

.venv/bin/python -m scripts.run_mini_swe_agent --sglang-url http://host:30000 --data rows.jsonl --output mine
.venv/bin/python -m scripts.run_mini_swe_agent --merge mine other --data rows.jsonl --output preds.json
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.evaluation.benchmark_rows import Source, read_benchmark
from swelab.outcomes import RETRIED_ROLLOUTS
from swelab.records import Fault, write_json
from swelab.rollouts.mini_program import Program, merge_slices, run

CONFIG = Path(__file__).resolve().parents[1] / "swe-rl/configs/minisweagent_sglang_swebench.yaml"
PACKAGED = "swebench_backticks.yaml"


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    add = (parser := argparse.ArgumentParser(description=__doc__, formatter_class=form)).add_argument
    add("--data", required=True, help="JSON list, JSON Lines, Parquet, or owner/set[@commit] on the hub")
    add("--split", default="test", help="split of a set on the hub")
    add("--output", type=Path, required=True, help="folder of the run; for --merge the file to write")
    add("--merge", type=Path, nargs="+", default=[], help="folders of slices to merge into one file")
    add("--sglang-url", default="", help="address of the server; OPENAI_API_KEY has its token")
    add("--model", default="default", help="name of the model at the server")
    add("--workers", type=at_least(1), default=1, help="number of instances at once")
    add("--slice", default="", help="range of the tasks, start:stop as in Python")
    add("--filter", default="", help="regular expression that must match at the start of an instance id")
    add("--config", default=str(CONFIG), help="configuration that overrides the package's own")
    add("--environment", choices=["sandbox", "docker"], default="sandbox", help="environment of the commands")
    add("--repos-dir", type=Path, default=Path("results/repos"), help="archives of tasks that swelab made")
    add("--images", type=Path, help="record of pulled images, for sandboxes")
    add("--python", default=sys.executable, help="Python that has mini-swe-agent")
    args = parser.parse_args()
    benchmark = read_benchmark(Source(args.data, args.split))
    print("".join(f"rows: {told}\n" for told in benchmark.reasons()), end="", file=sys.stderr)
    tasks = benchmark.tasks
    if args.merge:
        found = merge_slices(args.merge, [task.instance_id for task in tasks])
        write_json(args.output, found)
        print(f"{args.output}: {len(found)} predictions of {len(args.merge)} slices")
        return
    given = {"workers": args.workers, "part": args.slice, "pattern": args.filter, "python": args.python}
    given |= {"repos": args.repos_dir, "images": args.images, "sandboxes": args.environment == "sandbox"}
    config = (PACKAGED, args.config)
    ends = run(Program(args.sglang_url, args.model, args.output, config, **given), tasks)
    counts = Counter(map(str, ends.values())).most_common()
    print(f"{args.output / 'preds.json'}: " + ", ".join(f"{count} {end}" for end, count in counts))
    if lost := [name for name, end in ends.items() if end in RETRIED_ROLLOUTS]:
        raise Fault(f"{len(lost)} attempts were lost, such as {lost[0]}; the same command tries them again")


if __name__ == "__main__":
    run_script(main)
