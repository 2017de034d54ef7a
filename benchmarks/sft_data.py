"""Converts folders of trajectories to training rows, with our program and with swesmith's collect_trajs.

    .venv/bin/python -m benchmarks.sft_data --swesmith-python ENV/bin/python [--trajectories 1000]

Writes resolved trajectories in the form of SWE-agent 1.1 to a temporary folder. Each has 30 turns, and about
1.6 MB because each step repeats the conversation before it. swesmith 0.0.9 needs an environment of its own
(envs/peer.txt). The files are in the page cache. All programs are timed with their imports. They take turns,
and the best repeat counts. `compat` writes the same rows as swesmith, which are compared. `whole` writes the
conversations of resolved runs. Prints a table, then ratio_vs_swesmith=... . Exit code 1 if a row differs.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from swelab.console.terminal import run_script
from swelab.records import Record

ROW = "{:<28} {:>9} {:>9} {:>9} {:>12} {:>9}"
PROMPT = "agent:\n  templates:\n    system_template: |-\n      You fix bugs by calling functions.\n"
REFERENCE = Path(__file__).with_name("reference_collect.py")
TURNS = 30
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Side:
    """A program, and the seconds of its runs. peak_mb: peak memory of the largest process."""

    name: str
    command: list[str]
    output: Path
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    def run(self, folder: Path) -> None:
        """Runs the program once, in the working folder `folder`."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(self.command, cwd=folder, env=environment, capture_output=True, text=True)
        self.seconds.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode:
            sys.exit(f"{self.name} ended with status {done.returncode}: {done.stderr[-2000:]}")
        self.peak_mb = max(self.peak_mb, peak_mb(done.stdout))

    def show(self, rows: int) -> None:
        """Prints the program's line of the table."""
        best = min(self.seconds)
        spread = f"{best:.2f}", f"{max(self.seconds):.2f}"
        print(
            ROW.format(
                self.name, *spread, f"{min(self.cpu):.2f}", f"{rows / best:.0f}", f"{self.peak_mb:.0f}"
            )
        )


def peak_mb(printed: str) -> float:
    """Returns the peak memory from a program's last output line, which is JSON."""
    lines = printed.strip().splitlines()
    return json.loads(lines[-1])["peak_mb"]


def sides(args: argparse.Namespace, folder: Path) -> list[Side]:
    """Returns the programs to compare."""
    flags = ["--traj-dir", "trajs", "--eval-dir", "eval", "--workers"]
    peer = [
        args.swesmith_python,
        str(REFERENCE),
        "--system-prompt",
        "infer.yaml",
        "--out-dir",
        "theirs",
        *flags,
    ]
    own = [sys.executable, "-m", "benchmarks.sft_data", "--ours", "-t", "trajs", "-e", "eval"]
    own += ["--system-prompt", "infer.yaml", "-o"]
    two = ["-w", str(args.workers)]
    return [
        Side("swesmith, 6 threads", [*peer, "6"], folder / "theirs/eval.xml.jsonl"),
        Side("swesmith, 1 thread", [*peer, "1"], folder / "theirs/eval.xml.jsonl"),
        Side(
            f"ours, compat, {args.workers} processes",
            [*own, "ours", "--compat", *two],
            folder / "ours/eval.xml.jsonl",
        ),
        Side(
            f"ours, whole, {args.workers} processes", [*own, "whole", *two], folder / "whole/eval.xml.jsonl"
        ),
        Side("ours, compat, 1 process", [*own, "one", "--compat", "-w", "1"], folder / "one/eval.xml.jsonl"),
    ]


def ours() -> None:
    """Runs scripts.collect_trajs with the remaining arguments, and prints its peak memory."""
    from scripts import collect_trajs

    sys.argv.remove("--ours")
    collect_trajs.main()
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    print(json.dumps({"peak_mb": max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024}))


def write_trajectories(folder: Path, count: int, size: int) -> None:
    """Writes `count` trajectories and reports. size: length of their text, in per cent of about 1.6 MB."""
    (folder / "infer.yaml").write_text(PROMPT)
    for name in ("trajs", "eval", "theirs"):
        (folder / name).mkdir()
    with multiprocessing.Pool(min(os.cpu_count() or 1, 8)) as pool:
        pool.starmap(_write, [(folder, number, size) for number in range(count)], chunksize=8)


