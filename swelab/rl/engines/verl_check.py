"""A recipe for verl against a cluster, before anything is asked of it: a line for each thing looked at."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from swelab.checks.finding import Finding, fix, low, ok
from swelab.configs.kinds.rl import Rl
from swelab.files.model_config import ModelConfig
from swelab.machine import GIB, Machine, disk, gib
from swelab.records import Fault, InputError
from swelab.rl.engines.verl_keys import too_few
from swelab.rl.engines.verl_machine import has_megatron
from swelab.rl.memory_needs import checkpoint_bytes, engine_room, trainer_needs
from swelab.sandbox.remote_client import PoolClient
from swelab.sandbox.remote_protocol import find_token

RESULTS = Path("results")


def cluster_findings(recipe: Rl, config: ModelConfig | None, machine: Machine) -> Iterator[Finding]:
    """What was found of a recipe for verl. config: of the weights that it starts from, where they are there.

    machine: where the command is given, which may have no GPU when a cluster's nodes have. Sizes that do not
    go together are refused when a recipe is read.
    """
    yield from _machines(recipe, machine)
    yield ok(_tokens(recipe))
    if recipe.cluster.trainer.backend == "megatron":
        yield from _megatron()
    if (former := recipe.cluster.resume_from) and not Path(former, "actor").is_dir():
        yield fix(f"verl.resume_from: no folder {former}/actor; expected verl's global_step_N")
    if config is not None:
        if recipe.train.device != "cpu":
            yield _trainer(recipe, config)
            yield from _engine(recipe, config)
        yield _disk(recipe, config)
    yield _places(recipe)


def _machines(recipe: Rl, machine: Machine) -> Iterator[Finding]:
    verl, here = recipe.cluster, len(machine.gpus)
    serving = f"{verl.rollout.nodes} serve" if verl.rollout.nodes else "the same serve"
    judging = f", {verl.judge.nodes} serve the judge" if verl.judge else ""
    told = f"nodes: {verl.nodes} of {verl.gpus} GPUs; {verl.trainer.nodes} train, {serving}{judging}"
    yield ok(told)
    if recipe.train.device != "cpu" and here < verl.gpus:
        what = f"GPUs: {here} here, and a node of it has {verl.gpus}"
        yield low(f"{what}: start it where they are, with --profile slurm for instance")
    smaller = [gpu for gpu in machine.gpus if gpu.total < 0.95 * verl.gpu_gib * GIB]
    if smaller:
        what = f"verl.gpu_gib is {verl.gpu_gib}, and the {smaller[0].name} here has {gib(smaller[0].total)}"
        yield fix(f"{what}: write what the nodes have")


def _megatron() -> Iterator[Finding]:
    """Nothing is said without verl's environment: the run says so by itself."""
    with suppress(InputError):
        if not has_megatron():
            what = "verl.trainer.backend megatron: there is no Megatron in verl's environment"
            yield fix(f"{what}: install it there (docs/rl-scale.md), or set fsdp2")


def _tokens(recipe: Rl) -> str:
    most, shared = recipe.train.batch_tokens, recipe.cluster.trainer.shared
    context = recipe.rollouts.context_length
    return f"tokens: {most} a GPU x {shared} that share a sequence hold the longest, {context}"


def _trainer(recipe: Rl, config: ModelConfig) -> Finding:
    verl, needs = recipe.cluster, trainer_needs(recipe, config)
    told = f"a GPU that trains: about {gib(needs.total)} ({needs}) of {verl.gpu_gib} GiB"
    if needs.total > verl.gpu_gib * GIB:
        smaller = "raise tensor_parallel, nodes or activation_checkpointing, or lower train.batch_tokens"
        return fix(f"{told}: {smaller}")
    serving = verl.rollout.memory * verl.gpu_gib * GIB * (verl.mode == "sync")
    if verl.trainer.offload != "all" and needs.resident + serving > verl.gpu_gib * GIB:
        what = f"{told}; {gib(needs.resident)} of it stay while the engine takes {gib(serving)}"
        return fix(f"{what}: set verl.trainer.offload all, or lower verl.rollout.memory")
    if needs.host > recipe.job.mem_mb * 2**20:
        what = f"verl.trainer.offload {verl.trainer.offload}: about {gib(needs.host)} of a node's memory"
        return fix(f"{what}, and job.mem_mb asks for {recipe.job.mem_mb}: raise it")
    return ok(told)


def _engine(recipe: Rl, config: ModelConfig) -> Iterator[Finding]:
    room, asked = engine_room(recipe, config), recipe.rollouts
    told = f"{room.count} engines of {recipe.cluster.rollout.tensor_parallel} GPUs"
    if room.tokens < asked.context_length:
        held = f"weights of {gib(room.weights)} a GPU leave a cache of {max(0, room.tokens)} tokens"
        what = f"{told}: {held}, less than one conversation of {asked.context_length}"
        yield fix(f"{what}: raise verl.rollout.memory or tensor_parallel")
        return
    whole = room.count * (room.tokens // asked.context_length)
    what = f"{told}: caches of {room.tokens} tokens, {whole} conversations of full length"
    less = f", and {asked.at_once} rollouts at once: turns wait when many are long" * (whole < asked.at_once)
    yield low(what + less) if less else ok(what)


def _disk(recipe: Rl, config: ModelConfig) -> Finding:
    """The checkpoints that stay, and one that is being written."""
    size, kept = checkpoint_bytes(recipe, config), recipe.train.keep_checkpoints + 1
    free, _ = disk(RESULTS)
    what = f"disk: {kept} checkpoints of {gib(size)}, and {gib(free)} are free in {RESULTS}"
    if kept * size > free:
        return fix(f"{what}: free some, or lower train.keep_checkpoints")
    return ok(what)


def _places(recipe: Rl) -> Finding:
    asked = recipe.rollouts.at_once
    try:
        places = pool_places()
    except Fault as fault:
        return fix(f"pool: {fault}")
    if places is None:
        what = f"rollouts.at_once {asked}, and no pool is named ($SWELAB_BACKEND, $SWELAB_POOL)"
        return low(f"{what}: all sandboxes are on the machine of the job")
    if few := too_few(recipe, places):
        return fix(few)
    return ok(f"pool: {places} places for {asked} rollouts at once")


def pool_places() -> int | None:
    """Sandboxes that the healthy hosts of the pool lend at once; None without a pool. Raises Fault."""
    url = os.environ.get("SWELAB_POOL", "")
    if os.environ.get("SWELAB_BACKEND") != "remote" or not url:
        return None
    told = PoolClient(url, find_token()).ask("/status", {}).json()["pool"]
    healthy = [node for node in told["nodes"] if node["healthy"] and not node["draining"]]
    return sum(int(node["max_containers"]) for node in healthy)
