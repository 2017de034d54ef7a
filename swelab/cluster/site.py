"""Converts the settings of a cluster (`site` in configs/site.yaml) to the form that jobs need."""

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

from swelab.configs import recipes
from swelab.configs.kinds import CONFIG, POLICY, RL, SFT
from swelab.configs.kinds.config import Config, Site
from swelab.configs.kinds.experiment import Experiment
from swelab.configs.kinds.policy import Job, policy_job
from swelab.configs.kinds.rl import Rl
from swelab.configs.kinds.sft import Sft
from swelab.records import InputError, Record

JobOf = Callable[[Any], Job]
"""A function from a rule's wildcards to the resources that its job requests."""

SITE_FILE = recipes.CONFIGS / "site.yaml"
SITE_PYTHON = Path(__file__).resolve().parents[2] / "envs" / "site_python.sh"
IMAGE = ".sif"
SANDBOX_MINUTES = 480
"""Time limit of a job with sandboxes."""
WARNING = "URG@60"
"""The signal that a job's steps get before they end. Programs ignore this signal by default.

If the cluster has `PreemptParameters=send_user_signal`, this signal replaces SIGTERM at the start of a
preemption's grace time. SIGTERM would end Ray, verl and servers before a checkpoint is saved.
"""


def check_site(site: Site, experiment: Experiment) -> None:
    """Raises InputError if the site lacks a resource that a recipe of the experiment needs."""
    train = site.environments.train
    nodes = recipes.load_named(SFT, experiment.sft).job.nodes
    if nodes > 1 and isinstance(train, str) and train.endswith(IMAGE):
        what = f"sft {experiment.sft!r} trains on {nodes} nodes, and site.environments.train is an image"
        raise InputError(what, SITE_FILE, "a folder or modules: srun, which starts it, is not in the image")
    if site.partitions.gpu:
        return
    jobs = [("policy", name, policy_job(recipes.load_named(POLICY, name))) for name in experiment.acting]
    jobs.append(("sft", experiment.sft, sft_job(recipes.load_named(SFT, experiment.sft))))
    jobs += [("rl", name, rl_job(recipes.load_named(RL, name), 1)) for name in rl_names(experiment)]
    for kind, name, job in jobs:
        if job and job.gpus:
            what = f"site.partitions.gpu is empty, and {kind} {name!r} asks for {job.gpus} GPUs"
            raise InputError(what, SITE_FILE, "a partition")


def sft_job(recipe: Sft) -> Job:
    """Returns the resources that a fine-tuning job requests from a cluster."""
    job = recipe.job
    shared = {key: getattr(job, key) for key in ("nodes", "gpus", "mem_mb", "minutes")}
    return Job(cpus=recipe.train.threads * (job.gpus or job.ranks), **shared)


def rl_job(recipe: Rl, workers: int) -> Job:
    """Returns the resources that a job of reinforcement learning requests from a cluster.

    workers: number of sandboxes that a job may run at once. They count if the recipe has no key `job`.
    """
    if "job" in recipe.model_fields_set:
        return recipe.job
    # At least 2, because the policy's server and the sandboxes work at the same time.
    cpus = max(2, workers, recipe.train.threads * recipe.train.ranks)
    return Job(cpus=cpus, mem_mb=sandboxes_mb(workers), minutes=SANDBOX_MINUTES)


def rl_names(experiment: Experiment) -> list[str]:
    """Returns the RL recipes whose weights a policy of the experiment has."""
    policies = [recipes.load_named(POLICY, name) for name in experiment.acting]
    weights = {getattr(policy, "weights", "") for policy in policies}
    return sorted(each.removeprefix("rl:") for each in weights if each.startswith("rl:"))


def chosen_experiment(settings: Config, configs: Path = recipes.CONFIGS) -> str:
    """Returns a note if the experiment comes from the site file and is not the usual one, otherwise "".

    Without the profile, the same command would build the usual experiment.
    """
    usual = recipes.load(CONFIG, configs / "config.yaml").experiment
    site_file = configs / SITE_FILE.name
    if not settings.site or not site_file.is_file() or settings.experiment == usual:
        return ""
    if recipes.load(CONFIG, site_file).experiment != settings.experiment:
        return ""  # the command names it
    chosen = f"experiment {settings.experiment}: {site_file} names it, which --profile slurm reads"
    return f"{chosen}; without the profile it is {usual}; --config experiment={usual} builds that here"


def submission(site: Site | None) -> dict[str, str]:
    """Returns environment variables that give sbatch the options of every job."""
    if not site:
        return {}
    given = {"signal": WARNING, **site.sbatch.plain()}
    return {f"SBATCH_{name.upper()}": value for name, value in given.items() if value}


def options(site: Site) -> list[str]:
    """Returns the options of every job for srun, which does not read the variables of sbatch."""
    return [f"--{name}={value}" for name, value in site.sbatch.plain().items() if value]


