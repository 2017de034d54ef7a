"""The attempts of an evaluation: a task, the number of the sample, and keys of all that the attempt depends
on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from swelab.agents.agent import loop_of
from swelab.configs.experiment import scaffold_slice
from swelab.configs.kinds.scaffold import SweAgentScaffold
from swelab.evaluation.evaluation_plan import Plan
from swelab.grading.witness_store import Witnesses
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.scripted import read_repairs, with_repair
from swelab.models.policy_models import of_sample, weights_digest
from swelab.records import Record, digest
from swelab.records.task_records import Task
from swelab.rollouts.rollout_stage import rollout_key
from swelab.sandbox import Image
from swelab.tasks.checkout import RepoStore


@dataclass(frozen=True)
class Item:
    """One attempt: a task, and the number of the sample.

    key: the key of its rollout. result_key: the key of its verdict, which also depends on the witness.
    """

    task: Task
    sample: int
    key: str
    result_key: str

    @property
    def name(self) -> str:
        """The attempt's name on the terminal: the task's id, with `#sample` from the second sample on."""
        return f"{self.instance_id}#{self.sample}" if self.sample else self.instance_id

    @property
    def instance_id(self) -> str:
        """The task's id, under which durations are recorded."""
        return self.task.instance_id


@dataclass
class Keys:
    """Makes the keys of rollouts and verdicts, and finds the paid turns."""

    plan: Plan
    images: Mapping[str, Image]
    store: RepoStore
    witnesses: Witnesses

    def items(self, tasks: Sequence[Task]) -> list[Item]:
        """The attempts, sample by sample in the tasks' order. Raises InputError (no such archive)."""
        found = []
        for sample in range(self.plan.samples):
            for task in tasks:
                key, witness = self.of(task, sample), self.witnesses.digest(task.instance_id)
                found.append(Item(task, sample, key, digest([key, witness]) if witness else key))
        return found

    @cached_property
    def settings(self) -> Record:
        """Every setting of the scaffold, as plain values."""
        scaffold = self.plan.scaffold
        if isinstance(scaffold, SweAgentScaffold):
            return scaffold_slice(scaffold)
        return loop_of(scaffold).plain()

    @cached_property
    def weights(self) -> str:
        """Digest of the policy's weights."""
        return weights_digest(self.plan.policy)

    @cached_property
    def repairs(self) -> Mapping[str, str]:
        """The repairs that a scripted policy's recipe names, by instance id."""
        return read_repairs(self.plan.policy)

    def of(self, task: Task, sample: int) -> str:
        """Hash of everything that an attempt's rollout depends on. Raises InputError (no such archive)."""
        image = self.images.get(task.instance_id)
        place = image.digest if image else self.store.digest(task)
        policy = of_sample(self.plan.policy, sample)
        key = rollout_key(with_repair(task, self.repairs), policy, self.settings, self.weights, place)
        return digest([key, sample]) if sample else key

    def paid(self, sample: int) -> PaidRun:
        """The paid turns of a sample. All samples share one ledger."""
        return PaidRun(self.plan.paid, lambda task: self.of(task, sample))
