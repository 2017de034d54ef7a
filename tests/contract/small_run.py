"""A whole experiment in a minute; each stage is the command that its rule runs.

Two scripted policies repair one-line bugs in a small generated package. The weights are really made and
trained.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

RECIPES = {
    "repos/drill.yaml": "{source: drill, seed: 11, modules: 8, functions_per_module: 8}\n",
    "subsets/train.yaml": (
        "{source: drill, repos: [drill], side: train, heldout_share: 0.4, limit: 4, max_per_function: 1,"
        " validate: {gold_runs: 1, together: true}}\n"
    ),
    "subsets/heldout.yaml": (
        "{source: drill, repos: [drill], side: heldout, heldout_share: 0.4, limit: 4, max_per_function: 1,"
        " validate: {gold_runs: 1, together: true}}\n"
    ),
    "policies/expert.yaml": "{kind: scripted, scaffold: demo, seed: 7, shards: 1}\n",
    "policies/weak.yaml": "{kind: scripted, scaffold: demo, seed: 3, give_up: 0.7, shards: 1}\n",
    "models/small.yaml": (
        "{source: drill, repo: drill, heldout_share: 0.4, seed: 0,"
        " train: {steps: 2, batch_size: 2, lr: 0.003, betas: [0.9, 0.98], warmup_steps: 1}}\n"
    ),
    "sft/small.yaml": (
        "{base: small, selection: {max_tokens: 2048}, train: {epochs: 1, batch_size: 2, lr: 1.0e-3}}\n"
    ),
    "experiments/small.yaml": (
        "{expert: {policy: expert, subsets: [train]}, sft: small, policies: [weak, expert],"
        " benchmarks: [heldout], compare: [weak, expert]}\n"
    ),
}


@dataclass(frozen=True)
class Step:
    """A stage: its script with arguments, its output files, and its journal if it has one."""

    script: str
    arguments: str
    outputs: tuple[str, ...]
    journal: str = ""

    @property
    def name(self) -> str:
        """Returns the script's name and its first output."""
        return f"{self.script} {self.outputs[0]}"


def tasks_of(subset: str) -> str:
    return f"--tasks results/tasks/{subset}.kept.json"


def task_steps(subset: str) -> list[Step]:
    made = f"results/tasks/{subset}"
    progress = {rule: f"results/progress/{rule}/{subset}.jsonl" for rule in ("make_tasks", "validate_tasks")}
    return [
        Step("make_tasks", f"--recipe configs/subsets/{subset}.yaml --repos-dir results/repos"
             f" --progress {progress['make_tasks']} --output {made}.json --manifest {made}.manifest.json",
             (f"{made}.json", f"{made}.manifest.json")),
        Step("validate_tasks", f"--tasks {made}.json --recipe configs/subsets/{subset}.yaml"
             f" --repos-dir results/repos --progress {progress['validate_tasks']} --output {made}.lock.json"
             f" --kept {made}.kept.json", (f"{made}.lock.json", f"{made}.kept.json"),
             progress["validate_tasks"]),
    ]  # fmt: skip


def run_steps(policy: str, subset: str) -> list[Step]:
    rollouts, grades = f"results/rollouts/{policy}/{subset}", f"results/grades/{policy}/{subset}"
    shard, named = "000of001.jsonl", f"--policy {policy} --subset {subset}"
    journals = [f"results/progress/{rule}/{policy}/{subset}/{shard}" for rule in ("rollout", "grade")]
    return [
        Step("rollout", f"{tasks_of(subset)} --repos-dir results/repos"
             f" --policy configs/policies/{policy}.yaml --scaffold configs/scaffolds/demo.yaml"
             f" --subset {subset} --progress {journals[0]}"
             f" --output {rollouts}/{shard}", (f"{rollouts}/{shard}",), journals[0]),
        Step("collect_predictions", f"{tasks_of(subset)} --trajectories {rollouts}/{shard}"
             f" --usage {rollouts}/usage.json --output {rollouts}/preds.json",
             (f"{rollouts}/preds.json", f"{rollouts}/usage.json")),
        Step("grade", f"{tasks_of(subset)} --trajectories {rollouts}/{shard} --repos-dir results/repos"
             f" --runs results/progress/runs {named} --progress {journals[1]} --output {grades}/{shard}",
             (f"{grades}/{shard}",), journals[1]),
        Step("report_grades", f"{tasks_of(subset)} --lock results/tasks/{subset}.lock.json"
             f" --grades {grades}/{shard} {named} --output {grades}/report.json", (f"{grades}/report.json",)),
    ]  # fmt: skip


