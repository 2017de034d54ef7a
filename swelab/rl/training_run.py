"""Runs the training that a recipe describes. Opens the servers, sandboxes, grader and learner, and closes all
of them at the end."""

import os
import shutil
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import torch

from swelab.configs import recipes
from swelab.configs.experiment import learning_slice, rollout_slice, scaffold_slice
from swelab.configs.kinds import SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.files.weights import manifest_digest
from swelab.models.model_values import load_named_policy
from swelab.models.policy_models import folder_digest, weights_digest
from swelab.models.serving.fleet import Fleet, open_fleet
from swelab.models.serving.server import Endpoint
from swelab.records import InputError, digest, write_bytes
from swelab.rl.artifacts import Artifacts
from swelab.rl.engines.verl_export import newest_step
from swelab.rl.engines.verl_run import train_on_verl
from swelab.rl.learner import STATE, Learner, Trainee
from swelab.rl.loop import Training, finished_steps
from swelab.rl.machine_check import stop_unless_fit
from swelab.rl.places import MakePlace, open_places
from swelab.rl.prompts import Prompts, check_tasks
from swelab.rl.rank_process import LearnerArguments
from swelab.rl.ranked_learner import RankedLearner
from swelab.rl.rollout_inputs import Reads, validation_name
from swelab.rl.step_reports import Reports
from swelab.rl.token_template import TokenTemplate
from swelab.rl.validating import Validation
from swelab.sft.train.device import device_of
from swelab.sft.train.tensorboard_wandb import BOARD
from swelab.sft.train.training import put_in_place

STARTUP_SECONDS = 1800
ROLLOUTS = "rollouts"
FIGURES = ("metrics.jsonl", "validation.jsonl")
FOLDERS = (ROLLOUTS, BOARD)


def train_policy(recipe: Rl, start: Path, reads: Reads, folder: Path, reports: Reports | None = None) -> Path:
    """Trains the checkpoint `start`, writes all files to `folder`, and returns the last checkpoint.

    Uses the finished work of an earlier run of the recipe. Starts nothing if the recipe does not fit this
    machine, or if that run has finished more steps than the recipe has. Raises Fault, InputError,
    ServingError, NotFinite.
    """
    check_steps(recipe, folder)
    folder.mkdir(parents=True, exist_ok=True)
    if recipe.engine == "verl":
        return train_on_verl(recipe, start, reads, folder, reports)
    check_tasks(recipe, reads.tasks, reads.held_out)
    stop_unless_fit(recipe, start)
    recipes.load_named(SCAFFOLD, recipe.scaffold)  # a missing recipe ends the run before engines start
    torch.set_num_threads(recipe.train.threads)
    with (
        open_servers(recipe, start, folder / "server.log") as (fleet, endpoint),
        open_places(recipe, start, reads, folder, endpoint) as (place, engine),
        ExitStack() as ranks,
    ):
        training = Training(
            folder,
            start,
            Prompts(reads.tasks, recipe.train.seed, recipe.rollouts.shuffled),
            recipe,
            place(recipe.rollouts.temperature, True),
            lambda checkpoint: open_learner(recipe, checkpoint, start, folder / "ranks.log", ranks),
            partial(fleet.publish, in_turns=recipe.rollouts.update == "in_turns"),
            reports,
            validation_of(recipe, reads, place),
            Artifacts(folder / ROLLOUTS, recipe).write,
            engine,
        )
        return training.run()


def check_steps(recipe: Rl, folder: Path) -> None:
    """Raises InputError if the run in `folder` has finished more steps than the recipe has. Its weights were
    trained longer than the recipe says."""
    steps, done = recipe.train.steps, max(finished_steps(folder), newest_step(folder / "verl"))
    if done > steps:
        what = f"train.steps is {steps}, and this run of the recipe has finished {done} steps"
        raise InputError(what, folder, f"steps of at least {done}, or a recipe of another name")


