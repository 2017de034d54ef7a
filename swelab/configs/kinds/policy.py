"""Recipes of policies: a scripted policy, a hosted model, a served checkpoint, or recorded trajectories."""

import os
from typing import Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe, Sha256, Word

Scaffold = Annotated[str, Field(description="the scaffold recipe")]
Shards = Annotated[int, Field(ge=1, le=999, description="jobs that the subset is dealt to")]
Samples = Annotated[
    OrAbsent[int],
    Field(
        ge=1,
        le=999,
        description="attempts at each task, each with a seed of its own: seed, seed + 1, ...; 1 when not "
        "given; of recorded trajectories the runs in the folder",
    ),
]
MaxLost = Annotated[
    OrAbsent[int],
    Field(
        ge=0,
        description="how many instances of a shard may stay lost to infrastructure, in a rollout and again "
        "in grading; more fail the shard, and the same command goes on. 0 when not given; "
        "changes no result",
    ),
]


class ScriptedPolicy(Recipe):
    """A script that knows the repairs, and fails on a given share of the tasks."""

    kind: Literal["scripted"]
    scaffold: Scaffold
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None
    seed: int = Field(0, description="seed of the failures")
    wrong_edit: float = Field(0, ge=0, le=1, description="share of tasks that it edits wrongly")
    give_up: float = Field(0, ge=0, le=1, description="share of tasks that it gives up")
    repairs: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="JSON Lines of predictions: repairs of tasks whose rows have none; others are given up",
    )


class Rates(Recipe):
    """The service's rate limits for each API key. A job paces its requests to stay within these limits."""

    requests_per_minute: OrAbsent[float] = Field(None, gt=0, description="requests")
    tokens_per_minute: OrAbsent[float] = Field(None, gt=0, description="tokens of prompts and answers")


class Price(Recipe):
    """Price in dollars per million tokens. If no price is given, LiteLLM's price list is used."""

    input: float = Field(ge=0, description="of the prompt")
    output: float = Field(ge=0, description="of the answer")
    cached_input: OrAbsent[float] = Field(
        None, ge=0, description="of the prompt, read from the service's cache; as input when not given"
    )
    cache_write: OrAbsent[float] = Field(
        None, ge=0, description="of the prompt, written to the service's cache; as input when not given"
    )


class Sampling(Recipe):
    """Sampling settings of the model."""

    temperature: float = Field(0, ge=0, description="0 is greedy")
    top_p: float = Field(1, gt=0, le=1, description="nucleus")
    max_tokens: int = Field(1024, ge=1, description="tokens of one turn")
    seed: int = Field(0, description="sampling seed")


class ServedSampling(Sampling):
    """Sampling settings of a model on an OpenAI-compatible server that swelab or the user runs."""

    thinking: OrAbsent[bool] = Field(
        None,
        description="what the chat template is told by `enable_thinking`: false asks for turns without "
        "thoughts; absent tells it nothing",
    )


class HostedPolicy(Recipe):
    """A model that a service hosts."""

    kind: Literal["hosted"]
    scaffold: Scaffold
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None
    model: str = Field(description="a LiteLLM model name")
    api_key_env: OrAbsent[Word | Annotated[Distinct[Word], Field(min_length=1)]] = Field(
        None,
        description="environment variable that holds the key, or several; one may hold keys with ::: "
        "between them",
    )
    api_base: OrAbsent[str] = Field(None, description="base address of the service")
    rates: OrAbsent[Rates] = None
    price: OrAbsent[Price] = None
    budget_dollars: OrAbsent[float] = Field(
        None,
        gt=0,
        description="what the policy may cost on a subset, all shards and jobs together; never exceeded",
    )
    cache_last_messages: OrAbsent[int] = Field(
        None,
        ge=0,
        le=3,
        description="how many last messages, besides the first, are marked for Anthropic's prompt cache; "
        "other services cache by themselves",
    )
    sampling: ServedSampling = ServedSampling()


