"""Checks whether a machine can run an RL recipe, before anything is started."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from swelab.checks.finding import Finding, Severity, catch, fix, low, ok, require
from swelab.checks.probes import check_keys
from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.rl import Rl
from swelab.files.model_config import FAMILIES, ModelConfig
from swelab.files.weights import check_weights
from swelab.lineage import Wildcards, find, weights_paths
from swelab.machine import GIB, Machine, gib, this_machine
from swelab.records import InputError, read_json
from swelab.rl.engines.verl_check import cluster_findings
from swelab.rl.engines.verl_keys import unheard
from swelab.rl.engines.verl_machine import python_of_verl
from swelab.rl.memory_needs import ENGINE, PROGRAM, engine_needs, learner_needs
from swelab.rl.prompts import task_faults
from swelab.sandbox.protocol import Limits
from swelab.sft.train.device import device_of, dtype_of
from swelab.tasks.task_rows import read_tasks

SANDBOX = GIB // 4
"""Memory that a sandbox usually needs. `Limits` has the maximum."""
A_CORE = 16
"""Maximum number of rollouts per core. Rollouts mostly wait for the engine, but a command needs a core within
its time limit."""


def preflight(recipe: Rl, config: ModelConfig | None, machine: Machine) -> list[Finding]:
    """Returns the problems that a recipe would have on a machine. For verl, also returns a finding for each
    passed check.

    config: config of the starting weights, or None if they do not exist. With None, memory is not checked.
    """
    findings = [*(_model(recipe, config) if config else ()), *(low(line) for line in unheard(recipe))]
    if recipe.engine == "verl":
        return [*findings, *cluster_findings(recipe, config, machine)]
    gpus = bool(machine.gpus)
    device = device_of(recipe.train, gpus)
    findings += _devices(recipe, device, machine)
    if config:
        findings += _memory(recipe, config, device, dtype_of(recipe.train, gpus), machine)
    return [*findings, *_sandboxes(recipe, machine)]


def _model(recipe: Rl, config: ModelConfig) -> Iterator[Finding]:
    name, families = " ".join(config.architectures) or "none", ", ".join(FAMILIES)
    if not name.endswith("ForCausalLM"):
        yield fix(f"start: architecture {name}; expected a decoder such as {families}")
    elif name not in FAMILIES:
        yield low(f"start: architecture {name} was not tried ({families} were); its memory is a guess")
    length, most = recipe.rollouts.context_length, config.max_position_embeddings
    if length > most:
        yield fix(f"rollouts.context_length is {length}; the start's model has {most} positions")


def _devices(recipe: Rl, device: str, machine: Machine) -> Iterator[Finding]:
    train, here = recipe.train, len(machine.gpus)
    if device == "cuda" and not here:
        yield fix("train.device is cuda, and there is no GPU here: set cpu or auto")
    elif device == "cuda" and train.ranks > here:
        yield fix(f"train.ranks is {train.ranks}, a GPU each, and there are {here}: lower it")
    elif device == "cpu" and train.ranks * train.threads > machine.cores:
        what = f"train.ranks x train.threads is {train.ranks * train.threads}"
        yield low(f"{what}, and there are {machine.cores:g} cores: ranks wait for each other")
    if recipe.job.gpus > here:
        yield fix(f"job.gpus is {recipe.job.gpus}, and there are {here} here: lower it")
    if device == "cpu" and here and train.device == "cpu":
        yield low(f"train.device is cpu, and there is a {machine.gpus[0].name}: auto uses it")


def _memory(recipe: Rl, config: ModelConfig, device: str, dtype: str, machine: Machine) -> Iterator[Finding]:
    train, job, engine = recipe.train, recipe.job, engine_needs(recipe, config)
    needs = learner_needs(recipe, config, dtype)
    smaller = "lower train.batch_tokens, rollouts.context_length or rollouts.max_total_tokens"
    smaller += ", raise train.ranks or set train.activation_checkpointing"
    for number, gpu in enumerate(machine.gpus):
        learns, serves = device == "cuda" and number < train.ranks, number < job.gpus
        need = learns * needs.total + serves * engine
        if need > gpu.free:
            parts = f"learner {needs if learns else 'elsewhere'}; engine {gib(serves * engine)}"
            what = f"GPU {number} ({gpu.name}): about {gib(need)} ({parts}), and {gib(gpu.free)} are free"
            yield fix(f"{what}: {smaller}")
        if learns and serves and not recipe.rollouts.max_total_tokens:
            what = f"GPU {number} trains and serves, and rollouts.max_total_tokens is 0"
            yield fix(f"{what}: the engine takes what the learner needs; set it")
    programs = PROGRAM * (train.ranks + (train.ranks > 1))
    learner = programs + (0.0 if device == "cuda" else train.ranks * needs.total)
    host = learner + (ENGINE if job.gpus else engine) * job.servers
    parts = f"learner {gib(learner)}, engine and its cache {gib(host - learner)}"
    what = f"about {gib(host)} of memory ({parts}), and"
    if host > machine.free:
        yield fix(f"{what} {gib(machine.free)} are free: {smaller}")
    elif host + recipe.rollouts.at_once * SANDBOX > machine.free:
        sandboxes = f"{recipe.rollouts.at_once} sandboxes"
        yield low(f"{what} {sandboxes}, of {gib(machine.free)} that are free: lower rollouts.at_once")


def _sandboxes(recipe: Rl, machine: Machine) -> Iterator[Finding]:
    count, most = recipe.rollouts.at_once, Limits().memory_bytes
    if count > A_CORE * machine.cores:
        what = f"rollouts.at_once is {count} on {machine.cores:g} cores"
        yield low(f"{what}: commands wait for a core, and their time limits go on meanwhile")
    if most > machine.free:
        yield fix(f"a sandbox may take {gib(most)}, and {gib(machine.free)} of memory are free")


def check_recipe(recipe: Rl) -> list[Finding]:
    """Checks a recipe for this machine, and returns all findings. Weights and tasks that do not exist yet are
    not checked."""
    start, machine = Path(weights_paths(recipe.start)[0]).expanduser(), this_machine()
    if (start / "config.json").is_file():
        findings = [*_whole(start)]
    elif ":" in recipe.start or find(recipe.start):
        findings = [low(f"start {recipe.start}: {start} is not made yet, so memory was not looked at")]
    else:
        findings = [fix(f"start: no checkpoint in {start}; expected one in Hugging Face layout")]
    try:
        findings += _against(recipe, start, machine)
    except InputError:  # `_whole` has reported why config.json cannot be read
        findings += preflight(recipe, None, machine)
    findings += catch(partial(_names, recipe), partial(_tasks, recipe))
    return findings or [ok("start, tasks, GPUs, memory and sandboxes: it fits")]


def _whole(start: Path) -> Iterator[Finding]:
    """Yields the faults of the weights in `start`, a folder that has a config.json."""
    with suppress(KeyError):  # `_against` reports the missing key of config.json
        yield from catch(partial(check_weights, start), label="start: ")


def _names(recipe: Rl) -> Iterator[Finding]:
    """Checks the other recipes that a recipe names, the keys of its judges, and verl's environment. Yields a
    finding for each that is missing or invalid."""
    subsets = [("subset", name) for name in (recipe.subset, *recipe.held_out)]
    for kind, name in [("scaffold", recipe.scaffold), *subsets]:
        yield from catch(partial(recipes.load_named, kind, name))
    for name in recipe.judges:
        keys = catch(partial(_keys, name))
        yield from (finding for finding in keys if finding.severity != Severity.OK)
    if recipe.engine == "verl":
        yield from catch(python_of_verl, label="engine verl: ")


def _keys(policy: str) -> Iterator[Finding]:
    return check_keys(policy, recipes.load_named(POLICY, policy))


def _against(recipe: Rl, start: Path, machine: Machine) -> list[Finding]:
    """Returns the findings on a recipe with the weights in `start`. Raises InputError."""
    path = start / "config.json"
    try:
        return preflight(recipe, ModelConfig.of(read_json(path)), machine)
    except KeyError as error:
        return [fix(f"{path}: no {error.args[0]}; expected the config.json of a decoder")]


def _tasks(recipe: Rl) -> Iterator[Finding]:
    """Yields the faults that `task_faults` reports. If a task file does not exist, yields only a finding that
    says so."""
    paths = [
        Path(Wildcards({"subset": name}).path("lock.kept")) for name in (recipe.subset, *recipe.held_out)
    ]
    absent = [str(path) for path in paths if not path.is_file()]
    if absent:
        yield low(f"tasks: {', '.join(absent)} not made yet, so tasks were not looked at")
        return
    tasks, *held_out = [list(read_tasks(path)) for path in paths]
    for fault in task_faults(recipe, tasks, [each for others in held_out for each in others]):
        yield fix(f"tasks: {fault}")


def stop_unless_fit(recipe: Rl, start: Path, machine: Machine | None = None) -> None:
    """Prints the findings of `preflight`. Raises Fault if one must be fixed. machine: by default this
    machine."""
    require(_against(recipe, start, machine or this_machine()))
