"""The rollout stage for SWE-agent, which is a program with its own loop. A shard is one batch of SWE-agent.

After a kill, the next run takes finished instances from the program's folder and restarts unfinished
instances. Instances that were lost (container, model) are tried again in a further batch. If that fails too,
they are counted as lost.
"""

import logging
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swelab.agents import swe_agent
from swelab.agents.swe_agent import AgentFailed, abort_reason, find_program, hopeless, run_batch
from swelab.configs.experiment import key_variables
from swelab.configs.kinds.policy import CheckpointPolicy, HostedPolicy, Policy
from swelab.configs.kinds.scaffold import SweAgentScaffold
from swelab.console.terminal import Progress
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.resumable_run import now
from swelab.jobs.shards import in_shard
from swelab.models import ServingError
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.gateway import litellm_registry, open_gateway
from swelab.models.chat.open_hosted import open_service
from swelab.models.model_values import with_model_values
from swelab.models.policy_models import open_endpoint, weights_digest
from swelab.models.serving.server import Endpoint
from swelab.outcomes import RETRIED_ROLLOUTS, RolloutEnd
from swelab.records import InputError, Record, read_json, shorten, write_json
from swelab.records.attempt_records import Rollout, Trajectory
from swelab.records.task_records import Task
from swelab.rollouts.recorded_trajectories import read_recording
from swelab.rollouts.rollout_stage import lost_rollout, out_of_budget, rollout_key, rollout_losses
from swelab.rollouts.trajectory_files import Broken
from swelab.sandbox import Image
from swelab.sandbox.container_owner import labels
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import find_image
from swelab.sandbox.reap import reap
from swelab.tasks.image_history import start_command, start_files
from swelab.tasks.task_images import task_images

BATCH = "swelab.batch"
"""Label of a batch's containers. It is used to remove the containers, because they outlive a killed
program."""
LastWords = Callable[[], str]


@dataclass(frozen=True)
class Runner:
    """Runs the batches of one policy."""

    policy_name: str
    policy: HostedPolicy | CheckpointPolicy
    scaffold: SweAgentScaffold
    section: Record
    images: Mapping[str, Image]
    progress: Path
    workers: int

    @contextmanager
    def open_batches(self) -> Iterator[tuple[Callable[[list[Task], Callable[[], None]], None], LastWords]]:
        """Yields a function that runs a batch of tasks, and a function that returns why the budget is spent,
        or ''. During the block, a checkpoint is served, or a gateway runs for a hosted model."""
        program, engine = find_program(), DockerEngine()
        reap(engine)
        folder = self.progress.with_suffix(".swe-agent").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with self._model() as (served, model, prices, spent):
            registry = folder.with_name(f"{folder.name}.prices.json")
            write_json(registry, prices)
            section = {**self.section, "model": {**model, "litellm_model_registry": str(registry)}}

            def run(tasks: list[Task], done: Callable[[], None]) -> None:
                try:
                    self._run(program, engine, folder, section, served, tasks, done)
                except ServingError:
                    if not spent():
                        raise

            yield run, spent

    @contextmanager
    def _model(self) -> Iterator[tuple[Endpoint, Record, Record, LastWords]]:
        """Yields (endpoint, section `agent.model`, prices, function that returns why the budget is spent)."""
        if self.policy.kind == "hosted":
            ledger = PaidRun(self.progress.absolute().parent / "paid", str).ledger
            named = (self.policy, self.policy_name, self.scaffold)
            with open_service(*named, ledger) as service, open_gateway(service, self.policy_name) as served:
                model = swe_agent.hosted_model(served, self.policy, self.scaffold)
                yield served, model, litellm_registry(service, self.policy_name), lambda: service.spent
            return
        log = self.progress.with_suffix(".server.log")
        with open_endpoint(self.policy, self.policy_name, log) as served:
            model = swe_agent.served_model(served, self.policy, self.scaffold)
            yield served, model, swe_agent.prices(served), lambda: ""

    def _run(
        self,
        program: str,
        engine: DockerEngine,
        folder: Path,
        section: Record,
        served: Endpoint,
        tasks: list[Task],
        done: Callable[[], None],
    ) -> None:
        marks = labels() | {BATCH: secrets.token_hex(8)}
        instances = []
        for task in tasks:
            image = self.images[task.instance_id]
            start = (start_command(task, "{folder}"), start_files(task))
            found = find_image(engine, image)["Id"]
            instances.append(swe_agent.instance(task, found, image.workdir, start, self.scaffold, marks))
        config = swe_agent.write_run(folder, section, self.scaffold, instances, self.workers)
        try:
            run_batch(
                program,
                config,
                folder,
                secrets={swe_agent.KEY_VARIABLE: served.api_key, "DOCKER_HOST": engine.address},
                hidden=key_variables(self.policy),
                stall_seconds=self.scaffold.stall_seconds,
                alive=served.alive,
                done=done,
                log=folder.with_name(f"{folder.name}.log"),
            )
        finally:
            _clear(engine, marks[BATCH])


