"""The processes (ranks) that train one model together: their number, shares of a step, and command line.

On one node, torchrun starts the processes. On several nodes, srun starts a torchrun on each node of the SLURM
job, and these connect to a port of the first node.
"""

import math
import os
import sys
from dataclasses import dataclass
from shlex import join

from swelab.cluster import slurm
from swelab.configs.kinds.sft import Sft, Train
from swelab.models.serving.server import free_port
from swelab.records import InputError
from swelab.records.typed import TypedRecord, field

PROCESS = "swelab.sft.train.torchtune_worker"


@dataclass(frozen=True)
class Ranks:
    """`nodes` × `per_node` processes. Each process has a GPU, or `threads` CPUs."""

    nodes: int
    per_node: int
    gpus: int
    threads: int

    @property
    def total(self) -> int:
        """Number of processes on all nodes."""
        return self.nodes * self.per_node


def ranks_of(recipe: Sft) -> Ranks:
    """Returns the processes that an SFT recipe requests: one per GPU, else `job.ranks` per node."""
    job = recipe.job
    return Ranks(job.nodes, job.gpus or job.ranks, job.gpus, recipe.train.threads)


def sharing(recipe: Sft) -> int:
    """Returns the number of processes that share the weights, or 1 if each process holds all weights."""
    return ranks_of(recipe).total if recipe.train.sharded else 1


class Share(TypedRecord):
    """One rank's share of an optimizer step."""

    batch_size: int = field("number of conversations per forward pass")
    gradient_accumulation_steps: int = field("number of forward passes per optimizer step")


def share(train: Train, ranks: Ranks) -> Share:
    """Returns one rank's share of a step. All ranks together process the conversations of the recipe's step.
    Raises InputError if they cannot be divided evenly, or if `optimizer_in_bwd` would need accumulation."""
    step = train.batch_size * train.gradient_accumulation_steps
    if step % ranks.total:
        what = f"a step of {step} conversations (batch_size × gradient_accumulation_steps)"
        raise InputError(f"{what} on {ranks.total} ranks", expected=f"a multiple of {ranks.total}")
    mine = step // ranks.total
    if train.optimizer_in_bwd and mine != math.gcd(mine, train.batch_size):
        what = f"train.optimizer_in_bwd with {step} conversations a step on {ranks.total} ranks"
        raise InputError(what, expected="no accumulation on any rank")
    batch = math.gcd(mine, train.batch_size)
    return Share(batch_size=batch, gradient_accumulation_steps=mine // batch)


def recipe_of(recipe: Sft) -> str:
    """Returns the name of the torchtune recipe that runs an SFT recipe.

    Several processes need torchtune's distributed recipe. `optimizer_in_bwd` needs it, too, because the
    single-device recipe of torchtune 0.6 does not scale its gradients. Raises InputError if the recipe does
    not support the settings `lora`, `dpo` or `optimizer_in_bwd`, or if it requires one that is not set.
    """
    name, train = recipe.recipe, recipe.train
    kind = name.removesuffix("_single_device").removesuffix("_distributed")
    for setting, given, needs in (("lora", train.lora, "lora_finetune"), ("dpo", train.dpo, "full_dpo")):
        if bool(given) != (kind == needs):
            what = f"train.{setting} is {'set' if given else 'not set'}, and recipe is {name}"
            raise InputError(what, expected=f"train.{setting} with {needs}_..., and nowhere else")
    if train.optimizer_in_bwd:
        _check_optimizer_in_bwd(kind, train)
        return f"{kind}_distributed"
    return f"{kind}_distributed" if ranks_of(recipe).total > 1 else name


def _check_optimizer_in_bwd(kind: str, train: Train) -> None:
    """Raises InputError for settings that torchtune does not support together with `optimizer_in_bwd`."""
    if kind != "full_finetune":
        raise InputError(f"train.optimizer_in_bwd with recipe {kind}_...", expected="full_finetune_...")
    if train.clip_grad_norm is not None:
        raise InputError("train.optimizer_in_bwd with clip_grad_norm", expected="clip_grad_norm: null")


def command(ranks: Ranks, recipe: str, arguments: list[str]) -> list[str]:
    """Returns the command line that trains with torchtune's `recipe`. Raises InputError, SlurmError."""
    alone = ranks.total == 1 and not recipe.endswith("_distributed")
    return launch(ranks, ["-m", PROCESS, "--recipe", recipe, *arguments], alone)


def launch(ranks: Ranks, script: list[str], alone: bool) -> list[str]:
    """Returns the command line that runs a module in every rank. Raises InputError, SlurmError.
    alone: whether to run one process without torchrun."""
    if alone:
        return [sys.executable, *script]
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks.per_node}"]
    if ranks.nodes == 1:
        return [*torchrun, "--standalone", *script]
    if not os.environ.get("SLURM_JOB_ID"):
        raise InputError(
            f"job.nodes is {ranks.nodes}", expected="a SLURM job (snakemake ... --profile slurm)"
        )
    address = f"--master-addr={slurm.job_nodes()[0].address} --master-port={free_port('')}"
    line = f"exec {join(torchrun)} --nnodes={ranks.nodes} --node-rank=$SLURM_NODEID {address} {join(script)}"
    srun = ["srun", f"--nodes={ranks.nodes}", f"--ntasks={ranks.nodes}", "--ntasks-per-node=1"]
    srun += [f"--cpus-per-task={ranks.threads * ranks.per_node}", "--kill-on-bad-exit=1"]
    if ranks.gpus:
        srun.append(f"--gpus-per-node={ranks.gpus}")
    return [*srun, "bash", "-c", line]