def score_step(policy: str) -> Step:
    made = f"results/scores/{policy}/heldout.json"
    return Step("score", f"{tasks_of('heldout')} --report results/grades/{policy}/heldout/report.json"
                f" --usage results/rollouts/{policy}/heldout/usage.json --policy {policy} --subset heldout"
                f" --output {made}", (made,))  # fmt: skip


SFT = "results/sft/small"
REPO = Step("build_repo", "--recipe configs/repos/drill.yaml --cache results/downloads --output"
            " results/repos/drill.tar --manifest results/repos/drill.json",
            ("results/repos/drill.tar", "results/repos/drill.json"))  # fmt: skip
BASE = "results/models/small"
MODEL = Step("make_base_model", f"--recipe configs/models/small.yaml --repo results/repos/drill.tar --output"
             f" {BASE} --manifest {BASE}.json --loss {BASE}.loss.jsonl",
             (f"{BASE}.json", f"{BASE}.loss.jsonl"))  # fmt: skip
DISJOINT = Step("check_disjoint", "--train results/tasks/train.json --heldout results/tasks/heldout.json"
                " --output results/disjoint/small.json", ("results/disjoint/small.json",))  # fmt: skip
DATASET = Step("build_sft_dataset", "--trajectories results/rollouts/expert/train/000of001.jsonl --grades"
               " results/grades/expert/train/000of001.jsonl --base results/models/small.json --recipe"
               f" configs/sft/small.yaml --dataset {SFT}/dataset.jsonl --manifest {SFT}/dataset.manifest.json"
               f" --lengths {SFT}/dataset.lengths.tsv --stats {SFT}/dataset.stats.json",
               tuple(f"{SFT}/dataset.{name}" for name in ("jsonl", "manifest.json")))  # fmt: skip
PREFLIGHT = Step("preflight", f"--recipe configs/sft/small.yaml --base results/models/small.json --dataset"
                 f" {SFT}/dataset.jsonl --stats {SFT}/dataset.stats.json --progress"
                 f" results/progress/train_sft/small --report {SFT}/preflight.json",
                 (f"{SFT}/preflight.json",))  # fmt: skip
TRAIN = Step("train_sft", f"--dataset {SFT}/dataset.jsonl --base results/models/small.json --recipe"
             " configs/sft/small.yaml --progress results/progress/train_sft/small"
             f" --checkpoint {SFT}/checkpoint --manifest {SFT}/checkpoint.json --loss {SFT}/loss.jsonl"
             f" --preflight {SFT}/preflight.json",
             (f"{SFT}/checkpoint.json", f"{SFT}/loss.jsonl"))  # fmt: skip
SCORE = Step("score_experiment", "--experiment small --compare weak expert --benchmark heldout --scores"
             " results/scores/weak/heldout.json results/scores/expert/heldout.json --also"
             f" results/disjoint/small.json {SFT}/checkpoint.json results/grades/expert/train/report.json"
             " --output results/verified_score.json", ("results/verified_score.json",))  # fmt: skip
REPORT = Step("report", "--experiment small --score results/verified_score.json --output results/report.html",
              ("results/report.html",))  # fmt: skip
STEPS = [
    REPO, *task_steps("train"), *task_steps("heldout"), DISJOINT, MODEL,
    *run_steps("expert", "train"), DATASET, PREFLIGHT, TRAIN,
    *run_steps("weak", "heldout"), *run_steps("expert", "heldout"),
    score_step("weak"), score_step("expert"), SCORE, REPORT,
]  # fmt: skip


def write_recipes(folder: Path) -> None:
    """Writes the recipes of the experiment to `folder`."""
    for name, text in RECIPES.items():
        (folder / "configs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "configs" / name).write_text(text)
    shutil.copytree(ROOT / "configs/scaffolds", folder / "configs/scaffolds")


def run_script(folder: Path, script: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    """Runs one of our scripts in `folder`."""
    options.setdefault("env", os.environ | {"PYTHONPATH": str(ROOT)})
    command = [*options.pop("before", []), sys.executable, "-m", f"scripts.{script}", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **options)


def run_step(folder: Path, step: Step, **options) -> subprocess.CompletedProcess:
    """Runs one stage of the experiment in `folder`."""
    return run_script(folder, step.script, *step.arguments.split(), **options)


def run_all(folder: Path, steps=STEPS) -> None:
    """Runs the whole experiment, or some of its stages, in `folder`."""
    for step in steps:
        done = run_step(folder, step)
        assert done.returncode == 0, f"{step.name}: {done.stderr[-3000:]}"