def _clear(engine: DockerEngine, batch: str) -> None:
    """Removes the remaining containers of a batch."""
    with engine.request("listing containers"):
        found = engine.api.containers(all=True, filters={"label": f"{BATCH}={batch}"})
    for container in found:
        engine.remove(container["Id"])


ATTEMPTS = 3
_log = logging.getLogger(__name__)


def roll_out_batch(
    tasks: list[Task],
    *,
    policy_name: str,
    policy: Policy,
    scaffold: SweAgentScaffold,
    subset: str,
    shard: str,
    images_path: Path | None,
    progress: Path,
    workers: int,
    losses: Losses[Trajectory] | None = None,
) -> Iterator[Trajectory]:
    """Yields SWE-agent's trajectories of the tasks in `shard`, in order.

    SWE-agent's files are in `<shard>.swe-agent/`, next to the journal `progress`. losses: limits the lost
    rollouts, by default to the policy's `max_lost`. Raises InputError for a policy without a model, a task
    without an image, and a missing program or another version. Raises InputError if the service refuses.
    Raises BackendMissing (no container engine), ImageMissing, ServingError, AgentFailed (nothing finished).
    Raises BudgetSpent (no budget for the remaining tasks), ShardLost (more losses than `losses` allows).
    """
    policy = with_model_values(policy)
    if policy.kind not in ("hosted", "checkpoint"):
        what = f"a policy of kind {policy.kind} with a scaffold of SWE-agent"
        raise InputError(what, f"policy {policy_name}", "kind hosted or checkpoint")
    mine, section = in_shard(tasks, shard), swe_agent.agent_section(scaffold.config)
    if ours := [task.instance_id for task in mine if not task.in_image]:
        raise InputError("this task has no image of its own", ours[0], "a task of a published set")
    images, weights = task_images(mine, images_path), weights_digest(policy)
    used = scaffold.plain() | {"config": section}
    keys = {
        name: rollout_key(task, policy, used, weights, images[name].digest)
        for name, task in ((task.instance_id, task) for task in mine)
    }
    with Journal(progress) as journal:
        batch = _Batch(progress.with_suffix(".swe-agent"), keys, journal, len(mine), policy_name, subset)
        batch.prepare(batch.open_tasks(mine))
        if todo := batch.open_tasks(mine):
            runner = Runner(policy_name, policy, scaffold, section, images, progress, workers)
            with runner.open_batches() as (run, batch.spent):
                _attempt(run, batch, todo)
        batch.progress.close()
        if waiting := batch.open_tasks(mine) if batch.spent() else []:
            raise out_of_budget(batch.spent(), len(waiting), len(mine), policy_name, "finished")
        batch.check(mine, losses or rollout_losses(policy, policy_name))
        for task in mine:
            yield batch.trajectory(keys[task.instance_id])


def _attempt(
    run: Callable[[list[Task], Callable[[], None]], None], batch: "_Batch", todo: list[Task]
) -> None:
    """Runs the unfinished tasks in at most ATTEMPTS batches, and then records the remaining tasks as lost.
    run: runs a batch, and regularly calls its second argument."""
    fault: AgentFailed | None = None
    for attempt in range(ATTEMPTS):
        before, fault = len(todo), None
        if attempt:
            batch.prepare(todo)
        try:
            run(todo, partial(batch.take, todo, running=True))
        except AgentFailed as failure:
            fault = failure
            _log.warning("%s", failure)
        finally:
            batch.take(todo)
        if reason := abort_reason(batch.folder):
            raise InputError(f"SWE-agent broke the batch off: {reason}", batch.folder / "run_batch.log")
        todo = batch.open_tasks(todo)
        if batch.spent():
            return
        if not todo or (fault and len(todo) == before and not batch.reasons):
            break
    if fault and todo and len(todo) == before and not batch.reasons:
        raise fault
    batch.give_up(todo, str(fault) if fault else "")


