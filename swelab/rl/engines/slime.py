"""Provides our rollouts and grader to slime and Miles, whose flags name functions by their import paths.

    --custom-generate-function-path swelab.rl.engines.slime.generate
    --custom-rm-path swelab.rl.engines.slime.reward_func
    --dynamic-sampling-filter-path swelab.rl.engines.slime.whole_group

Neither program is imported: this module only reads and writes the fields of their samples. `Settings` lists
the environment variables of each process that makes rollouts.
"""

import asyncio
import atexit
import copy
import os
import tempfile
import threading
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.models import ModelLost
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.serving.server import Endpoint
from swelab.models.token_turn import TokenTurn
from swelab.outcomes import LOST_GRADES, LOST_ROLLOUTS, RolloutEnd
from swelab.records import InputError, Record
from swelab.records.task_records import Task
from swelab.rl.managed_model import ManagedModel
from swelab.rl.model_maker import offering
from swelab.rl.rewards import REWARDS
from swelab.rl.rollout_inputs import Reads, open_bench
from swelab.rl.rollouts import Place, RolledOut, RolloutRequest, StepJournal
from swelab.rl.samples import Sample, samples
from swelab.rl.token_model import TokenEngine, TokenModel
from swelab.rl.token_template import TokenTemplate
from swelab.tasks.task_images import task_images
from swelab.tasks.task_rows import read_tasks

ENDED = frozenset({RolloutEnd.SUBMITTED})
"""Ends of a rollout for which slime's status is COMPLETED. The status of a lost rollout is ABORTED, and that
of any other rollout is TRUNCATED."""


@dataclass(frozen=True)
class Settings:
    """Settings of a process, each read from the environment variable in brackets.

    tasks: a subset's tasks (SWELAB_TASKS). repos: the tasks' repository archives (SWELAB_REPOS). scaffold: a
    scaffold recipe (SWELAB_SCAFFOLD). images: a record of pulled images (SWELAB_IMAGES, by default none).
    work: a folder in which grades are kept (SWELAB_WORK, by default a temporary folder). at_once: maximum
    number of concurrent rollouts (SWELAB_AT_ONCE, by default 16). reward: solved, signed or share_of_tests
    (SWELAB_REWARD, by default solved).
    """

    tasks: Path
    repos: Path
    scaffold: Path
    images: Path | None = None
    work: Path | None = None
    at_once: int = 16
    reward: str = "solved"

    @classmethod
    def read(cls) -> Self:
        """Reads the settings. Raises InputError if a variable is missing or has an unusable value."""
        values = {name: os.environ.get(f"SWELAB_{name.upper()}", "") for name in cls.__dataclass_fields__}
        for name in ("tasks", "repos", "scaffold"):
            if not values[name]:
                raise InputError(
                    "not set", f"SWELAB_{name.upper()}", "a path; see docs/rl.md, slime and Miles"
                )
        if values["reward"] and values["reward"] not in REWARDS:
            raise InputError(f"{values['reward']!r}", "SWELAB_REWARD", f"one of {', '.join(REWARDS)}")
        if values["at_once"] and not (values["at_once"].isdigit() and int(values["at_once"])):
            raise InputError(f"{values['at_once']!r}", "SWELAB_AT_ONCE", "a number of at least 1")
        paths = {
            name: Path(values[name])
            for name in ("tasks", "repos", "scaffold", "images", "work")
            if values[name]
        }
        return cls(**paths, at_once=int(values["at_once"] or 16), reward=values["reward"] or "solved")


class ForgetfulJournal(StepJournal):
    """A journal that keeps nothing, because slime restarts an interrupted rollout from its first turn."""

    def __init__(self) -> None:
        pass

    def result(self, request: RolloutRequest) -> RolledOut | None:
        """See `StepJournal`."""
        return None

    def turns(self, request: RolloutRequest) -> list[TokenTurn]:
        """See `StepJournal`."""
        return []

    def _append(self, line: Record) -> None:
        pass


