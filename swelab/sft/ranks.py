"""Processes that train one model together: how many, what each does of a step, how they are started.

On one node torchrun starts them. On several, srun starts a torchrun on each, inside the SLURM job that we
are in, and they meet at a port of its first node.
"""

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from swelab import slurm
from swelab.models.serving import free_port
from swelab.records import InputError, Record

DISTRIBUTED = Path(__file__).with_name("distributed.py")


@dataclass(frozen=True)
class Ranks:
    """`nodes` × `per_node` processes, with a GPU each or with `threads` CPUs."""

    nodes: int
    per_node: int
    gpus: int
    threads: int

    @property
    def total(self) -> int:
        """How many processes there are."""
        return self.nodes * self.per_node


def ranks_of(recipe: Record) -> Ranks:
    """What an sft recipe asks for: a process a GPU, or `ranks` of them on CPUs."""
    job = recipe["job"]
    return Ranks(job["nodes"], job["gpus"] or job["ranks"], job["gpus"], recipe["train"]["threads"])


def share(train: Record, ranks: Ranks) -> Record:
    """{"batch_size", "gradient_accumulation_steps"} of one rank: all together make the recipe's steps.

    Raises InputError when the conversations of a step cannot be dealt out evenly.
    """
    step = train["batch_size"] * train["gradient_accumulation_steps"]
    if step % ranks.total:
        what = f"a step of {step} conversations (batch_size × gradient_accumulation_steps)"
        raise InputError(f"{what} on {ranks.total} ranks", expected=f"a multiple of {ranks.total}")
    mine = step // ranks.total
    batch = math.gcd(mine, train["batch_size"])
    return {"batch_size": batch, "gradient_accumulation_steps": mine // batch}


def command(ranks: Ranks, config: Path) -> list[str]:
    """The command line that trains with a torchtune configuration. Raises InputError, SlurmError."""
    if ranks.total == 1:
        recipe = "full_finetune_single_device"
        return [sys.executable, "-m", "torchtune._cli.tune", "run", recipe, "--config", str(config)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks.per_node}"]
    script = [str(DISTRIBUTED), "--config", str(config)]
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
