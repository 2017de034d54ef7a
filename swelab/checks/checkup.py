"""Checks whether this machine has everything that an experiment needs.

Each finding says how to get a missing thing.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from swelab import machine
from swelab.checks.finding import Finding, fix, low, ok
from swelab.checks.probes import ask, check_keys, check_sandboxes
from swelab.choices import BACKENDS
from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.config import Config
from swelab.configs.kinds.experiment import Experiment
from swelab.configs.kinds.policy import Policy
from swelab.jobs.provenance import package_version
from swelab.machine import GIB, gib
from swelab.records import Fault
from swelab.sandbox.scratch import scratch_base

DISK_GIB, MEMORY_GIB, CORES = 5, 8, 2
"""Minimum values. With less, the demo is slow or may not finish, but it is not stopped."""


def look(settings: Config, plan: Experiment, sandboxes: bool = True) -> Iterator[Finding]:
    """Yields findings about this machine, for the settings of configs/config.yaml and an experiment.

    sandboxes: whether jobs run on this machine itself, not on a cluster's nodes.
    """
    yield check_python()
    yield check_packages(Path("envs/cpu.txt"))
    yield check_programs()
    if sandboxes:
        os.environ["SWELAB_TOOLBOX"] = settings.toolbox
        yield check_torch()
        yield check_sandboxes(settings.backend, *BACKENDS[settings.backend].advice)
        yield check_scratch()
        yield check_memory()
        yield check_cores()
    yield check_disk(Path.cwd())
    policies = {name: recipes.load_named(POLICY, name) for name in plan.acting}
    for name, policy in policies.items():
        yield from check_keys(name, policy)
    for name, policy in policies.items():
        yield from check_endpoint(name, policy)


def check_python() -> Finding:
    """Checks that Python has the version of the pinned packages and runs in a virtual environment."""
    text = f"Python {sys.version.split()[0]} in {sys.prefix}"
    if sys.version_info[:2] != (3, 11):
        return fix(f"{text}: expected 3.11; run make setup PYTHON=/path/to/python3.11")
    if sys.prefix == sys.base_prefix:
        return fix(f"{text}: expected .venv/bin/python; run make setup")
    return ok(text)


def check_packages(pins_file: Path) -> Finding:
    """Checks that the packages in a file of pins are installed in the pinned versions."""
    pins = dict(line.split("==") for line in pins_file.read_text().split() if "==" in line)
    here = {name: package_version(name) or "missing" for name in pins}
    wrong = [f"{name} {pin} (it is {here[name]})" for name, pin in pins.items() if here[name] != pin]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return fix(f"packages: expected {', '.join(wrong[:3])}{more}; run make setup")
    return ok(f"packages: all {len(pins)} of {pins_file} are here")


def check_programs() -> Finding:
    """Checks that git and patch are installed."""
    names = " ".join(name for name in ("git", "patch") if not shutil.which(name))
    if names:
        return fix(f"programs: no {names}; ask the administrator to run: apt-get install {names}")
    return ok("programs: git and patch are here")


def check_torch() -> Finding:
    """Checks that the build of torch fits the machine's GPUs."""
    gpus, build = [gpu.name for gpu in machine.gpus()], package_version("torch")
    if not build:
        return fix("torch: not installed; run make setup")
    if gpus and build.endswith("+cpu"):
        return low(
            f"torch {build}: it does not see {gpus[0]}; make setup TORCH=cuda installs the build that does"
        )
    return ok(f"torch {build}: {f'{len(gpus)} x {gpus[0]}' if gpus else 'no GPU here'}")


def check_scratch() -> Finding:
    """Checks the free space in the folder for sandboxes' files."""
    base = scratch_base()
    free, _ = machine.disk(base)
    text = f"scratch folder of sandboxes: {base}, {gib(free)} free"
    if free < GIB:
        return fix(f"{text}; expected 1 or more: free some, or set SWELAB_SCRATCH to another folder")
    return ok(text)


def check_disk(folder: Path) -> Finding:
    """Checks the free space for results in a folder, which need not exist yet."""
    free, place = machine.disk(folder)
    text = f"disk: {gib(free)} free at {place}"
    if free < GIB:
        return fix(f"{text}; expected {DISK_GIB} or more: free some")
    if free < DISK_GIB * GIB:
        return low(f"{text}; a large experiment fills that: {DISK_GIB} or more are better")
    return ok(text)


def check_memory() -> Finding:
    """Reports the memory that a run may use."""
    free, total = machine.memory()
    text = f"memory: {gib(free)} free of {total / GIB:.1f}"
    if free < MEMORY_GIB * GIB:
        return low(
            f"{text}; less than {MEMORY_GIB} may end a training or a model server: close other programs"
        )
    return ok(text)


def check_cores() -> Finding:
    """Reports the number of cores that a run may use."""
    cores = machine.cores()
    slow = "; a run takes twice as long as on two"
    return low(f"cores: {cores:g}{slow}") if cores < CORES else ok(f"cores: {cores:g}")


def check_endpoint(name: str, policy: Policy) -> Iterator[Finding]:
    """Checks that the service of a policy responds. A response of any status counts."""
    url = getattr(policy, "endpoint", None) or getattr(policy, "api_base", None)
    if not url:
        return
    try:
        ask(url, "/models", seconds=5)
        yield ok(f"policy {name}: {url} answers")
    except Fault as fault:
        where = f"configs/policies/{name}.yaml"
        yield fix(f"policy {name}: {fault}; start that server, or correct the address in {where}")
