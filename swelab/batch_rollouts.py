"""The rollout stage for a scaffold that is a program of its own: a shard is a batch of SWE-agent's.

What the program finished before a kill is taken from its folder by the next run; what it began is done anew;
what it lost (a container, the model) is tried again in a further batch, and then counted apart.
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
from swelab.agents.mini import LOST
from swelab.agents.swe_agent_program import AgentFailed, find_program, hopeless, run_batch, stopped
from swelab.console import Progress
from swelab.journal import Journal
from swelab.models.policy import open_endpoint, weights_digest
from swelab.models.serving import Endpoint
from swelab.recorded import read_recording
from swelab.records import InputError, Record, read_json, shorten, write_json
from swelab.rollouts import lost, rollout_key
from swelab.sandbox import Image
from swelab.sandbox.docker_engine import Engine
from swelab.sandbox.docker_images import find
from swelab.sandbox.owner import labels
from swelab.sandbox.reap import reap
from swelab.shards import in_shard, now
from swelab.tasks.history import start_command, start_files
from swelab.tasks.images import task_images
from swelab.trajectory_files import Broken

ATTEMPTS = 3
UNHEEDED = ("budget_dollars", "rates", "price", "cache_last_messages")
BATCH = "swelab.batch"
"""Label of a batch's containers: they are the engine's children, and outlive a program that is killed."""
_log = logging.getLogger(__name__)


def roll_out_batch(
    tasks: list[Record],
    *,
    policy_name: str,
    policy: Record,
    scaffold: Record,
    subset: str,
    shard: str,
    images_path: Path | None,
    progress: Path,
    workers: int,
) -> Iterator[Record]:
    """Trajectory records of the tasks in `shard`, in their order, by SWE-agent.

    SWE-agent's files lie beside the journal `progress`, in `<shard>.swe-agent/`. Raises InputError (a policy
    that is no model, tasks without an image, no program or another version, a refusal by the service),
    BackendMissing (no engine), ImageMissing, ServingError, AgentFailed (nothing finished).
    """
    if policy["kind"] not in ("hosted", "checkpoint"):
        what = f"a policy of kind {policy['kind']} with a scaffold of SWE-agent"
        raise InputError(what, f"policy {policy_name}", "kind hosted or checkpoint")
    if unheeded := [name for name in UNHEEDED if name in policy]:
        what = f"{', '.join(unheeded)}: SWE-agent calls the service itself and does not know them"
        raise InputError(what, f"policy {policy_name}", "cost_limit in the scaffold, dollars an instance")
    mine, scaffold = in_shard(tasks, shard), swe_agent.with_configuration(scaffold)
    if ours := [task["instance_id"] for task in mine if task.get("repo_recipe")]:
        raise InputError("this task has no image of its own", ours[0], "a task of a published set")
    images, weights = task_images(mine, images_path), weights_digest(policy)
    keys = {
        name: rollout_key(task, policy, scaffold, weights, images[name].digest)
        for name, task in ((task["instance_id"], task) for task in mine)
    }
    with Journal(progress) as journal:
        batch = _Batch(progress.with_suffix(".swe-agent"), keys, journal, len(mine), policy_name, subset)
        batch.prepare(batch.left(mine))
        if todo := batch.left(mine):
            runner = _Runner(policy_name, policy, scaffold, images, progress, workers)
            with runner.opened() as run:
                _attempt(run, batch, todo)
        batch.progress.close()
        for task in mine:
            record = journal.get(keys[task["instance_id"]])
            yield {name: value for name, value in record.items() if name != "journalled"}


def _attempt(
    run: Callable[[list[Record], Callable[[], None]], None], batch: "_Batch", todo: list[Record]
) -> None:
    """Batches of what is left, until nothing is, or ATTEMPTS are over; losses are journalled last.

    `run` works on tasks, and calls what it is given now and then.
    """
    fault: AgentFailed | None = None
    for attempt in range(ATTEMPTS):
        before, fault = len(todo), None
        if attempt:
            batch.prepare(todo)
        try:
            run(todo, partial(batch.take, todo))
        except AgentFailed as failure:
            fault = failure
            _log.warning("%s", failure)
        finally:
            batch.take(todo)
        if reason := stopped(batch.folder):
            raise InputError(f"SWE-agent broke the batch off: {reason}", batch.folder / "run_batch.log")
        todo = batch.left(todo)
        if not todo or (fault and len(todo) == before and not batch.reasons):
            break
    if fault and todo and len(todo) == before and not batch.reasons:
        raise fault
    batch.give_up(todo, str(fault) if fault else "")


class _Batch:
    """A shard's instances: which are finished, and what SWE-agent has left of each in `folder`."""

    def __init__(
        self, folder: Path, keys: Mapping[str, str], journal: Journal, count: int, policy: str, subset: str
    ):
        self.folder, self.keys, self.journal = folder.absolute(), keys, journal
        self.mark = {"policy": policy, "subset": subset}
        self.progress = Progress(count, f"rollout {policy} {subset}")
        self.reasons: dict[str, str] = {}
        finished = [key for key in keys.values() if self._finished(key)]
        good = sum(journal.get(key)["outcome"] == "submitted" for key in finished)
        self.progress.skip(len(finished), good)
        self._kept = self.folder.with_name(f"{self.folder.name}.keys.json")

    def _finished(self, key: str) -> bool:
        return key in self.journal and self.journal.get(key)["outcome"] not in LOST

    def left(self, tasks: list[Record]) -> list[Record]:
        """Those of `tasks` that are not finished."""
        return [task for task in tasks if not self._finished(self.keys[task["instance_id"]])]

    def prepare(self, tasks: list[Record]) -> None:
        """Takes what an earlier run finished; of what was begun, lost or of other settings nothing stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = read_json(self._kept) if self._kept.exists() else {}
        for task in tasks:
            name = task["instance_id"]
            if kept.get(name) != self.keys[name]:
                shutil.rmtree(self.folder / name, ignore_errors=True)
        self.take(tasks)
        for task in self.left(tasks):
            name = task["instance_id"]
            for ending in ("traj", "pred", "patch"):
                (self.folder / name / f"{name}.{ending}").unlink(missing_ok=True)
        for name in ("run_batch.log", "run_batch_exit_statuses.yaml", "preds.json"):
            (self.folder / name).unlink(missing_ok=True)
        write_json(self._kept, kept | {task["instance_id"]: self.keys[task["instance_id"]] for task in tasks})

    def take(self, tasks: list[Record]) -> None:
        """Journals every one of `tasks` that has ended, and notes why others were lost."""
        for task in self.left(tasks):
            name = task["instance_id"]
            path = self.folder / name / f"{name}.traj"
            try:
                if not path.exists():
                    continue
                record = read_recording(path)
            except Broken as broken:  # begun; or cut off by a kill
                self.reasons[name] = str(broken)
                continue
            if record["outcome"] in LOST:
                self.reasons[name] = f"{record['info'].get('exit_status')}: {_last(record)}"
                if why := hopeless(_last(record)):
                    raise InputError(why, path)
                continue
            self.reasons.pop(name, None)
            self._write(record)

    def give_up(self, tasks: list[Record], why: str) -> None:
        """Journals `tasks` as lost, each with what was seen of it."""
        for task in tasks:
            name = task["instance_id"]
            path = self.folder / name / f"{name}.traj"
            try:
                record = read_recording(path)
            except (Broken, OSError):
                reason = self.reasons.get(name) or _uncaught(self.folder, name) or why
                record = lost(task, f"SWE-agent left no finished trajectory: {reason or 'no reason given'}")
            self._write(record)

    def _write(self, record: Record) -> None:
        key = self.keys[record["instance_id"]]
        self.journal.append(record | self.mark | {"key": key, "journalled": now()})
        self.progress.done(record["outcome"] == "submitted")


def _last(record: Record) -> str:
    """What SWE-agent said as it ended a trajectory."""
    said = [str(message["content"]) for message in record["messages"] if message["role"] == "exit"]
    return shorten(said[-1]) if said else "it said nothing"


def _uncaught(folder: Path, name: str) -> str:
    """The last complaint in an instance's log, where it never came to a trajectory; or ''."""
    try:
        text = (folder / name / f"{name}.info.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    said = [line for line in text.splitlines() if "Error" in line or "REFUSED" in line]
    return shorten(said[-1]) if said else ""


@dataclass(frozen=True)
class _Runner:
    """How one policy's batches are run."""

    policy_name: str
    policy: Record
    scaffold: Record
    images: Mapping[str, Image]
    progress: Path
    workers: int

    @contextmanager
    def opened(self) -> Iterator[Callable[[list[Record], Callable[[], None]], None]]:
        """A function that runs a batch of tasks; a checkpoint is served for as long as the block lasts."""
        program, engine = find_program(), Engine()
        reap(engine)
        hosted = self.policy["kind"] == "hosted"
        folder = self.progress.with_suffix(".swe-agent").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with open_endpoint(self.policy, self.policy_name, self.progress.with_suffix(".server.log")) as served:
            if hosted:
                model = swe_agent.hosted_model(self.policy, self.scaffold)
            else:
                model = swe_agent.served_model(served, self.policy, self.scaffold)
                registry = folder.with_name(f"{folder.name}.prices.json")
                write_json(registry, swe_agent.prices(served))
                model["litellm_model_registry"] = str(registry)
            yield lambda tasks, done: self._run(program, engine, folder, model, served, tasks, done)

    def _run(
        self,
        program: str,
        engine: Engine,
        folder: Path,
        model: Record,
        served: Endpoint,
        tasks: list[Record],
        done: Callable[[], None],
    ) -> None:
        marks = labels() | {BATCH: secrets.token_hex(8)}
        instances = []
        for task in tasks:
            image = self.images[task["instance_id"]]
            start = (start_command(task, "{folder}"), start_files(task))
            found = find(engine, image)["Id"]
            instances.append(swe_agent.instance(task, found, image.workdir, start, self.scaffold, marks))
        config = swe_agent.write_run(folder, self.scaffold, model, instances, self.workers)
        try:
            run_batch(
                program,
                config,
                folder,
                secrets={swe_agent.KEY_VARIABLE: served.api_key, "DOCKER_HOST": engine.address},
                stall_seconds=self.scaffold["stall_seconds"],
                alive=served.alive,
                done=done,
                log=folder.with_name(f"{folder.name}.log"),
            )
        finally:
            _clear(engine, marks[BATCH])


def _clear(engine: Engine, batch: str) -> None:
    """Removes the containers that a batch has left."""
    with engine.asked("listing containers"):
        found = engine.api.containers(all=True, filters={"label": f"{BATCH}={batch}"})
    for container in found:
        engine.remove(container["Id"])
