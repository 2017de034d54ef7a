"""The `swe-agent` scaffold: writes configurations of SWE-agent, in the format of version 1.1.0.

Prompts and tools come from a configuration file in SWE-agent's format, of which only the section `agent` is
used. Model, limits and instances come from our recipes, so that a policy is the same in every scaffold. No
secret is written to a file. The token for the model's address is passed in an environment variable.
"""

import base64
import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds.policy import CheckpointPolicy, HostedPolicy, Sampling
from swelab.configs.kinds.scaffold import SweAgentScaffold
from swelab.models.serving.server import Endpoint
from swelab.records import InputError, Record
from swelab.records.task_records import Task

KEY_VARIABLE = "SWELAB_SWEAGENT_KEY"
CHUNK = 32 << 10
"""Size of a chunk in characters. A command is passed to `bash -n` as one argument, which may have 128 KiB."""
NOT_OURS = ("model", "name", "type")


def agent_section(path: str) -> Record:
    """Returns the section `agent` of a SWE-agent configuration, without the model, which comes from the
    policy. Raises InputError if there is no such file, no such section, or another type of agent."""
    found = recipes.read_yaml(path)
    section = found.get("agent") if isinstance(found, dict) else None
    if not isinstance(section, dict) or not section:
        raise InputError("no section agent", path, "a configuration of SWE-agent")
    if section.get("type", "default") != "default":
        raise InputError(f"an agent of type {section['type']}", path, "the default agent")
    return {name: part for name, part in section.items() if name not in NOT_OURS}


def hosted_model(endpoint: Endpoint, policy: HostedPolicy, scaffold: SweAgentScaffold) -> Record:
    """Returns the section `agent.model` for a hosted model behind our gateway, which has the key and the
    sampling settings."""
    return {
        "name": f"openai/{endpoint.model}",
        "api_base": endpoint.url,
        "api_key": f"${KEY_VARIABLE}",
        "per_instance_cost_limit": scaffold.cost_limit,
        "max_output_tokens": policy.sampling.max_tokens,
        **_sampling_keys(policy.sampling, scaffold),
        "top_p": None,
        "completion_kwargs": {},
    }


def served_model(endpoint: Endpoint, policy: CheckpointPolicy, scaffold: SweAgentScaffold) -> Record:
    """Returns the section `agent.model` for weights behind `endpoint`. The section limits calls, because
    calls cost nothing."""
    sampling = policy.sampling
    room = policy.context_length - sampling.max_tokens
    if room <= 0:
        raise InputError(
            f"sampling.max_tokens {sampling.max_tokens} leaves no room in a context of "
            f"{policy.context_length} tokens",
            f"policy {endpoint.model}",
        )
    base = endpoint.url.rstrip("/")
    return {
        "name": f"openai/{endpoint.model}",
        "api_base": base if base.endswith("/v1") else f"{base}/v1",
        "api_key": f"${KEY_VARIABLE}",
        "per_instance_cost_limit": 0,
        "max_input_tokens": room,
        **_sampling_keys(sampling, scaffold),
        "top_p": sampling.top_p,
        "completion_kwargs": {"max_tokens": sampling.max_tokens, "seed": sampling.seed},
    }


def _sampling_keys(sampling: Sampling, scaffold: SweAgentScaffold) -> Record:
    retry = {"retries": scaffold.retries, "min_wait": 1, "max_wait": 60}
    return {
        "total_cost_limit": 0,
        "per_instance_call_limit": scaffold.call_limit,
        "temperature": sampling.temperature,
        "retry": retry,
    }


def prices(endpoint: Endpoint) -> Record:
    """Returns prices of 0 for calls to our own server, in LiteLLM's form, under every name that SWE-agent may
    use."""
    free = {"litellm_provider": "openai", "mode": "chat", "supports_function_calling": True}
    free |= {"input_cost_per_token": 0, "output_cost_per_token": 0}
    return dict.fromkeys((endpoint.model, f"openai/{endpoint.model}"), free)


def instance(
    task: Task,
    image: str,
    workdir: str,
    start: tuple[str, Mapping[str, bytes]],
    scaffold: SweAgentScaffold,
    labels: Mapping[str, str],
) -> Record:
    """Returns one entry of an instance file of type expert_file.

    image: reference of an image in the container engine. workdir: path of the repository. start: (shell line
    to run in the repository, files that the line needs). In the line, {folder} is replaced by the folder that
    contains the files. labels: labels of the container. The repository is not reset, because a reset would
    fetch later commits from its origin.
    """
    marks = [f"--label={name}={value}" for name, value in labels.items()]
    deployment: Record = {
        "type": "docker",
        "image": image,
        "pull": "never",
        "python_standalone_dir": scaffold.python_standalone_dir,
        "docker_args": [*scaffold.docker_args, *marks],
        "startup_timeout": scaffold.startup_seconds,
        **({"port": scaffold.port} if scaffold.port else {}),
    }
    return {
        "env": {
            "deployment": deployment,
            "repo": {"type": "preexisting", "repo_name": workdir.strip("/"), "reset": False},
            "post_startup_commands": start_commands(*start),
            "post_startup_command_timeout": 900,
        },
        "problem_statement": {
            "type": "text",
            "text": task.problem_statement,
            "id": task.instance_id,
        },
    }


def start_commands(line: str, files: Mapping[str, bytes]) -> list[str]:
    """Returns commands that put `files` into a folder of the container, run `line`, and remove the folder.
    The agent continues in the same shell. The commands are not in the shell's history."""
    folder = "/tmp/swelab-start"
    text = base64.b64encode(_pack(files)).decode()
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    return [
        "set +o history",
        f"rm -rf {folder} && mkdir -p {folder}",
        *(f"printf %s {chunk} >> {folder}/packed" for chunk in chunks),
        f"base64 -d {folder}/packed | tar -xz -C {folder} && rm {folder}/packed",
        line.format(folder=folder),
        f"rm -rf {folder}; history -c; set -o history",
    ]


def _pack(files: Mapping[str, bytes]) -> bytes:
    """Returns a compressed tar archive. The same files give the same bytes."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), mtime=0)


def write_run(
    folder: Path, section: Record, scaffold: SweAgentScaffold, instances: list[Record], workers: int
) -> Path:
    """Writes the files for one `sweagent run-batch` next to its `folder`. Returns the path of the
    configuration. section: the section `agent`, with its model."""
    listed = folder.with_name(f"{folder.name}.instances.json")
    listed.write_text(json.dumps(instances, indent=1), encoding="utf-8")
    configuration = {
        "agent": section,
        "instances": {"type": "expert_file", "path": str(listed)},
        "output_dir": str(folder),
        "num_workers": workers,
        "progress_bar": False,
        "random_delay_multiplier": scaffold.start_delay,
    }
    path = folder.with_name(f"{folder.name}.config.json")  # JSON is valid YAML
    path.write_text(json.dumps(configuration, indent=1), encoding="utf-8")
    return path
