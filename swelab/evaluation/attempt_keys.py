"""Lists the attempts of an evaluation, and computes their keys. A key depends on everything that affects the
attempt."""

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
    """One attempt at a task. sample: index of the attempt among the attempts at this task. key: the rollout's
    key. result_key: the verdict's key, which also depends on the witness evidence."""

    task: Task
    sample: int
    key: str
    result_key: str

    @property
    def name(self) -> str:
        """The attempt's name on the terminal: the task's id. The suffix `#sample` is added if `sample` is not
        0."""
        return f"{self.instance_id}#{self.sample}" if self.sample else self.instance_id

    @property
    def instance_id(self) -> str:
        """The task's id, under which durations are recorded."""
        return self.task.instance_id


@dataclass
class Keys:
    """Computes the keys of rollouts and verdicts, and finds the paid turns of each sample."""

    plan: Plan
    images: Mapping[str, Image]
    store: RepoStore
    witnesses: Witnesses

    def items(self, tasks: Sequence[Task]) -> list[Item]:
        """Returns all attempts: first sample 0 of every task in the tasks' order, then sample 1, and so on.
        Raises InputError if a repository archive does not exist."""
        found = []
        for sample in range(self.plan.samples):
            for task in tasks:
                key, witness = self.of(task, sample), self.witnesses.digest(task.instance_id)
                found.append(Item(task, sample, key, digest([key, witness]) if witness else key))
        return found

    @cached_property
    def settings(self) -> Record:
        """All settings of the scaffold as plain values."""
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
        """Maps instance ids to the repairs that the recipe of a scripted policy names."""
        return read_repairs(self.plan.policy)

    def of(self, task: Task, sample: int) -> str:
        """Returns a hash of everything that affects an attempt's rollout. Raises InputError if the task's
        repository archive does not exist."""
        image = self.images.get(task.instance_id)
        place = image.digest if image else self.store.digest(task)
        policy = of_sample(self.plan.policy, sample)
        key = rollout_key(with_repair(task, self.repairs), policy, self.settings, self.weights, place)
        return digest([key, sample]) if sample else key

    def paid_run(self, sample: int) -> PaidRun:
        """Returns the paid turns of one sample. All samples share one ledger."""
        return PaidRun(self.plan.paid, lambda task: self.of(task, sample))
