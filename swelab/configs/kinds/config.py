"""The file configs/config.yaml: the default experiment, and settings that do not affect results."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import OrAbsent, Recipe

EnvironmentModule = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+/-]+$")]
Environment = Annotated[str, Field(pattern=r"^(/.*)?$")] | list[EnvironmentModule]


class Partitions(Recipe):
    """The SLURM partitions for jobs with and without a GPU."""

    cpu: str = Field(min_length=1, description="for jobs without a GPU")
    gpu: str = Field("", description="for jobs with GPUs; empty where there is none")


class Sbatch(Recipe):
    """Options for every SLURM submission. Empty options are omitted."""

    account: str = Field("", description="whom the time is charged to")
    qos: str = Field("", description="quality of service")
    reservation: str = Field("", description="reserved nodes")
    constraint: str = Field("", description="features that nodes must have")


class Environments(Recipe):
    """Environments of GPU jobs: a folder with bin/python, an apptainer image (.sif), or a list of modules. An
    empty value means the workflow's own environment."""

    train: Environment = Field("", description="of train_sft")
    serve: Environment = Field("", description="of the model servers in rollouts")


class Site(Recipe):
    """The cluster that runs the jobs, as configs/site.yaml describes it. These settings do not affect
    results."""

    partitions: Partitions
    gpu_type: str = Field(
        "", description="GRES type of the GPUs to ask for, as in gpu:<type>:<count>; empty for any"
    )
    sbatch: Sbatch = Sbatch()
    max_minutes: int = Field(1440, ge=1, description="longest job that the partitions take, in minutes")
    max_mem_mb: int = Field(
        64000, ge=1, description="memory of a node in MB: a job sent again asks for no more"
    )
    network: bool = Field(
        False, description="compute nodes reach the internet: rules that fetch may then run there"
    )
    modules: list[EnvironmentModule] = Field(
        [], description="environment modules that each job loads on its node, in this order"
    )
    environments: Environments = Environments()
    scratch: str = Field(
        "", description="folder on the disk of each node for sandboxes; empty for memory, else /tmp"
    )


class Config(Recipe):
    """The file configs/config.yaml: the default experiment, and settings that do not affect results."""

    experiment: str = Field(description="stem of a file under configs/experiments")
    workers: int = Field(2, ge=1, le=256, description="sandboxes at once in a job; changes no result")
    toolbox: str = Field(
        ".venv-sandbox", description="virtual environment that sandboxes see, with the test runner"
    )
    executor: Literal["local", "ray"] = Field(
        "local",
        description="where a job's rollouts and gradings run: in its threads, or spread over the Ray "
        "cluster at $RAY_ADDRESS; changes no result",
    )
    backend: Literal["bubblewrap", "docker", "apptainer", "remote"] = Field(
        "bubblewrap", description="what sandboxes are made with; changes no result"
    )
    image_prefix: str = Field(
        "",
        description="registry mirror that images are pulled from, put before their names; changes no result",
    )
    images_at_once: int = Field(4, ge=1, le=64, description="images pulled at once")
    images_may_fail: int = Field(
        0,
        ge=0,
        description="how many images of a subset may be missing in the end of the pull, counted and shown; "
        "their tasks are broken in the lock",
    )
    rollouts_at_once: int = Field(
        16,
        ge=1,
        le=4096,
        description="rollouts at once for each server of a model, or in a job whose model others serve; "
        "changes no result",
    )
    site: OrAbsent[Site] = None
