"""Runs batches of SWE-agent in a container engine, with a policy's model."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swelab.agents import swe_agent
from swelab.agents.swe_agent_program import find_program, run_batch
from swelab.configs.experiment import key_variables
from swelab.configs.kinds.policy import CheckpointPolicy, HostedPolicy
from swelab.configs.kinds.scaffold import SweAgentScaffold
from swelab.models import ServingError
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.gateway import litellm_registry, open_gateway
from swelab.models.chat.open_hosted import open_service
from swelab.models.policy_models import open_endpoint
from swelab.models.serving.server import Endpoint
from swelab.records import Record, write_json
from swelab.records.task_records import Task
from swelab.sandbox import Image
from swelab.sandbox.container_owner import labels
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import find_image
from swelab.sandbox.reap import reap
from swelab.tasks.image_history import start_command, start_files

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