def open_learner(recipe: Rl, checkpoint: Path, start: Path, log: Path, ranks: ExitStack) -> Trainee:
    """Opens the learner on a checkpoint, in this process or in several processes.

    start: checkpoint from which the divergence is measured. log: log file of the processes. ranks: stack that
    closes the processes. Raises InputError, RankLost.
    """
    train, device = recipe.train, device_of(recipe.train)
    if train.ranks == 1:
        return Learner(checkpoint, recipe, device, start)
    opened = LearnerArguments(checkpoint, recipe, start)
    return ranks.enter_context(RankedLearner(opened, train.ranks, train.threads, device, log))


def validation_of(recipe: Rl, reads: Reads, place: MakePlace) -> Validation | None:
    """Returns the validation that measures progress, or None if the recipe has none or there are no tasks."""
    asked = recipe.validation
    if not asked or not reads.held_out:
        return None
    tasks = reads.held_out[: asked.limit or None]
    return Validation(validation_name(asked, reads), tasks, asked.every, place(asked.temperature, False))


def open_servers(recipe: Rl, start: Path, log: Path) -> AbstractContextManager[tuple[Fleet, Endpoint]]:
    """Opens the policy's servers with the weights `start`."""
    rollouts = recipe.rollouts
    return open_fleet(
        start,
        name="policy",
        job=recipe.job,
        log=log,
        startup_seconds=STARTUP_SECONDS,
        context_length=rollouts.context_length,
        max_total_tokens=rollouts.max_total_tokens or None,
        max_running_requests=rollouts.at_once,
        host=recipe.listen,
    )


def run_name(recipe: Rl, start: str, reads: Reads) -> str:
    """Returns the name of a run's folder, a digest of everything that the weights depend on: the recipes, the
    start weights, the tasks, and the images, repositories and witnesses behind them.

    The numbers of steps and ranks are excluded, so that a resumed run can change them. The number of ranks
    affects only the order in which values are summed.
    """
    used = {key: value for key, value in learning_slice(recipe).items() if key != "validation"}
    scaffold = scaffold_slice(recipes.load_named(SCAFFOLD, recipe.scaffold))
    train = {key: value for key, value in used["train"].items() if key not in ("steps", "ranks")}
    judge = load_named_policy(recipe.judge.policy) if recipe.judge else None
    judged = [rollout_slice(judge), weights_digest(judge)] if judge else []
    tasks = [list(reads.tasks), reads.files_behind(reads.tasks)]
    return digest([{**used, "train": train}, start, *tasks, scaffold, *judged])[:16]


def read_start(path: Path) -> tuple[Path, str]:
    """Returns (folder, digest) of the weights from which a training starts. path: their manifest, or their
    folder if they have no manifest. Raises InputError."""
    if path.is_dir():
        return path, folder_digest(path)
    return path.with_suffix(""), manifest_digest(path)


def hand_over(last: Path, work: Path, checkpoint: Path) -> None:
    """Copies the results of a training run to the paths that its rule declares, and replaces earlier results.

    The learner's state is excluded from `checkpoint`. Figures, validations and rollouts are placed next to
    `checkpoint`.
    """
    staged = work / "staged"
    shutil.rmtree(staged, ignore_errors=True)
    shutil.copytree(last, staged / "checkpoint", ignore=shutil.ignore_patterns(STATE))
    for name in FOLDERS:
        (work / name).mkdir(exist_ok=True)
        shutil.copytree(work / name, staged / name, copy_function=os.link)
    for name in ("checkpoint", *FOLDERS):
        put_in_place(staged / name, checkpoint.with_name(name), work / "replaced")
    for name in FIGURES:
        write_bytes(checkpoint.with_name(name), (work / name).read_bytes())


def history_note(template: TokenTemplate) -> str:
    """Returns a warning if the template changes earlier turns, otherwise "". A policy behind a chat endpoint
    would then see a different history than in training."""
    if changed := template.changes_history():
        return (
            "the chat template changes earlier turns; here the policy sees what it sampled, behind a chat"
            f" endpoint it does not: {changed}"
        )
    return ""