class _Batch:
    """The instances of a shard: which are finished, and SWE-agent's files of each instance in `folder`."""

    def __init__(
        self, folder: Path, keys: Mapping[str, str], journal: Journal, count: int, policy: str, subset: str
    ):
        self.folder, self.keys, self.journal = folder.absolute(), keys, journal
        self.mark = {"policy": policy, "subset": subset}
        self.progress = Progress(count, f"rollout {policy} {subset}")
        self.reasons: dict[str, str] = {}
        self.spent: Callable[[], str] = lambda: ""
        finished = [key for key in keys.values() if self._is_finished(key)]
        good = sum(self.trajectory(key).outcome == RolloutEnd.SUBMITTED for key in finished)
        self.progress.skip(len(finished), good)
        self._keys = self.folder.with_name(f"{self.folder.name}.keys.json")

    def trajectory(self, key: str) -> Trajectory:
        """Returns the trajectory with this key from the journal."""
        return self.journal.record(key, Trajectory)

    def _is_finished(self, key: str) -> bool:
        return key in self.journal and self.trajectory(key).outcome not in RETRIED_ROLLOUTS

    def open_tasks(self, tasks: list[Task]) -> list[Task]:
        """Returns the unfinished tasks among `tasks`."""
        return [task for task in tasks if not self._is_finished(self.keys[task.instance_id])]

    def prepare(self, tasks: list[Task]) -> None:
        """Records the finished instances of an earlier run, and deletes the files of all other instances.
        These are unfinished or lost, or were made with other settings."""
        self.folder.mkdir(parents=True, exist_ok=True)
        old_keys = read_json(self._keys) if self._keys.exists() else {}
        for task in tasks:
            name = task.instance_id
            if old_keys.get(name) != self.keys[name]:
                shutil.rmtree(self.folder / name, ignore_errors=True)
        self.take(tasks)
        for task in self.open_tasks(tasks):
            name = task.instance_id
            for ending in ("traj", "pred", "patch"):
                (self.folder / name / f"{name}.{ending}").unlink(missing_ok=True)
        for name in ("run_batch.log", "run_batch_exit_statuses.yaml", "preds.json"):
            (self.folder / name).unlink(missing_ok=True)
        write_json(self._keys, old_keys | {task.instance_id: self.keys[task.instance_id] for task in tasks})

    def take(self, tasks: list[Task], running: bool = False) -> None:
        """Adds those of `tasks` to the journal that have ended, and notes why lost tasks were lost.

        While SWE-agent is `running`, only a task with a prediction has ended, because SWE-agent writes the
        prediction last.
        """
        for task in self.open_tasks(tasks):
            name = task.instance_id
            path = self.folder / name / f"{name}.traj"
            try:
                if not path.exists():
                    continue
                record = read_recording(path)
            except Broken as broken:  # still running, or killed
                self.reasons[name] = str(broken)
                continue
            if record.outcome in RETRIED_ROLLOUTS:
                self.reasons[name] = f"{record.info.get('exit_status')}: {_last(record)}"
                if not self.spent() and (why := hopeless(_last(record))):
                    raise InputError(why, path)
                continue
            if running and not path.with_suffix(".pred").exists():
                continue
            self.reasons.pop(name, None)
            self._write(record)

    def give_up(self, tasks: list[Task], why: str) -> None:
        """Records `tasks` as lost, each with the reason in its files, or else with the reason `why`."""
        for task in tasks:
            name = task.instance_id
            path = self.folder / name / f"{name}.traj"
            try:
                record = read_recording(path)
                record.info.setdefault("reason", self.reasons.get(name) or why)
            except (Broken, OSError):
                reason = self.reasons.get(name) or _uncaught(self.folder, name) or why
                record = lost_rollout(
                    task, f"SWE-agent left no finished trajectory: {reason or 'no reason given'}"
                )
            self._write(record)

    def check(self, tasks: list[Task], losses: Losses[Trajectory]) -> None:
        """Raises ShardLost if too many of `tasks` were lost. All `tasks` must be in the journal."""
        for task in tasks:
            record = self.trajectory(self.keys[task.instance_id])
            losses.note(record, record.outcome in (*RETRIED_ROLLOUTS, RolloutEnd.MODEL_REFUSED))
        losses.check(len(tasks))

    def _write(self, record: Rollout) -> None:
        key = self.keys[record.instance_id]
        self.journal.append(record | self.mark | {"key": key, "journalled": now()})
        self.progress.done(record.outcome == RolloutEnd.SUBMITTED)


def _last(record: Rollout) -> str:
    """Returns SWE-agent's message at the end of a trajectory."""
    said = [str(message.content) for message in record.messages if message.role == "exit"]
    return shorten(said[-1]) if said else "it said nothing"


def _uncaught(folder: Path, name: str) -> str:
    """Returns the last error in the log of an instance without a trajectory, or ''."""
    try:
        text = (folder / name / f"{name}.info.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    said = [line for line in text.splitlines() if "Error" in line or "REFUSED" in line]
    return shorten(said[-1]) if said else ""
