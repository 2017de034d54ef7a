"""The file configs/config.yaml: the default experiment, and settings that do not affect results."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.choices import BACKENDS, meanings
from swelab.configs.recipe_model import OneOf, OrAbsent, Recipe

EnvironmentModule = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+/-]+$")]
Environment = Annotated[str, Field(pattern=r"^(/.*)?$")] | list[EnvironmentModule]


class Partitions(Recipe):
    """The SLURM partitions for jobs with and without a GPU."""

    cpu: str = Field(min_length=1, description="partition of jobs without a GPU")
    gpu: str = Field("", description="partition of jobs with GPUs; empty if the cluster has none")


class Sbatch(Recipe):
    """Options for every SLURM submission. Empty options are omitted."""

    account: str = Field("", description="account that is charged for the time")
    qos: str = Field("", description="quality of service")
    reservation: str = Field("", description="reservation")
    constraint: str = Field("", description="features that nodes must have")


class Environments(Recipe):
    """Environments of GPU jobs: a folder with bin/python, an apptainer image (.sif), or a list of modules. An
    empty value means the workflow's own environment."""

    train: Environment = Field("", description="environment of train_sft")
    serve: Environment = Field("", description="environment of the model servers in rollouts")


class Site(Recipe):
    """The cluster that runs the jobs, as configs/site.yaml describes it. These settings do not affect
    results."""

    partitions: Partitions
    gpu_type: str = Field(
        "", description="GRES type of the requested GPUs, as in gpu:<type>:<count>; empty for any type"
    )
    sbatch: Sbatch = Sbatch()
    max_minutes: int = Field(
        1440, ge=1, description="longest time limit that the partitions accept, in minutes"
    )
    max_mem_mb: int = Field(
        64000, ge=1, description="memory of a node in MB; a retried job requests at most this much"
    )
    network: bool = Field(
        False,
        description="whether compute nodes can reach the internet; if so, rules that fetch may run on them",
    )
    modules: list[EnvironmentModule] = Field(
        [], description="environment modules that each job loads on its node, in this order"
    )
    environments: Environments = Environments()
    scratch: str = Field(
        "",
        description="folder for sandboxes on the local disk of each node; if empty, they are in memory or, "
        "without enough of it, in /tmp",
    )


class Config(Recipe):
    """The file configs/config.yaml: the default experiment, and settings that do not affect results."""

    experiment: str = Field(description="name of a recipe under configs/experiments, without .yaml")
    workers: int = Field(
        2, ge=1, le=256, description="number of sandboxes that a job runs at the same time; changes no result"
    )
    toolbox: str = Field(
        ".venv-sandbox", description="virtual environment with the test runner, which sandboxes can read"
    )
    executor: Literal["local", "ray"] = Field(
        "local",
        description="where the rollouts and gradings of a job run: in threads of the job, or on the Ray "
        "cluster at $RAY_ADDRESS; changes no result",
    )
    backend: Annotated[str, OneOf(BACKENDS)] = Field(
        "bubblewrap", description=f"what makes the sandboxes: {meanings(BACKENDS)}; changes no result"
    )
    image_prefix: str = Field(
        "", description="registry mirror, put before the names of images; changes no result"
    )
    images_at_once: int = Field(
        4, ge=1, le=64, description="number of images that are pulled at the same time"
    )
    images_may_fail: int = Field(
        0,
        ge=0,
        description="number of images of a subset that may fail to be pulled; the tasks of these images are "
        "marked as broken in the lock",
    )
    rollouts_at_once: int = Field(
        16,
        ge=1,
        le=4096,
        description="number of rollouts at the same time: for each server that a job starts, or for the "
        "whole job if others serve its model; changes no result",
    )
    site: OrAbsent[Site] = None