class Stoppable:
    """An engine for one rollout, which stops generating when slime stops the rollout."""

    def __init__(self, engine: TokenEngine, stopped: threading.Event):
        self._engine, self._stopped = engine, stopped

    def generate(self, prompt: Sequence[int], sampling: Record) -> TokenTurn:
        """See `TokenEngine.generate`. Also raises ModelLost if slime aborts the running requests."""
        if not self._stopped.is_set():
            turn = self._engine.generate(prompt, sampling)
            if turn.finish != "abort":
                return turn
            self._stopped.set()
        raise ModelLost("slime has stopped the rollout")


class Workplace:
    """The tasks, sandboxes, grader and threads of a process, which stay open until the process ends."""

    def __init__(self, settings: Settings, stack: ExitStack):
        """Opens the resources. Raises InputError, BackendMissing. stack: closes the resources when the
        process ends."""
        tasks = list(read_tasks(settings.tasks))
        self.tasks = {task.instance_id: task for task in tasks}
        self.scaffold = loop_of(recipes.load(SCAFFOLD, settings.scaffold))
        self.reward, self._settings = REWARDS[settings.reward], settings
        self.work = settings.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="swelab-")))
        reads = Reads(tasks, settings.repos, images=task_images(tasks, settings.images))
        self._bench, self._scratch = stack.enter_context(
            open_bench(reads, self.work, settings.at_once, settings.reward)
        )
        self.threads = stack.enter_context(ThreadPoolExecutor(settings.at_once))

    def task(self, metadata: Record) -> Task:
        """Returns the task whose instance_id is in the metadata of a prompt row. Raises InputError."""
        inner = next(
            (metadata[name] for name in ("instance", "remote_env_info") if name in metadata), metadata
        )
        name = inner.get("instance_id") if isinstance(inner, dict) else None
        if name not in self.tasks:
            raise InputError(f"no task {name}", self._settings.tasks, "a row whose instance_id is in it")
        return self.tasks[name]

    def roll_out(self, args: Namespace, sample: Any, sampling: Record, stopped: threading.Event) -> RolledOut:
        """Makes and grades a rollout with the model servers that `args` names. Raises InputError,
        ServingError."""
        request = RolloutRequest(sample.group_index or 0, sample.index or 0, self.task(sample.metadata))
        make = lambda add_turn, turns: self._model(args, sampling, stopped)  # noqa: E731
        return Place(self._bench, self.scaffold, self._scratch, make).roll_out(request, ForgetfulJournal())

    def _model(self, args: Namespace, sampling: Record, stopped: threading.Event) -> TokenModel:
        url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/v1"
        key = getattr(args, "sglang_api_key", None) or ""
        engine = Stoppable(ServedTokens(Endpoint(url, key, "policy")), stopped)
        given = {name: value for name, value in sampling.items() if value is not None}
        template = offering(template_of(args.hf_checkpoint), self.scaffold)
        common = (engine, template, self.scaffold, given, "policy")
        context = getattr(args, "rollout_max_context_len", None)
        if not context:
            return TokenModel(*common)
        return ManagedModel(*common, budget=context - sampling["max_new_tokens"])


_ONE = threading.Lock()


def workplace() -> Workplace:
    """Returns the workplace of this process, which is made at the first call. Raises InputError,
    BackendMissing."""
    with _ONE:
        return _workplace()


@cache
def _workplace() -> Workplace:
    with ExitStack() as stack:
        made = Workplace(Settings.read(), stack)
        atexit.register(stack.pop_all().close)
        return made
    raise AssertionError("unreachable")


def template_of(checkpoint: str) -> TokenTemplate:
    """Returns the chat template from a checkpoint's folder. Raises InputError."""
    with _ONE:  # transformers cannot be imported by several threads at once
        return _template_of(checkpoint)


@cache
def _template_of(checkpoint: str) -> TokenTemplate:
    return TokenTemplate.of(Path(checkpoint))


