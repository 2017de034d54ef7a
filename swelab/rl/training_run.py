"""A recipe's training run: its servers, sandboxes, grader and learner, opened together and ended together."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import torch

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.configs.kinds.policy import Job
from swelab.configs.kinds.rl import Rl
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.grading.grading_stage import Bench
from swelab.grading.run_cache import Archive
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.serving.fleet import Fleet, open_fleet
from swelab.models.serving.server import Endpoint
from swelab.models.token_turn import TokenTurn
from swelab.records import InputError, Record, digest
from swelab.records.task_records import Task
from swelab.rl.failures import Switches
from swelab.rl.learner import Learner, Settings
from swelab.rl.loop import Method, Training
from swelab.rl.losses import Clip, Mismatch
from swelab.rl.managed_model import ManagedModel
from swelab.rl.prompts import Prompts
from swelab.rl.rollouts import Place
from swelab.rl.token_model import TokenModel
from swelab.rl.token_template import TokenTemplate
from swelab.sandbox import Backend, open_backend
from swelab.sandbox.deferred import Deferred
from swelab.sft.train.device import device_of, dtype_of
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.task_images import task_images

STARTUP_SECONDS = 1800


def train_policy(
    recipe: Rl,
    start: Path,
    tasks: Sequence[Task],
    folder: Path,
    repos_dir: Path,
    images_path: Path | None = None,
    told: Callable[[Record], None] = lambda line: None,
) -> Path:
    """Trains from the checkpoint `start` on `tasks`, in `folder`; the last checkpoint.

    What an earlier run of the same recipe finished there stays. Raises InputError, ServingError, NotFinite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(recipe.train.threads)
    method, settings, device = method_of(recipe), settings_of(recipe), device_of(recipe.train)
    scaffold = loop_of(recipes.named(SCAFFOLD, recipe.scaffold))
    images = task_images(list(tasks), images_path)
    with (
        open_servers(recipe, start, folder / "server.log") as (fleet, endpoint),
        scratch_folder() as scratch,
        Deferred(open_backend(), most=recipe.rollouts.at_once) as backend,
    ):
        store = RepoStore(repos_dir, scratch / "repos")
        bench = Bench(store, cast(Backend, backend), images, Archive(folder / "runs"))
        maker = _model_maker(recipe, ServedTokens(endpoint), TokenTemplate.of(start), scaffold)
        training = Training(
            folder,
            start,
            Prompts(tasks, recipe.train.seed, recipe.rollouts.shuffled),
            method,
            Place(bench, scaffold, scratch, maker),
            lambda checkpoint: Learner(checkpoint, settings, device, start),
            fleet.publish,
            recipe.rollouts.at_once,
            told,
        )
        return training.run()


def open_servers(recipe: Rl, start: Path, log: Path) -> AbstractContextManager[tuple[Fleet, Endpoint]]:
    """The servers of the policy, which begin with the weights `start`."""
    asked = recipe.rollouts
    return open_fleet(
        start,
        name="policy",
        job=Job(),
        log=log,
        startup_seconds=STARTUP_SECONDS,
        context_length=asked.context_length,
        max_total_tokens=asked.max_total_tokens or None,
        max_running_requests=asked.at_once,
    )


def run_name(recipe: Rl, start: str, tasks: Sequence[Task]) -> str:
    """Names the folder of a run by all that it depends on but its number of steps, which may grow."""
    used = recipe.plain()
    train = {key: value for key, value in used["train"].items() if key != "steps"}
    return digest([{**used, "train": train}, start, list(tasks)])[:16]


def history_note(template: TokenTemplate) -> str:
    """One line where a policy that is served by text sees another history than it is trained on; else ""."""
    if changed := template.changes_history():
        return (
            "the chat template changes earlier turns; here the policy sees what it sampled, behind a chat"
            f" endpoint it does not: {changed}"
        )
    return ""


def _model_maker(
    recipe: Rl, engine: ServedTokens, template: TokenTemplate, scaffold: MiniLoop
) -> Callable[[Callable[[TokenTurn], None], list[TokenTurn]], TokenModel]:
    asked = recipe.rollouts
    sampling = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "max_tokens": asked.max_tokens,
    }
    common = (engine, template, scaffold, sampling, "policy")
    if asked.history == "whole":
        return lambda told, known: TokenModel(*common, told, known)
    budget = asked.context_length - asked.max_tokens
    return lambda told, known: ManagedModel(*common, told, known, budget=budget, head_share=asked.head_share)


def method_of(recipe: Rl) -> Method:
    """How rollouts become batches. Raises InputError on keys that do not go together."""
    asked, method = recipe.rollouts, recipe.method
    if method.aggregation == "seq-mean-token-sum-norm" and not method.horizon:
        raise InputError("aggregation seq-mean-token-sum-norm without method.horizon", expected="its tokens")
    if asked.max_tokens >= asked.context_length:
        what = f"rollouts.max_tokens {asked.max_tokens}"
        raise InputError(what, expected=f"less than context_length {asked.context_length}")
    failures = method.failures
    return Method(
        steps=recipe.train.steps,
        prompts=asked.prompts,
        samples=asked.samples,
        reward=method.reward,
        advantage=method.advantage,
        aggregation=method.aggregation,
        horizon=method.horizon,
        per_step=method.sequences == "step",
        weigh=method.weigh,
        switches=Switches(
            frozenset(failures.mask), frozenset(failures.leave_baseline), frozenset(failures.drop_group)
        ),
        keep_constant=method.keep_constant,
        refill=method.refill,
        keep_checkpoints=recipe.train.keep_checkpoints,
    )


def settings_of(recipe: Rl) -> Settings:
    """How the learner is set."""
    method, train = recipe.method, recipe.train
    return Settings(
        lr=train.lr,
        temperature=recipe.rollouts.temperature,
        loss=method.loss,
        clip=Clip(method.clip_low, method.clip_high, method.dual_clip),
        mismatch=Mismatch(**method.mismatch.plain()),
        kl=method.kl,
        entropy=method.entropy,
        betas=(train.betas[0], train.betas[1]),
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        warmup=train.warmup_steps,
        minibatches=train.minibatches,
        batch_tokens=train.batch_tokens,
        dtype={"fp32": "float32", "bf16": "bfloat16"}[dtype_of(train)],
        recompute=train.activation_checkpointing,
    )
