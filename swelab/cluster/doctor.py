"""Checks a site file against the cluster that it describes. Reports each thing that must be fixed."""

import getpass
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from swelab.checks.finding import Finding, fix, ok
from swelab.cluster import slurm
from swelab.cluster.node_probe import NodeFacts
from swelab.cluster.site import environment, on_nodes, options, rl_job, rl_names, sandboxes_mb, sft_job
from swelab.configs import recipes
from swelab.configs.experiment import load_experiment
from swelab.configs.kinds import CONFIG, POLICY, RL, SFT
from swelab.configs.kinds.config import Config, Site
from swelab.configs.kinds.experiment import Experiment
from swelab.configs.kinds.policy import Job, policy_job
from swelab.jobs.journal import lock
from swelab.records import Fault, shorten

CLOCK_SECONDS = 5
"""Maximum difference between clocks in seconds. With more, files would look older than their inputs."""


def examine(site_file: Path, wait_seconds: int, experiment: str = "") -> Iterator[Finding]:
    """Yields the findings about a site file, its cluster, and a node of each partition.

    experiment: replaces the experiment in the site file. wait_seconds: how long to wait for a node. Raises
    Fault if the file itself is wrong or SLURM does not respond.
    """
    settings = recipes.load(CONFIG, site_file)
    site = settings.site
    if site is None:
        raise Fault(f"{site_file}: no key site; expected the cluster's partitions under it")
    plan = load_experiment(experiment or settings.experiment)
    missing = [name for name in slurm.PROGRAMS if not shutil.which(name)]
    if missing:
        raise Fault(f"no program {', '.join(missing)}; expected a login node of a SLURM cluster")
    conf = os.environ.get("SLURM_CONF", "")
    if conf and not Path(conf).is_file():
        raise Fault(f"SLURM_CONF is {conf}, which is no file; expected the cluster's slurm.conf")
    slurm.ask("scontrol", "ping")
    yield ok(f"{site_file} is sound; the controller answers")
    jobs, partitions = needs(settings, plan), slurm.partitions()
    for role, need in jobs.items():
        yield from check_partition(role, need, site, partitions)
    yield check_polling()
    yield check_account(site)
    for role, need in jobs.items():
        if getattr(site.partitions, role) in partitions:
            yield from check_node(role, need, settings, site, wait_seconds)


def at_cluster(site_file: Path) -> bool:
    """Returns whether this is a cluster's login node.

    A login node has a site file, SLURM's programs, and a configured controller. A laptop that only has
    SLURM's packages has no controller.
    """
    if not site_file.is_file() or any(not shutil.which(name) for name in slurm.PROGRAMS):
        return False
    try:
        return bool(os.environ.get("SLURM_CONF")) or bool(slurm.ask("scontrol", "ping"))
    except Fault:
        return False


def needs(settings: Config, plan: Experiment) -> dict[str, Job]:
    """Returns the maximum CPUs, memory (MB) and GPUs that any job of the experiment requests, for each role.

    The numbers are those of the first attempt of a job. The roles are "cpu" and "gpu".
    """
    workers = settings.workers
    roles = {"cpu": [Job(cpus=workers, mem_mb=sandboxes_mb(workers))]}
    jobs = [policy_job(recipes.load_named(POLICY, name)) for name in plan.acting]
    jobs += [rl_job(recipes.load_named(RL, name), workers) for name in rl_names(plan)]
    for job in [sft_job(recipes.load_named(SFT, plan.sft)), *filter(None, jobs)]:
        roles.setdefault("gpu" if job.gpus else "cpu", []).append(job)
    return {
        role: Job(**{key: max(getattr(job, key) for job in jobs) for key in ("cpus", "mem_mb", "gpus")})
        for role, jobs in roles.items()
    }


def check_partition(
    role: str, need: Job, site: Site, partitions: dict[str, slurm.Partition]
) -> Iterator[Finding]:
    """Checks that a role's partition exists, accepts jobs, and has nodes as large as the site file says."""
    name = getattr(site.partitions, role)
    key = f"site.partitions.{role}"
    part = partitions.get(name)
    if part is None:
        hint = recipes.nearest(name, list(partitions))
        yield fix(f"{key}: there is no partition {name!r}{hint}; there are: {', '.join(partitions)}")
        return
    faults = []
    if not part.up:
        faults.append(f"{key}: partition {name} takes no jobs; choose another or ask the administrator")
    if not part.nodes_up:
        faults.append(f"{key}: no node of partition {name} is up (sinfo -R says why)")
    if part.minutes < site.max_minutes:
        faults.append(
            f"site.max_minutes is {site.max_minutes}; partition {name} takes {part.minutes} at most"
        )
    if part.mem_mb < site.max_mem_mb:
        faults.append(f"site.max_mem_mb is {site.max_mem_mb}; the largest node of {name} has {part.mem_mb}")
    for what, smaller in SMALLER.items():
        request, size = getattr(need, what), getattr(part, what)
        if request > size:
            faults.append(f"a {role} job asks for {request} {what}; a node of {name} has {size}: {smaller}")
    if need.gpus and (fault := gpu_fault(need.gpus, site, part)):
        faults.append(fault)
    for fault in faults:
        yield fix(fault)
    if not faults:
        size = f"{part.nodes_up} of {part.nodes} nodes up, {part.cpus} CPUs, {part.mem_mb} MB"
        yield ok(f"{key}: {name} ({size})")


SMALLER = {
    "cpus": "lower workers, train.threads of the training, or job.cpus of the policy",
    "mem_mb": "lower workers, or job.mem_mb of the recipe",
}


