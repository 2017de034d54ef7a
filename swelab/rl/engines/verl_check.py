"""Checks a verl recipe against a cluster before resources are requested. Each check produces one line."""

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
    """Checks a recipe for verl. Yields the findings, including those of checks that passed.

    config: config of the starting checkpoint, or None if the checkpoint is absent. machine: the machine that
    runs this check. This machine may have no GPU although the cluster's nodes have GPUs. Sizes that
    contradict each other are not checked here, because reading the recipe raises an error for them.
    """
    yield from _machines(recipe, machine)
    context, shared = recipe.rollouts.context_length, recipe.cluster.trainer.shared
    tokens = f"{recipe.train.batch_tokens} a GPU x {shared}"
    yield ok(f"tokens: {tokens} that share a sequence hold the longest, {context}")
    if recipe.cluster.trainer.backend == "megatron":
        yield from _megatron()
    if (former := recipe.cluster.resume_from) and not Path(former, "actor").is_dir():
        yield fix(f"verl.resume_from: no folder {former}/actor; expected verl's global_step_N")
    if config is not None:
        if recipe.train.device != "cpu":
            yield _trainer(recipe, config)
            yield _engine(recipe, config)
        yield _disk(recipe, config)
    yield _places(recipe)


def _machines(recipe: Rl, machine: Machine) -> Iterator[Finding]:
    verl, here = recipe.cluster, len(machine.gpus)
    serving = f"{verl.rollout.nodes} serve" if verl.rollout.nodes else "the same serve"
    judging = f", {verl.judge.nodes} serve the judge" if verl.judge else ""
    yield ok(f"nodes: {verl.nodes} of {verl.gpus} GPUs; {verl.trainer.nodes} train, {serving}{judging}")
    if recipe.train.device != "cpu" and here < verl.gpus:
        what = f"GPUs: {here} here, and a node of it has {verl.gpus}"
        yield low(f"{what}: start it where they are, with --profile slurm for instance")
    smaller = [gpu for gpu in machine.gpus if gpu.total < 0.95 * verl.gpu_gib * GIB]
    if smaller:
        what = f"verl.gpu_gib is {verl.gpu_gib}, and the {smaller[0].name} here has {gib(smaller[0].total)}"
        yield fix(f"{what}: write what the nodes have")


def _megatron() -> Iterator[Finding]:
    """Checks that verl's environment contains Megatron. Checks nothing if verl's environment does not
    exist."""
    with suppress(InputError):
        if not has_megatron():
            what = "verl.trainer.backend megatron: there is no Megatron in verl's environment"
            yield fix(f"{what}: install it there (docs/rl-scale.md), or set fsdp2")


def _trainer(recipe: Rl, config: ModelConfig) -> Finding:
    verl, needs = recipe.cluster, trainer_needs(recipe, config)
    size, text = verl.gpu_gib * GIB, f"a GPU that trains: about {gib(needs.total)} ({needs})"
    text += f" of {verl.gpu_gib} GiB"
    if needs.total > size:
        smaller = "raise tensor_parallel, nodes or activation_checkpointing, or lower train.batch_tokens"
        return fix(f"{text}: {smaller}")
    serving = verl.rollout.memory * size * (verl.mode == "sync")
    if verl.trainer.offload != "all" and needs.resident + serving > size:
        what = f"{text}; {gib(needs.resident)} of it stay while the engine takes {gib(serving)}"
        return fix(f"{what}: set verl.trainer.offload all, or lower verl.rollout.memory")
    if needs.host > recipe.job.mem_mb * 2**20:
        what = f"verl.trainer.offload {verl.trainer.offload}: about {gib(needs.host)} of a node's memory"
        return fix(f"{what}, and job.mem_mb asks for {recipe.job.mem_mb}: raise it")
    return ok(text)


def _engine(recipe: Rl, config: ModelConfig) -> Finding:
    room, rollouts = engine_room(recipe, config), recipe.rollouts
    engines = f"{room.count} engines of {recipe.cluster.rollout.tensor_parallel} GPUs"
    if room.tokens < rollouts.context_length:
        cache = f"weights of {gib(room.weights)} a GPU leave a cache of {max(0, room.tokens)} tokens"
        what = f"{engines}: {cache}, less than one conversation of {rollouts.context_length}"
        return fix(f"{what}: raise verl.rollout.memory or tensor_parallel")
    whole = room.count * (room.tokens // rollouts.context_length)
    what = f"{engines}: caches of {room.tokens} tokens, {whole} conversations of full length"
    if whole < rollouts.at_once:
        return low(f"{what}, and {rollouts.at_once} rollouts at once: turns wait when many are long")
    return ok(what)


def _disk(recipe: Rl, config: ModelConfig) -> Finding:
    """Checks the disk space for all kept checkpoints, and for one that is being written."""
    size, count = checkpoint_bytes(recipe, config), recipe.train.keep_checkpoints + 1
    free, _ = disk(RESULTS)
    what = f"disk: {count} checkpoints of {gib(size)}, and {gib(free)} are free in {RESULTS}"
    if count * size > free:
        return fix(f"{what}: free some, or lower train.keep_checkpoints")
    return ok(what)


def _places(recipe: Rl) -> Finding:
    count = recipe.rollouts.at_once
    try:
        places = pool_places()
    except Fault as fault:
        return fix(f"pool: {fault}")
    if places is None:
        what = f"rollouts.at_once {count}, and no pool is named ($SWELAB_BACKEND, $SWELAB_POOL)"
        return low(f"{what}: all sandboxes are on the machine of the job")
    if few := too_few(recipe, places):
        return fix(few)
    return ok(f"pool: {places} places for {count} rollouts at once")


def pool_places() -> int | None:
    """Returns how many sandboxes the pool's healthy hosts can run at once, or None without a pool. Raises
    Fault."""
    url = os.environ.get("SWELAB_POOL", "")
    if os.environ.get("SWELAB_BACKEND") != "remote" or not url:
        return None
    pool = PoolClient(url, find_token()).ask("/status", {}).json()["pool"]
    healthy = [node for node in pool["nodes"] if node["healthy"] and not node["draining"]]
    return sum(int(node["max_containers"]) for node in healthy)
