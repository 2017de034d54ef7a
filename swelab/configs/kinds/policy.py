"""Recipes of policies: a scripted policy, a hosted model, a served checkpoint, or recorded trajectories."""

import os
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from swelab.configs.kinds.sampling import OfPolicy, Sampling
from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe, Sha256, Word

Scaffold = Annotated[str, Field(description="name of the scaffold recipe")]
Shards = Annotated[int, Field(ge=1, le=999, description="number of jobs that share the tasks of a subset")]
Samples = Annotated[
    OrAbsent[int],
    Field(
        ge=1,
        le=999,
        description="number of attempts at each task, with the seeds seed, seed + 1, ...; 1 by default; for "
        "recorded trajectories, the number of runs in the folder",
    ),
]
MaxLost = Annotated[
    OrAbsent[int],
    Field(
        ge=0,
        description="number of instances of a shard that infrastructure may lose, in rollouts and again in "
        "grading; if more are lost, the shard fails, and the same command continues it; 0 by "
        "default; changes no result",
    ),
]


class ScriptedPolicy(Recipe):
    """A script that knows the repairs, and fails on a given share of the tasks."""

    kind: Literal["scripted"]
    scaffold: Scaffold
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None
    seed: int = Field(0, description="seed that selects the failures")
    wrong_edit: float = Field(0.0, ge=0, le=1, description="share of tasks with a wrong edit")
    give_up: float = Field(0.0, ge=0, le=1, description="share of tasks without an edit")
    edits: Literal["line", "function"] = Field(
        "line",
        description="how the agent mini edits: line: by the shell; function: with the scaffold's commands "
        "`show` and `fix`, looking at no more than the issue names, and trying again after a wrong edit",
    )
    repairs: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="JSON Lines file of predictions: the repairs of tasks whose rows have no repair; the "
        "policy gives up on other such tasks",
    )


class Rates(Recipe):
    """The service's rate limits for each API key. A job paces its requests to stay within these limits."""

    requests_per_minute: OrAbsent[float] = Field(None, gt=0, description="requests per minute")
    tokens_per_minute: OrAbsent[float] = Field(
        None, gt=0, description="tokens of prompts and answers per minute"
    )


class Price(Recipe):
    """Price in dollars per million tokens. If no price is given, LiteLLM's price list is used."""

    input: float = Field(ge=0, description="price of prompt tokens")
    output: float = Field(ge=0, description="price of answer tokens")
    cached_input: OrAbsent[float] = Field(
        None,
        ge=0,
        description="price of prompt tokens read from the service's cache; by default the price of prompt "
        "tokens",
    )
    cache_write: OrAbsent[float] = Field(
        None,
        ge=0,
        description="price of prompt tokens written to the service's cache; by default the price of prompt "
        "tokens",
    )


class HostedPolicy(Recipe):
    """A model that a service hosts."""

    kind: Literal["hosted"]
    scaffold: Scaffold
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None
    model: str = Field(description="model name of LiteLLM")
    api_key_env: OrAbsent[Word | Annotated[Distinct[Word], Field(min_length=1)]] = Field(
        None,
        description="environment variable with the key, or several variables; one variable may hold several "
        "keys, separated by :::",
    )
    api_base: OrAbsent[str] = Field(None, description="base address of the service")
    rates: OrAbsent[Rates] = None
    price: OrAbsent[Price] = None
    budget_dollars: OrAbsent[float] = Field(
        None,
        gt=0,
        description="maximum cost of the policy on a subset, over all shards and jobs, in dollars; it is "
        "never exceeded",
    )
    cache_last_messages: OrAbsent[int] = Field(
        None,
        ge=0,
        le=3,
        description="number of last messages that are marked for Anthropic's prompt cache, besides the first "
        "message; other services cache without marks",
    )
    sampling: Sampling = Sampling()

    @field_validator("sampling")
    @classmethod
    def _has_values(cls, sampling: Sampling) -> Sampling:
        if sampling.defaults:
            raise PydanticCustomError("sampling", "defaults: model, but a hosted model has no weights here")
        return sampling


class Job(Recipe):
    """Resources that a job requests from a cluster. They do not affect results."""

    cpus: int = Field(2, ge=1, description="number of CPUs, for sandboxes and the server")
    nodes: int = Field(1, ge=1, description="number of nodes that serve together at one address")
    servers: int = Field(
        1,
        ge=1,
        description="number of model servers per node; each server uses an equal part of the node's GPUs",
    )
    gpus: int = Field(0, ge=0, description="number of GPUs per node")
    mem_mb: int = Field(6000, ge=1, description="memory that the first attempt of the job requests")
    minutes: int = Field(480, ge=1, description="time that the first attempt of the job requests")