class Job(Recipe):
    """Resources that a job requests from a cluster. They do not affect results."""

    cpus: int = Field(2, ge=1, description="CPUs, for sandboxes and the server")
    nodes: int = Field(1, ge=1, description="nodes that serve together, behind one address")
    servers: int = Field(
        1,
        ge=1,
        description="model servers of each node; the weights of each are spread over its share of the GPUs",
    )
    gpus: int = Field(0, ge=0, description="GPUs of each node")
    mem_mb: int = Field(6000, ge=1, description="memory of the first attempt")
    minutes: int = Field(480, ge=1, description="time of the first attempt")


class CheckpointPolicy(Recipe):
    """A model whose weights swelab or the user serves."""

    kind: Literal["checkpoint"]
    scaffold: Scaffold
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None
    weights: str = Field(description="model:<name>, sft:<name>, or a folder in Hugging Face layout")
    base: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="model:<name>, or a folder: completes what the weights' folder lacks (docs/serving.md)",
    )
    adapter: OrAbsent[str] = Field(
        None, min_length=1, description="folder of a LoRA adapter in PEFT's layout, which acts on the weights"
    )
    dtype: OrAbsent[Literal["auto", "float32", "bfloat16", "float16"]] = Field(
        None,
        description="of the weights in the server; without it the checkpoint's on a GPU, float32 on a CPU",
    )
    engine: OrAbsent[Literal["sglang"]] = Field(
        None, description="the inference engine that serves the weights; sglang without it"
    )
    endpoint: OrAbsent[str] = Field(
        None, description="address of a server that a site keeps running, instead of starting one"
    )
    api_key_env: OrAbsent[str] = Field(
        None, description="environment variable that holds that server's token"
    )
    job: Job = Job()
    context_length: int = Field(32768, ge=16, description="tokens of a conversation")
    max_total_tokens: int = Field(65536, ge=64, description="tokens in the server's cache")
    max_running_requests: int = Field(32, ge=1, description="requests at once in the server")
    sampling: ServedSampling = ServedSampling()


class RecordedPolicy(Recipe):
    """Trajectories that were recorded elsewhere."""

    kind: Literal["recorded"]
    folder: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="where SWE-agent or mini-swe-agent left trajectories: <id>/<id>.traj or "
        "<id>/<id>.traj.json, at any depth",
    )
    path: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="instead: a local copy of a published set in rows, JSON Lines, Parquet or a JSON list, "
        "or a folder of these",
    )
    dataset: OrAbsent[str] = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        description="instead: such a set on the Hugging Face hub",
    )
    revision: OrAbsent[str] = Field(
        None, pattern=r"^[0-9a-f]{40}$", description="commit of the set; required with `dataset`"
    )
    split: str = Field("train", description="split of the set")
    files: list[Word] = Field(
        [], description="shell patterns of the set's files; data/<split>-*.parquet when empty"
    )
    sha256: dict[str, Sha256] = Field(
        {}, description="hashes that files must have, besides those that the hub lists"
    )
    resolved_only: bool = Field(
        False,
        description="of rows only those that their publisher calls resolved; they are graded anew in any "
        "case",
    )
    shards: Shards = 1
    samples: Samples = None
    max_lost: MaxLost = None


Policy = Annotated[
    ScriptedPolicy | HostedPolicy | CheckpointPolicy | RecordedPolicy, Field(discriminator="kind")
]


def policy_job(policy: Policy) -> Job | None:
    """Returns the resources that a policy's jobs request from a cluster, or None if swelab does not serve the
    policy."""
    return policy.job if policy.kind == "checkpoint" else None


def weights_of(policy: Policy) -> list[str]:
    """Returns the weights from which a policy is served: `sft:<name>`, `model:<name>` or folders. Returns []
    if the policy is not served from weights."""
    return [policy.weights, *([policy.base] if policy.base else [])] if policy.kind == "checkpoint" else []


def folders_of(policy: Policy) -> list[str]:
    """Returns the inputs of a policy's rollouts: weights as `weights_of` returns them, an adapter's folder,
    recorded trajectories, or a file of repairs.

    Weights and adapter are not included if the policy has an `endpoint`, a server that someone else runs.
    """
    if policy.kind == "recorded":
        return [policy.folder] if policy.folder else []
    if policy.kind == "scripted":
        return [os.path.expanduser(policy.repairs)] if policy.repairs else []
    if policy.kind != "checkpoint" or policy.endpoint:
        return []
    return [*weights_of(policy), *([policy.adapter] if policy.adapter else [])]