async def generate(args: Namespace, sample: Any, sampling_params: Record) -> Any:
    """Fills the sample with a rollout and its reward. Returns the sample, or a list of samples if the rollout
    has several sequences. Raises InputError, ServingError, BackendMissing."""
    place, stopped = await asyncio.to_thread(workplace), threading.Event()
    told = (args, sample, dict(sampling_params), stopped)
    try:
        done = await asyncio.get_running_loop().run_in_executor(place.threads, place.roll_out, *told)
    except asyncio.CancelledError:
        stopped.set()  # the rollout's thread ends before the next turn
        raise
    per_step = bool(getattr(args, "dynamic_history", False))
    return fill(sample, done, per_step, template_of(args.hf_checkpoint), told_reward(args, done, place))


def told_reward(args: Namespace, done: RolledOut, place: Workplace) -> Any:
    """Returns the reward in the form that slime requires: {key: reward, "acc": resolved} if slime's flag
    `--reward-key` gives a key, otherwise the reward alone."""
    reward = 0.0 if is_lost(done) else place.reward(done.grade)
    if not (key := getattr(args, "reward_key", None)):
        return reward
    return {"acc": float(done.grade["resolved"]), key: reward}


def is_lost(done: RolledOut) -> bool:
    """Returns whether the rollout was lost to infrastructure, and so says nothing about the policy."""
    return done.trajectory["outcome"] in LOST_ROLLOUTS or done.grade["status"] in LOST_GRADES


def fill(sample: Any, done: RolledOut, per_step: bool, template: TokenTemplate, reward: Any) -> Any:
    """Fills the sample's fields, which have slime's names.

    Returns the sample, or a list of samples if the rollout has several sequences. A lost rollout, or one
    without sampled tokens, becomes one untrained token, because slime needs a token.
    """
    made = [] if is_lost(done) else samples(done.turns, per_step)
    if not made:
        end = template.turn_end_id
        made = [Sample([end, end], [0, 0], [0.0, 0.0], [-1, -1])]
    found = [sample, *(copy.copy(sample) for _ in made[1:])]
    for each, sequence in zip(found, made, strict=True):
        _fill(each, sequence, done, template, reward)
    return found if len(found) > 1 else sample


def _fill(sample: Any, sequence: Sample, done: RolledOut, template: TokenTemplate, reward: Any) -> None:
    begins = sequence.mask.index(1) if sequence.trained else 1
    sample.tokens = list(sequence.ids)
    sample.response_length = len(sequence.ids) - begins
    sample.response = template.text(sequence.ids[begins:])
    sample.loss_mask = sequence.mask[begins:]
    sample.rollout_log_probs = sequence.logprobs[begins:]
    turns = (done.turns[step] for step in sorted(set(sequence.steps) - {-1}))
    sample.weight_versions = list(dict.fromkeys(version for turn in turns for _, version in turn.versions))
    sample.reward = reward
    sample.remove_sample = not sequence.trained
    facts = {"outcome": done.trajectory["outcome"], "status": done.grade["status"], "seconds": done.seconds}
    patch = {"model_patch": done.trajectory.get("model_patch", ""), "resolved": done.grade["resolved"]}
    sample.metadata = {**sample.metadata, "swelab": facts | patch}
    states = type(sample).Status
    ended = states.COMPLETED if done.trajectory["outcome"] in ENDED else states.TRUNCATED
    sample.status = states.ABORTED if is_lost(done) else ended


async def reward_func(args: Namespace, sample: Any, **_: Any) -> Any:
    """Returns the reward that `generate` stored in the sample. For a list of samples, returns a list of
    rewards."""
    return [each.reward for each in sample] if isinstance(sample, list) else sample.reward


def whole_group(args: Namespace, group: list[Any], **_: Any) -> bool:
    """Returns whether a group is complete, with no lost rollout. The reward of a lost rollout would shift the
    baseline of the other rollouts."""
    flat = [each for entry in group for each in (entry if isinstance(entry, list) else [entry])]
    return not any(each.status is type(each).Status.ABORTED for each in flat)
