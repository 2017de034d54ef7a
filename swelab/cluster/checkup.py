"""Looks at the machine at hand: what an experiment needs of it, and what to do about what is missing."""

import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from swelab import machine
from swelab.checks.finding import Finding, fix, low, ok
from swelab.cluster.node_probe import sandbox_fault
from swelab.configs import recipes
from swelab.configs.experiment import key_variables
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.config import Config
from swelab.configs.kinds.experiment import Experiment
from swelab.machine import GIB, gib
from swelab.sandbox.scratch import scratch_base

DISK_GIB, MEMORY_GIB, CORES = 5, 8, 2
"""Below these the demo is slow or may not end; nothing is refused for them alone."""
ANSWERS_SECONDS = 5


def look(settings: Config, plan: Experiment, sandboxes: bool = True) -> Iterator[Finding]:
    """Findings on this machine, as they come: for the settings of configs/config.yaml and an experiment.

    sandboxes: whether jobs run on this very machine, and not on a cluster's nodes.
    """
    yield check_python()
    yield from check_packages(Path("envs/cpu.txt"))
    yield from check_programs()
    if sandboxes:
        yield check_torch()
        yield check_sandboxes(settings)
        yield from check_scratch()
        yield check_memory()
        yield check_cores()
    yield check_disk()
    yield from check_keys(plan.acting)
    for name in plan.acting:
        yield from check_endpoint(name)


def check_python() -> Finding:
    """Whether this is the Python that the packages were pinned for, in an environment of its own."""
    text = f"Python {sys.version.split()[0]} in {sys.prefix}"
    if sys.version_info[:2] != (3, 11):
        return fix(f"{text}: expected 3.11; run make setup PYTHON=/path/to/python3.11")
    if sys.prefix == sys.base_prefix:
        return fix(f"{text}: expected .venv/bin/python; run make setup")
    return ok(text)


def check_packages(pinned: Path) -> Iterator[Finding]:
    """Whether the pinned packages are here, each in its version."""
    pins = dict(line.split("==") for line in pinned.read_text().split() if "==" in line)
    wrong = []
    for name, wanted in pins.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "missing"
        if found != wanted:
            wrong.append(f"{name} {wanted} (it is {found})")
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        yield fix(f"packages: expected {', '.join(wrong[:3])}{more}; run make setup")
    else:
        yield ok(f"packages: all {len(pins)} of {pinned} are here")


def check_programs() -> Iterator[Finding]:
    """Whether git and patch are here."""
    missing = [name for name in ("git", "patch") if not shutil.which(name)]
    if missing:
        names = " ".join(missing)
        yield fix(f"programs: no {names}; ask the administrator to run: apt-get install {names}")
    else:
        yield ok("programs: git and patch are here")


def check_torch() -> Finding:
    """Whether torch's build fits the machine's GPUs."""
    gpus = [gpu.name for gpu in machine.gpus()]
    try:
        build = version("torch")
    except PackageNotFoundError:
        return fix("torch: not installed; run make setup")
    if gpus and build.endswith("+cpu"):
        text = f"torch {build}: it does not see {gpus[0]}; make setup TORCH=cuda installs the build that does"
        return low(text)
    return ok(f"torch {build}: {f'{len(gpus)} x {gpus[0]}' if gpus else 'no GPU here'}")


def check_sandboxes(settings: Config) -> Finding:
    """Whether a command runs in a sandbox of the backend in use (docker, remote: whether it answers)."""
    name = settings.backend
    os.environ["SWELAB_TOOLBOX"] = settings.toolbox
    if fault := sandbox_fault(name):
        advice = {
            "bubblewrap": "make setup says what is missing; or set backend: docker in configs/config.yaml",
            "docker": "start the engine, or set DOCKER_HOST; or set backend: bubblewrap",
        }.get(name, "see docs/sandboxes.md")
        return fix(f"sandboxes ({name}): {fault}; {advice}")
    did = "a command ran in one" if name == "bubblewrap" else "it answers"
    return ok(f"sandboxes ({name}): {did}")


def check_scratch() -> Iterator[Finding]:
    """Whether sandboxes' files have room where they lie."""
    base = scratch_base()
    free, _ = machine.disk(base)
    text = f"scratch folder of sandboxes: {base}, {gib(free)} free"
    if free < GIB:
        yield fix(f"{text}; expected 1 or more: free some, or set SWELAB_SCRATCH to another folder")
    else:
        yield ok(text)


def check_disk() -> Finding:
    """Whether results have room."""
    free, folder = machine.disk(Path.cwd())
    text = f"disk: {gib(free)} free at {folder}"
    if free < GIB:
        return fix(f"{text}; expected {DISK_GIB} or more: free some")
    if free < DISK_GIB * GIB:
        return low(f"{text}; a large experiment fills that: {DISK_GIB} or more are better")
    return ok(text)


def check_memory() -> Finding:
    """How much memory a run may take."""
    free, total = machine.memory()
    text = f"memory: {gib(free)} free of {total / GIB:.1f}"
    if free < MEMORY_GIB * GIB:
        text += f"; less than {MEMORY_GIB} may end a training or a model server: close other programs"
        return low(text)
    return ok(text)


def check_cores() -> Finding:
    """How many cores a run may use."""
    cores = machine.cores()
    if cores < CORES:
        return low(f"cores: {cores:g}; a run takes twice as long as on two")
    return ok(f"cores: {cores:g}")


def check_keys(policies: list[str]) -> Iterator[Finding]:
    """Whether the environment holds the keys that policies name; they are not shown."""
    for name in policies:
        for variable in key_variables(recipes.named(POLICY, name)):
            if os.environ.get(variable):
                yield ok(f"policy {name}: {variable} is set")
            else:
                yield fix(f"policy {name}: its token is missing; export {variable}=...")


def check_endpoint(name: str) -> Iterator[Finding]:
    """Whether the service that a policy names answers; an answer of any status counts."""
    policy = recipes.named(POLICY, name)
    url = getattr(policy, "endpoint", None) or getattr(policy, "api_base", None) or ""
    if not url:
        return
    host = urlsplit(url).hostname or ""
    here = host == "localhost" or host.startswith("127.") or host == "::1"
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if here else []))
    try:
        opener.open(f"{url.rstrip('/')}/models", timeout=ANSWERS_SECONDS).close()
    except urllib.error.HTTPError:
        pass
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        what = f"policy {name}: {url} does not answer ({why})"
        yield fix(f"{what}; start that server, or correct the address in configs/policies/{name}.yaml")
        return
    yield ok(f"policy {name}: {url} answers")
