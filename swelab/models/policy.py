"""From a policy recipe to models: one per rollout, all behind mini-swe-agent's Model protocol."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from swelab.lineage import weights_paths
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.hosted import HostedModel
from swelab.models.chat.open_hosted import open_service
from swelab.models.chat.scripted import ScriptedModel
from swelab.models.chat.served_models import ChatModel
from swelab.models.chat.text_model import TextModel
from swelab.models.serving.engine import DEFAULT_ENGINE, open_engine
from swelab.models.serving.fleet import serve_fleet
from swelab.models.serving.server import Endpoint
from swelab.records import InputError, Record, digest, read_json, sha256_file

STARTUP_SECONDS = 1800
"""For large weights on a slow disk; a server that ends while it starts is seen at once."""

ADAPTER = "adapter"
"""The name under which a policy's adapter is served beside its weights."""

ModelFor = Callable[[Record], TextModel]


def of_sample(policy: Record, sample: int) -> Record:
    """The policy that makes a sample: with the seed `seed + sample`, or named apart where it has no seed."""
    if not sample:
        return policy
    if "sampling" in policy:
        sampling = policy["sampling"]
        return policy | {"sampling": sampling | {"seed": sampling["seed"] + sample}}
    return policy | ({"seed": policy["seed"] + sample} if "seed" in policy else {"sample": sample})


def same_again(policy: Record) -> str:
    """Why a policy's samples may all be alike, on one line; '' when nothing says so."""
    if policy.get("samples", 1) > 1 and policy.get("sampling", {}).get("temperature") == 0:
        return (
            f"{policy['samples']} samples at temperature 0 differ by the server's arithmetic alone, if at all"
        )
    return ""


def weights_digest(policy: Record) -> str:
    """What stands for a policy's weights in the key of a rollout: '' for a policy without weights of ours.

    An adapter and the files of a base model belong to it. Raises InputError when the weights, or the manifest
    beside them, are not there.
    """
    weights = _own_digest(policy)
    beside = [weights_paths(policy.get("base", ""))[0], policy.get("adapter", "")]
    if not weights or not any(beside):
        return weights
    hashes = [
        {path.name: sha256_file(path) for path in sorted(Path(folder).iterdir()) if is_beside(path)}
        for folder in beside
        if folder and Path(folder).is_dir()
    ]
    return digest([weights, hashes])


def is_beside(path: Path) -> bool:
    """Whether a file of a base model or an adapter decides how weights are served; other weights do not."""
    return path.is_file() and (path.suffix in (".json", ".jinja", ".txt") or path.name.startswith("adapter_"))


def _own_digest(policy: Record) -> str:
    folder, manifest = weights_paths("" if policy.get("endpoint") else policy.get("weights", ""))
    if manifest:
        return read_json(manifest)["digest"]
    if not folder:
        return ""
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise InputError("no weights (*.safetensors)", folder, "a folder in Hugging Face layout")
    return digest([sha256_file(path) for path in files])


@contextmanager
def open_policy(policy: Record, name: str, scaffold: Record, log: Path, paid: PaidRun) -> Iterator[ModelFor]:
    """A function from a task to the model that acts in its rollout.

    A checkpoint is served for as long as the block lasts, as its `job` says. What a hosted model is
    paid is kept in `paid`. Raises InputError, ServingError, BudgetSpent.
    """
    if policy["kind"] == "scripted":
        yield lambda task: ScriptedModel(task, policy, scaffold)
    elif policy["kind"] == "hosted":
        with open_service(policy, name, scaffold, paid.ledger) as service:
            yield lambda task: HostedModel(service, scaffold, lambda: paid.turns(task))
    else:
        with open_endpoint(policy, name, log) as endpoint:
            yield lambda task: ChatModel(endpoint, scaffold, policy["sampling"])


@contextmanager
def open_endpoint(policy: Record, name: str, log: Path) -> Iterator[Endpoint]:
    """The service that a policy's model answers at, for a program that asks it by itself.

    A checkpoint is served as in `open_policy`; of a hosted model see `swelab.models.chat.gateway`. Raises
    InputError, ServingError.
    """
    if policy.get("endpoint"):
        key = os.environ.get(policy.get("api_key_env", ""), "")
        yield Endpoint(url=policy["endpoint"], api_key=key, model=name)
    else:
        engine = policy.get("engine", DEFAULT_ENGINE)
        adapter, base = policy.get("adapter"), weights_paths(policy.get("base", ""))[0]
        with serve_fleet(
            Path(weights_paths(policy["weights"])[0]),
            name=name,
            base=base or None,
            adapters={ADAPTER: adapter} if adapter else {},
            dtype=policy.get("dtype", "auto"),
            engine=engine,
            job=policy["job"],
            context_length=policy["context_length"],
            max_total_tokens=policy["max_total_tokens"],
            max_running_requests=policy["max_running_requests"],
            startup_seconds=STARTUP_SECONDS,
            log=log,
        ) as served:
            lent = open_engine(engine).adapter_model(name, ADAPTER)
            yield replace(served, model=lent) if adapter else served