def _write(folder: Path, number: int, size: int) -> None:
    name = f"owner__pack.0123abcd.func_pm__{number:06d}"
    draw = random.Random(number)
    words = ["".join(draw.choices("abcdefghijklmnop_", k=draw.randint(2, 9))) for _ in range(400)]

    def text(length: int) -> str:
        glue = ["\n", '"', "\t", "    ", " \\n", " ", " ", " ", " ", " "]
        return "".join(
            draw.choice(words) + draw.choice(glue) for _ in range(max(1, length * size // 100 // 8))
        )

    for kind, ending, content in (
        ("trajs", f"{name}.traj", json.dumps(_trajectory(text), indent=2)),
        ("trajs", f"{name}.patch", text(800)),
        ("eval", "report.json", json.dumps({"patch_exists": True, "resolved": True})),
    ):
        (folder / kind / name).mkdir(exist_ok=True)
        (folder / kind / name / ending).write_text(content)


def _trajectory(text: Callable[[int], str]) -> Record:
    def observation(role: str, length: int, **more: object) -> Record:
        content = [{"type": "text", "text": text(length)}]
        return {"role": role, "content": content, "agent": "main", "message_type": "observation", **more}

    system = {"role": "system", "content": text(1500), "agent": "main", "message_type": "system_prompt"}
    history: list[Record] = [system, observation("user", 3000)]
    steps = []
    for number in range(TURNS):
        last = number == TURNS - 1
        thought, command, call = text(300), text(350), f"call_{number}"
        function = {"name": "submit" if last else "bash"}
        function["arguments"] = "{}" if last else json.dumps({"command": command})
        action = {"action": command, "thought": thought}
        spoken = {
            "role": "assistant",
            "content": thought,
            **action,
            "agent": "main",
            "message_type": "action",
        }
        spoken |= {"tool_calls": [{"function": function, "id": call, "type": "function"}]}
        step = {**action, "observation": text(1300), "response": thought, "query": list(history)}
        step |= {"execution_time": 0.5, "state": {"open_file": "n/a"}, "extra_info": {}}
        steps.append(step)
        history += [spoken, observation("tool", 1300, tool_call_ids=[call])]
    info = {"exit_status": "submitted", "submission": text(800), "model_stats": {"api_calls": TURNS}}
    replay = json.dumps({"agent": {"model": {"name": "expert"}}})
    whole = {"trajectory": steps, "history": history, "info": info, "replay_config": replay}
    return {**whole, "environment": "main"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swesmith-python", required=True, help="interpreter that has swesmith 0.0.9")
    parser.add_argument("--trajectories", type=int, default=1000)
    parser.add_argument("--size", type=int, default=100, help="per cent of 1.6 MB each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="processes of ours")
    args = parser.parse_args()
    args.swesmith_python = str(Path(args.swesmith_python).absolute())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trajectories(folder, args.trajectories, args.size)
        total = sum(path.stat().st_size for path in folder.glob("trajs/*/*.traj"))
        print(f"{args.trajectories} trajectories of {total / args.trajectories / 1e6:.2f} MB", flush=True)
        programs = sides(args, folder)
        for _ in range(args.repeats):
            for side in programs:
                side.run(folder)
        rows = [
            sorted(side.output.read_bytes().splitlines()) for side in (programs[0], programs[2], programs[3])
        ]
    print(ROW.format("", "best s", "worst s", "CPU s", "rows/s", "peak MB"))
    for side in programs:
        side.show(args.trajectories)
    best = min(min(side.seconds) for side in programs[:2])
    for ratio, side in (("ratio_vs_swesmith", programs[2]), ("ratio_vs_swesmith_whole", programs[3])):
        print(f"{ratio}={best / min(side.seconds):.2f}")
    same = rows[0] == rows[1] and len(rows[2]) == args.trajectories
    print(f"{len(rows[0])} rows, {'the same bytes' if same else 'DIFFERENT'} but for their order")
    return 0 if same else 1


if __name__ == "__main__":
    run_script(ours if "--ours" in sys.argv else main)
