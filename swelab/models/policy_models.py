"""Makes the models of a policy, one per rollout, all with mini-swe-agent's Model protocol."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from swelab.configs.kinds.policy import CheckpointPolicy, Policy, ScriptedPolicy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.files.weights import manifest_digest
from swelab.lineage import weights_paths
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.hosted import HostedModel
from swelab.models.chat.open_hosted import open_service
from swelab.models.chat.scripted import ScriptedModel, read_repairs, with_repair
from swelab.models.chat.scripted_debugging import ScriptedDebugger
from swelab.models.chat.scripted_functions import FunctionScript
from swelab.models.chat.served_models import ChatModel
from swelab.models.chat.text_model import TextModel
from swelab.models.model_values import with_model_values
from swelab.models.serving.engine import DEFAULT_ENGINE, open_engine
from swelab.models.serving.fleet import serve_fleet
from swelab.models.serving.server import Endpoint
from swelab.records import InputError, digest, sha256_file
from swelab.records.task_records import Task

STARTUP_SECONDS = 1800
"""Time limit in seconds for the start of a server, long enough for large weights on a slow disk. The wait
stops at once if the server ends."""

ADAPTER = "adapter"
"""Name under which a policy's LoRA adapter is served."""

ModelFor = Callable[[Task], TextModel]


def of_sample(policy: Policy, sample: int) -> Policy:
    """Returns the policy for sample number `sample`, whose seed is `seed + sample`. Recorded policies have no
    seed."""
    if not sample or policy.kind == "recorded":
        return policy
    if policy.kind == "scripted":
        return policy.model_copy(update={"seed": policy.seed + sample})
    sampling = policy.sampling.model_copy(update={"seed": policy.sampling.seed + sample})
    return policy.model_copy(update={"sampling": sampling})


def same_again(policy: Policy) -> str:
    """Returns a one-line reason why all samples of a policy may be equal, or '' if no reason is known."""
    if policy.kind == "scripted" or policy.kind == "recorded":
        return ""
    if (policy.samples or 1) > 1 and policy.sampling.temperature == 0:
        return f"{policy.samples} samples at temperature 0 differ by the server's arithmetic alone, if at all"
    return ""


def print_note(policy: Policy, name: str) -> None:
    """Prints the reason of `same_again`, if there is one."""
    if note := same_again(policy):
        print(f"note: {name}: {note}", file=sys.stderr)


def weights_digest(policy: Policy) -> str:
    """Returns the digest of a policy's weights, which is part of a rollout's key.

    Returns '' if the weights are not served here.

    The digest includes an adapter and the files of a base model. Raises InputError if the weights or their
    manifest do not exist.
    """
    if policy.kind != "checkpoint":
        return ""
    weights = _own_digest(policy)
    beside = [weights_paths(policy.base or "")[0], policy.adapter or ""]
    if not weights or not any(beside):
        return weights
    hashes = [
        {path.name: sha256_file(path) for path in sorted(Path(folder).iterdir()) if is_beside(path)}
        for folder in beside
        if folder and Path(folder).is_dir()
    ]
    return digest([weights, hashes])


def is_beside(path: Path) -> bool:
    """Returns whether a file of an adapter, or a file beside a model's weights, affects answers."""
    return path.is_file() and (path.suffix in (".json", ".jinja", ".txt") or path.name.startswith("adapter_"))


def _own_digest(policy: CheckpointPolicy) -> str:
    folder, manifest = weights_paths("" if policy.endpoint else policy.weights)
    if manifest:
        return manifest_digest(Path(manifest))
    return folder_digest(Path(folder)) if folder else ""


def folder_digest(folder: Path) -> str:
    """Returns the digest of weights without a manifest, and of the files beside them that affect answers.
    Raises InputError if the folder has no weights."""
    if not any(folder.glob("*.safetensors")):
        raise InputError("no weights (*.safetensors)", folder, "a folder in Hugging Face layout")
    files = [path for path in sorted(folder.iterdir()) if path.suffix == ".safetensors" or is_beside(path)]
    return digest({path.name: sha256_file(path) for path in files})


@contextmanager
def open_policy(
    policy: Policy, name: str, scaffold: MiniLoop, log: Path, paid: PaidRun
) -> Iterator[ModelFor]:
    """Yields a function that returns the model for a task's rollout.

    A checkpoint is served during the block, on the resources of its `job`. paid: records the cost of a hosted
    model's calls. Raises InputError, ServingError, BudgetSpent.
    """
    policy = with_model_values(policy)
    if policy.kind == "scripted":
        repairs, script = read_repairs(policy), _script(policy, scaffold)
        yield lambda task: script(with_repair(task, repairs), policy, scaffold)
    elif policy.kind == "hosted":
        with open_service(policy, name, scaffold, paid.ledger) as service:
            yield lambda task: HostedModel(service, scaffold, lambda: paid.turns(task))
    elif policy.kind == "checkpoint":
        with open_endpoint(policy, name, log) as endpoint:
            yield lambda task: served_model(policy, endpoint, scaffold)
    else:
        raise InputError(
            f"policy {name} is {policy.kind}", expected="a scripted, hosted or checkpoint policy"
        )


@contextmanager
def open_endpoint(policy: CheckpointPolicy, name: str, log: Path) -> Iterator[Endpoint]:
    """Yields the address and key of a policy's model, for another program that sends requests.

    A checkpoint is served as in `open_policy`. For hosted models see `swelab.models.chat.gateway`. Raises
    InputError, ServingError.
    """
    if policy.endpoint:
        key = os.environ.get(policy.api_key_env or "", "")
        yield Endpoint(url=policy.endpoint, api_key=key, model=name)
    else:
        engine = policy.engine or DEFAULT_ENGINE
        adapter, base = policy.adapter, weights_paths(policy.base or "")[0]
        with serve_fleet(
            Path(weights_paths(policy.weights)[0]),
            name=name,
            base=base or None,
            adapters={ADAPTER: adapter} if adapter else {},
            dtype=policy.dtype or "auto",
            reasoning_parser=policy.reasoning_parser or "",
            engine=engine,
            job=policy.job,
            context_length=policy.context_length,
            max_total_tokens=policy.max_total_tokens,
            max_running_requests=policy.max_running_requests,
            startup_seconds=STARTUP_SECONDS,
            log=log,
        ) as served:
            lent = open_engine(engine).adapter_model(name, ADAPTER)
            yield replace(served, model=lent) if adapter else served


def served_model(policy: CheckpointPolicy, endpoint: Endpoint, scaffold: MiniLoop) -> ChatModel:
    """Returns the model of one rollout of a policy that is served at `endpoint`."""
    sampling = policy.sampling
    return ChatModel(endpoint, scaffold, sampling.values, sampling.origins)


def _script(
    policy: ScriptedPolicy, scaffold: MiniLoop
) -> type[ScriptedDebugger | FunctionScript | ScriptedModel]:
    """Returns the class of a scripted policy's model."""
    if scaffold.debugger:
        return ScriptedDebugger
    return FunctionScript if policy.edits == "function" else ScriptedModel