def on_nodes(site: Site | None) -> str:
    """Returns a shell line that sets up a job on a compute node, or "" if nothing is to be set up.

    The line has no effect on other machines.
    """
    steps = [f"module load {quote(name)}" for name in (site.modules if site else [])]
    if site and site.scratch:
        steps.append(f"export SWELAB_SCRATCH={quote(site.scratch)}")
    return _there(steps)


def shell_setup(site: Site | None) -> str:
    """Returns the prefix of every rule's shell lines.

    The prefix sets up the node. It defines the functions that enter a rule's environment: `in_training` and
    `with_servers`.
    """
    functions = {"in_training": "train", "with_servers": "serve"}
    defined = [f"{name}() {{ {environment(site, of)}:; }}; " for name, of in functions.items()]
    return on_nodes(site) + "".join(defined)


def environment(site: Site | None, name: str) -> str:
    """Returns a shell line that makes the next command use the environment `name` on a node.

    For `train`, the command runs with the environment's Python. For `serve`, the model servers that the
    command starts run with the environment's Python.
    """
    chosen = getattr(site.environments, name, "") if site else ""
    if not chosen:
        return ""
    python, steps = str(SITE_PYTHON), []
    if isinstance(chosen, list):
        steps.append(f"export SWELAB_MODULES={quote(' '.join(chosen))}")
    elif chosen.endswith(IMAGE):
        steps.append(f"export SWELAB_IMAGE={quote(chosen)}")
    else:
        python = f"{chosen}/bin/python"
    if name == "serve":
        return _there([*steps, f"export SWELAB_SERVE_PYTHON={quote(python)}"])
    return _there([*steps, f'python() {{ {quote(python)} "$@"; }}'])


def _there(steps: list[str]) -> str:
    """Returns a shell line that runs the steps only inside a SLURM job."""
    return f'if [ -n "${{SLURM_JOB_ID:-}}" ]; then {"; ".join(steps)}; fi; ' if steps else ""


def sandboxes_mb(workers: int) -> int:
    """Returns the memory in MB that the first attempt of a job with `workers` sandboxes requests."""
    return 2000 + 1000 * workers


def plain_job(cpus: int | Callable[[Any], int] = 1, mem_mb: int = 2000, minutes: int = 60) -> JobOf:
    """Returns the resources of a job without a GPU. The CPUs may depend on the wildcards."""
    return lambda wildcards: Job(
        cpus=cpus(wildcards) if callable(cpus) else cpus, mem_mb=mem_mb, minutes=minutes
    )


def _geometry(kind: str, job: JobOf) -> Record:
    """Returns the resources for GPUs on one node, or for several nodes.

    On several nodes, the job itself starts its processes.
    """

    def on_one(wildcards: Any) -> int:
        return job(wildcards).gpus if job(wildcards).nodes == 1 else 0

    def on_several(wildcards: Any) -> int:
        nodes = job(wildcards).nodes
        return nodes if nodes > 1 else 0

    def gres(wildcards: Any) -> str | None:
        gpus = job(wildcards).gpus
        return ":".join(filter(None, ["gpu", kind, str(gpus)])) if gpus and on_several(wildcards) else None

    return {
        "gpu": lambda wildcards: on_one(wildcards) or None,
        "gpu_model": lambda wildcards: kind or None if on_one(wildcards) else None,
        "gres": gres,
        "nodes": lambda wildcards: on_several(wildcards) or (1 if on_one(wildcards) else None),
        "mpi": lambda wildcards: "srun" if on_several(wildcards) else None,
        "tasks": lambda wildcards: on_several(wildcards) or None,
        "tasks_per_gpu": lambda wildcards: 0 if on_several(wildcards) else None,
    }


def resources(site: Site | None, job: JobOf) -> Record:
    """Returns a rule's resources. Each attempt after the first requests more memory and time than `job` has.

    Without a cluster only the CPUs matter. They set the number of workers, limited by the job's threads.
    """
    if not site:
        return {"cpus_per_task": lambda wildcards, threads: threads}
    partitions, longest, most = site.partitions, site.max_minutes, site.max_mem_mb

    def memory(wildcards: Any, attempt: int) -> int:
        """Limits the memory to that of a node, unless the recipe itself requests more memory."""
        first = job(wildcards).mem_mb
        return min(first * attempt, max(first, most))

    return {
        "slurm_partition": lambda wildcards: partitions.gpu if job(wildcards).gpus else partitions.cpu,
        "cpus_per_task": lambda wildcards: job(wildcards).cpus,
        **_geometry(site.gpu_type, job),
        "mem_mb": memory,
        "runtime": lambda wildcards, attempt: min(job(wildcards).minutes * attempt, longest),
    }
