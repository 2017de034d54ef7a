"""From a policy recipe to models: one per rollout, all behind mini-swe-agent's Model protocol."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from swelab.experiment import weights_paths
from swelab.models.chat import ChatModel, HostedModel
from swelab.models.fleet import serve_fleet
from swelab.models.scripted import ScriptedModel
from swelab.models.serving import Endpoint
from swelab.records import InputError, Record, digest, read_json, sha256_file

STARTUP_SECONDS = 1800
"""For large weights on a slow disk; a server that ends while it starts is seen at once."""

ModelFor = Callable[[Record], object]


def weights_digest(policy: Record) -> str:
    """What stands for a policy's weights in the key of a rollout: '' for a policy without weights of ours.

    Raises InputError when the weights, or the manifest beside them, are not there.
    """
    folder, manifest = weights_paths(policy)
    if manifest:
        return read_json(manifest)["digest"]
    if not folder:
        return ""
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise InputError("no weights (*.safetensors)", folder, "a folder in Hugging Face layout")
    return digest([sha256_file(path) for path in files])


@contextmanager
def open_policy(policy: Record, name: str, scaffold: Record, log: Path) -> Iterator[ModelFor]:
    """A function from a task to the model that acts in its rollout.

    A checkpoint is served by sglang for as long as the block lasts, as its `job` says. Raises InputError,
    ServingError.
    """
    if policy["kind"] == "scripted":
        yield lambda task: ScriptedModel(task, policy, scaffold)
    elif policy["kind"] == "hosted":
        yield lambda task: HostedModel(
            policy["model"], policy.get("api_key_env"), policy.get("api_base"), scaffold, policy["sampling"]
        )
    elif policy.get("endpoint"):
        key = os.environ.get(policy.get("api_key_env", ""), "")
        endpoint = Endpoint(url=policy["endpoint"], api_key=key, model=name)
        yield lambda task: ChatModel(endpoint, scaffold, policy["sampling"])
    else:
        folder = Path(weights_paths(policy)[0])
        with serve_fleet(
            folder,
            name=name,
            job=policy["job"],
            context_length=policy["context_length"],
            max_total_tokens=policy["max_total_tokens"],
            max_running_requests=policy["max_running_requests"],
            startup_seconds=STARTUP_SECONDS,
            log=log,
        ) as endpoint:
            yield lambda task: ChatModel(endpoint, scaffold, policy["sampling"])