def gpu_fault(count: int, site: Site, part: slurm.Partition) -> str:
    """Returns why a partition cannot give a job the GPUs that it requests, or "" if it can."""
    kind = site.gpu_type
    if not part.gpus:
        return f"site.partitions.gpu: nodes of {part.name} have no GPUs (sinfo -o '%P %G')"
    if kind and kind not in part.gpus:
        types = sorted(filter(None, part.gpus))
        has = ", ".join(types) or "GPUs without a type; leave it empty"
        return (
            f"site.gpu_type: no GPU is called {kind!r}{recipes.nearest(kind, types)}; {part.name} has {has}"
        )
    most = part.gpus[kind] if kind else max(part.gpus.values())
    return f"a job asks for {count} GPUs; a node of {part.name} has {most}" if count > most else ""


def check_polling() -> Finding:
    """Checks that squeue remembers a finished job until Snakemake asks for it."""
    seconds = int((slurm.setting("MinJobAge").split() or ["0"])[0])
    if seconds >= 200:
        return ok(f"squeue remembers finished jobs for {seconds} s")
    advice = "expected 200 or more; ask the administrator, or set slurm-status-command: sacct in the profile"
    return fix(f"squeue forgets finished jobs after {seconds} s (MinJobAge); {advice}")


def check_account(site: Site) -> Finding:
    """Checks that this user may charge jobs to the account."""
    mine, account = slurm.accounts(getpass.getuser()), site.sbatch.account
    if account and mine and account not in mine:
        hint = recipes.nearest(account, mine)
        return fix(f"site.sbatch.account: {account!r} is not yours{hint}; yours are: {', '.join(mine)}")
    return ok(f"account: {account or 'the default one'}")


@contextmanager
def shared_folder() -> Iterator[tuple[Path, str]]:
    """Makes a folder under results/ with a token and a lock that we hold. Yields (folder, token).

    A job on a node inspects the folder.
    """
    Path("results").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir="results")).absolute()
    try:
        token = secrets.token_hex(16)
        (folder / "token").write_text(token)
        with lock(folder / "lock"):
            yield folder, token
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_node(role: str, need: Job, settings: Config, site: Site, wait_seconds: int) -> Iterator[Finding]:
    """Runs a job on a node of the role's partition, and yields the findings about the node.

    The job reports the node's resources and its view of shared files.
    """
    partition = getattr(site.partitions, role)
    request = [f"--partition={partition}", "--mem=1000", f"--chdir={Path.cwd()}", *options(site)]
    if need.gpus:
        kind = f"{site.gpu_type}:" if site.gpu_type else ""
        request.append(f"--gpus={kind}{need.gpus}")
    surroundings = {"SWELAB_BACKEND": settings.backend, "SWELAB_TOOLBOX": settings.toolbox}
    names = [name for name in PACKAGES if need.gpus or getattr(site.environments, name)]
    exports = "".join(f"export {name}={quote(value)}; " for name, value in surroundings.items())
    with shared_folder() as (folder, token):
        command = f"{exports}{on_nodes(site)}{quote(sys.executable)} -m swelab.cluster.node_probe "
        command += f"{quote(str(folder))} {token} {need.gpus} {int(site.network)}; "
        command += "; ".join(trial(site, name) for name in names)
        start = time.time()
        try:
            output = slurm.run_on_node(request, command, wait_seconds)
        except slurm.SlurmError as error:
            yield fix(f"no look at a node of partition {partition}: {error}")
            return
        line = next((line for line in output.splitlines() if line.startswith("probe ")), "")
        if not line:
            yield fix(f"a node of {partition} did not run {sys.executable}: {output[-200:]}")
            return
        facts = NodeFacts.of(json.loads(line.removeprefix("probe ")))
        apart = max(start - facts.time, facts.time - time.time(), 0)
        visible = bool(facts.answer) and comes(folder / facts.answer)
    faults = list(facts.faults)
    if not visible:
        faults.append(f"what it writes under {Path.cwd()}/results is not seen here within a minute")
    if apart > CLOCK_SECONDS:
        faults.append(f"its clock is {apart:.0f} s from this one; files' times decide what re-runs")
    faults += filter(None, (environment_fault(name, output, need) for name in names))
    for fault in faults:
        yield fix(f"node {facts.node}: {fault}")
    if not faults:
        yield ok(f"node {facts.node} ({role}): repository, locks, Python and sandbox work there")


PACKAGES = {"train": "torchtune", "serve": "sglang"}
"""Maps each environment that a site file may name to the package that the environment must have."""


def trial(site: Site, name: str) -> str:
    """Returns a shell line that prints an environment's torch device, or why its Python does not start."""
    python = '"${SWELAB_SERVE_PYTHON:-python}"' if name == "serve" else "python"
    code = f"from importlib.metadata import version; version('{PACKAGES[name]}'); import torch; "
    code += "print('cuda' if torch.cuda.is_available() else 'cpu')"
    path = f"PATH={quote(str(Path(sys.executable).parent))}:$PATH; "
    return f'({path}{environment(site, name)}echo "{name} $({python} -c {quote(code)} 2>&1 | tail -n 1)")'


def environment_fault(name: str, output: str, need: Job) -> str:
    """Returns the fault of an environment, from the output of its trial run, or "" if there is none."""
    lines = [line.removeprefix(f"{name} ") for line in output.splitlines() if line.startswith(f"{name} ")]
    result = shorten(lines[-1]) if lines and lines[-1].strip() else "it printed nothing"
    if result not in ("cuda", "cpu"):
        return f"site.environments.{name}: its Python cannot {name}: {result}"
    if need.gpus and result == "cpu":
        return f"site.environments.{name}: its torch sees no GPU; make it from envs/gpu-{name}.txt"
    return ""


def comes(path: Path, seconds: float = 60) -> bool:
    """Returns whether a file appears within `seconds`."""
    end = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.5)
    return path.exists()
