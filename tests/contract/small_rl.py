"""A small reinforcement learning run: its recipe, tasks, folder and command."""

import sys
from pathlib import Path

from swelab.records import write_json
from tests.conftest import make_repos, make_task
from tests.toy_checkpoint import make_checkpoint

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """
start: model:toy
subset: some
scaffold: demo
rollouts: {prompts: 2, samples: 2, at_once: 4, max_tokens: 24, context_length: 512, max_total_tokens: 4096}
method: {keep_constant: true, entropy: 0.01}
train: {steps: 3, lr: 1.0e-3, threads: 1, batch_tokens: 2048}
validation: {subset: held, every: 2}
"""


def tasks():
    """Returns two tasks with the same bug."""
    other = {"instance_id": "swelab__calc.00000000.func_pm_op_change__dddd5678", "bug": "2" * 16}
    return [make_task(), make_task() | other]


def held_out_task():
    told = {"instance_id": "swelab__calc.00000000.func_pm_op_change__eeee1234", "bug": "1" * 16}
    return make_task() | told | {"function": "calc/core.py::last"}


def make_place(folder, recipe=RECIPE):
    """Fills a folder with all files that a training reads."""
    make_checkpoint(folder / "toy")
    write_json(folder / "toy.json", {"digest": "0" * 64})
    write_json(folder / "some.json", tasks())
    write_json(folder / "held.json", [held_out_task()])
    make_repos(folder)
    (folder / "small.yaml").write_text(recipe)
    return folder


def command(place, recipe="small.yaml"):
    said = {
        "recipe": place / recipe,
        "start": place / "toy.json",
        "tasks": place / "some.json",
        "repos-dir": place / "repos",
        "progress": place / "work",
        "checkpoint": place / "out/checkpoint",
        "manifest": place / "out/checkpoint.json",
        "held-out-tasks": place / "held.json",
    }
    return [
        sys.executable,
        "-m",
        "scripts.train_rl",
        *(w for k, v in said.items() for w in (f"--{k}", str(v))),
    ]


def journals(place):
    return sorted(place.glob("work/*/rollouts-*.jsonl"))


def started(place):
    return sum(len(path.read_bytes().splitlines()) for path in journals(place))