class CheckpointPolicy(Recipe):
    """A model whose weights swelab or the user serves."""

    kind: Literal["checkpoint"]
    scaffold: Scaffold
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None
    weights: str = Field(
        description="weights to serve: model:<name>, sft:<name>, rl:<name>, or a folder in Hugging Face "
        "layout"
    )
    base: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="model:<name>, or a folder: source of the files that the folder of the weights lacks "
        "(docs/serving.md)",
    )
    adapter: OrAbsent[str] = Field(
        None, min_length=1, description="folder of a LoRA adapter in PEFT's layout, applied to the weights"
    )
    dtype: OrAbsent[Literal["auto", "float32", "bfloat16", "float16"]] = Field(
        None,
        description="data type of the weights in the server; by default the type of the checkpoint on a GPU, "
        "float32 on a CPU",
    )
    engine: OrAbsent[Literal["sglang"]] = Field(
        None, description="inference engine that serves the weights; sglang by default"
    )
    reasoning_parser: OrAbsent[str] = Field(
        None,
        pattern="^[a-z0-9][a-z0-9_.-]*$",
        description="the engine's parser that separates the model's thoughts from its text, such as qwen3 or "
        "deepseek-r1; by default thoughts stay in the text",
    )
    endpoint: OrAbsent[str] = Field(
        None, description="address of a server that you run; then no server is started"
    )
    api_key_env: OrAbsent[str] = Field(
        None, description="environment variable with the token of the server at `endpoint`"
    )
    job: Job = Job()
    context_length: int = Field(32768, ge=16, description="maximum number of tokens of a conversation")
    max_total_tokens: int = Field(65536, ge=64, description="number of tokens in the server's cache")
    max_running_requests: int = Field(
        32, ge=1, description="maximum number of requests that the server processes at the same time"
    )
    sampling: OfPolicy = Sampling()

    @field_validator("weights", "base", "adapter")
    @classmethod
    def _below_home(cls, path: str) -> str:
        """Returns a path with the user's home in place of `~`."""
        return os.path.expanduser(path)


class RecordedPolicy(Recipe):
    """Trajectories that were recorded elsewhere."""

    kind: Literal["recorded"]
    folder: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="folder with the trajectories of SWE-agent or mini-swe-agent: <id>/<id>.traj or "
        "<id>/<id>.traj.json, at any depth",
    )
    path: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="in place of `folder`: a local copy of a published set of rows, as JSON Lines, Parquet, "
        "a JSON list, or a folder of these",
    )
    dataset: OrAbsent[str] = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        description="in place of `folder`: name of a published set of rows on the Hugging Face hub",
    )
    revision: OrAbsent[str] = Field(
        None, pattern=r"^[0-9a-f]{40}$", description="commit of the set; required with `dataset`"
    )
    split: str = Field("train", description="split of the set")
    files: list[Word] = Field(
        [], description="shell patterns of the set's files; data/<split>-*.parquet if empty"
    )
    sha256: dict[str, Sha256] = Field(
        {}, description="expected hashes of files, in addition to the hashes that the hub lists"
    )
    resolved_only: bool = Field(
        False,
        description="use only rows that the publisher marked as resolved; all rows are graded again in any "
        "case",
    )
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None

    @field_validator("folder")
    @classmethod
    def _below_home(cls, path: str) -> str:
        """Returns a path with the user's home in place of `~`."""
        return os.path.expanduser(path)


Policy = Annotated[
    ScriptedPolicy | HostedPolicy | CheckpointPolicy | RecordedPolicy, Field(discriminator="kind")
]


def policy_job(policy: Policy) -> Job | None:
    """Returns the resources that a policy's jobs request from a cluster, or None if swelab does not serve the
    policy."""
    return policy.job if policy.kind == "checkpoint" else None


def weights_of(policy: Policy) -> list[str]:
    """Returns the weights from which a policy is served: `sft:<name>`, `model:<name>`, `rl:<name>`, or
    folders. Returns [] if the policy is not served from weights."""
    return [policy.weights, *([policy.base] if policy.base else [])] if policy.kind == "checkpoint" else []


def folders_of(policy: Policy) -> list[str]:
    """Returns the inputs of a policy's rollouts.

    These are weights (see `weights_of`), an adapter's folder, recorded trajectories, or a file of repairs.

    Weights and adapter are excluded if the policy has an `endpoint`, which is a server that someone else
    runs.
    """
    if policy.kind == "recorded":
        return [policy.folder] if policy.folder else []
    if policy.kind == "scripted":
        return [os.path.expanduser(policy.repairs)] if policy.repairs else []
    if policy.kind != "checkpoint" or policy.endpoint:
        return []
    return [*weights_of(policy), *([policy.adapter] if policy.adapter else [])]
