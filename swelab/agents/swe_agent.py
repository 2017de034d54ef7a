"""The `swe-agent` scaffold: writes configurations of SWE-agent, in the format of version 1.1.0.

Prompts and tools come from a configuration file in SWE-agent's format, of which only the section `agent` is
used. Model, limits and instances come from our recipes, so that a policy is the same in every scaffold. No
secret is written to a file. The token for the model's address is passed in an environment variable.
"""

import base64
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds.policy import CheckpointPolicy, HostedPolicy
from swelab.configs.kinds.sampling import Sampling
from swelab.configs.kinds.scaffold import SweAgentScaffold
from swelab.jobs.child_process import ChildProcess, fault_line, tail
from swelab.models import ServingError
from swelab.models.service_words import Ends, judge_text
from swelab.models.serving.server import Endpoint
from swelab.records import Fault, InputError, Record, shorten
from swelab.records.task_records import Task
from swelab.sampling_settings import chat_fields

PROGRAM_VARIABLE = "SWELAB_SWEAGENT"
DEFAULT = ".venv-swe-agent/bin/sweagent"
VERSIONS = {"1.1.0"}
POLL_SECONDS = 0.5
STOP_SECONDS = 20
_VERSION_LINE = re.compile(r"SWE-agent version (\S+)")
_LACKS = re.compile(r"No module named [\w'.]+")
_OURS = ("SWE_AGENT_CONFIG_DIR", "SWE_AGENT_TOOLS_DIR", "SWE_AGENT_TRAJECTORY_DIR", "SWE_AGENT_CONFIG_ROOT")


class AgentFailed(Fault):
    """SWE-agent ended too early, or hung. Its finished instances are kept."""


def find_program() -> str:
    """Returns the path of the program `sweagent`.

    It is taken from $SWELAB_SWEAGENT, otherwise from where `make swe-agent` installs it, otherwise from the
    PATH. Raises InputError if the program is missing, does not start, or has another version.
    """
    given = os.environ.get(PROGRAM_VARIABLE, "")
    expected = f"SWE-agent {' or '.join(sorted(VERSIONS))} (make swe-agent, or ${PROGRAM_VARIABLE})"
    found = shutil.which(given) if given else shutil.which(DEFAULT) or shutil.which("sweagent")
    if not found:
        raise InputError("no such program", given or "sweagent", expected)
    program = str(Path(found).absolute())
    try:
        process = subprocess.run(
            [program, "--help"],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"does not start: {shorten(str(error))}", program, expected) from None
    said = (process.stdout + process.stderr).decode(errors="replace")
    version = _VERSION_LINE.search(said)
    if process.returncode or not version:
        last = said.strip().splitlines()[-1:] or ["it printed nothing"]
        raise InputError(f"does not tell its version: {shorten(last[0])}", program, expected)
    if version[1] not in VERSIONS:
        raise InputError(f"this is version {version[1]}", program, expected)
    return program


def _environment() -> dict[str, str]:
    """Returns this process's environment variables, without variables that would change the run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SWE_AGENT_") or k in _OURS}
    return kept | {"COLUMNS": "400", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONUNBUFFERED": "1"}


def run_batch(
    program: str,
    config: Path,
    folder: Path,
    *,
    secrets: dict[str, str],
    hidden: Collection[str],
    stall_seconds: float,
    alive: Callable[[], bool],
    done: Callable[[], None],
    log: Path,
) -> None:
    """Runs `sweagent run-batch` with a configuration.

    The program's output is written to `log`, and its files to `folder`. secrets: variables that are added to
    the program's environment. hidden: variables of this process that are removed. done: a function that is
    called regularly. The program and all its processes end with this process. They also end if the model
    server is no longer `alive`, or if nothing below `folder` changes for `stall_seconds`. Raises AgentFailed,
    ServingError.
    """
    with open(log, "ab") as stream:
        start = stream.tell()
        process = ChildProcess(
            lambda scratch: [program, "run-batch", "--config", str(config)],
            env={k: v for k, v in _environment().items() if k not in hidden} | secrets,
            log=stream,
        )
        try:
            code = _watch(process, folder, stall_seconds, alive, done)
        finally:
            process.stop(STOP_SECONDS)
    if code is None:
        raise AgentFailed(f"{program} did nothing for {stall_seconds:g} s and was ended; see {log}")
    if not alive():
        raise ServingError(f"the model server has ended; see {log}")
    if code:
        raise AgentFailed(f"{program} ended with exit status {code}: {_complaint(log, start)}; see {log}")


def _watch(
    process: ChildProcess, folder: Path, stall: float, alive: Callable[[], bool], done: Callable[[], None]
) -> int | None:
    """Returns the exit status. Returns 0 if the model server ended first, and None if the program hangs."""
    changed, looked = time.time(), time.monotonic()
    while (code := process.poll()) is None and alive():
        time.sleep(POLL_SECONDS)
        if time.monotonic() - looked >= min(10, stall / 4):
            looked = time.monotonic()
            changed = max(changed, _newest(folder))
            done()
            if time.time() - changed > stall:
                return None
    return code or 0


def _newest(folder: Path) -> float:
    """Returns the time of the last change in a run's folder or in the folders of its instances."""
    newest = 0.0
    for place in (folder, *(path for path in _entries(folder) if path.is_dir())):
        for path in _entries(place):
            try:
                newest = max(newest, path.stat().st_mtime)
            except OSError:
                continue
    return newest


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _complaint(log: Path, start: int) -> str:
    """Returns the line that explains why a run ended, from the text in `log` since byte `start`."""
    size = log.stat().st_size - start
    lines = [" ".join(line.strip("│╭╮╰╯─ \t").split()) for line in tail(log, max(size, 1)).splitlines()]
    for word in ("Input should", "not permitted", "Error:"):  # pydantic's details say more
        if wanted := [line for line in lines if word in line]:
            return shorten(wanted[-1])
    return fault_line(log)


def hopeless(text: str) -> str:
    """Returns why a retry would end with the same last message `text`, or '' if a retry might end
    differently."""
    if lacks := _LACKS.search(text):
        return f"SWE-agent's environment is not whole: {lacks[0]}; expected envs/swe-agent.txt"
    if "Error calculating cost" in text:
        return "LiteLLM knows no price for this model; expected cost_limit: 0 in the scaffold"
    return f"the model service refused: {shorten(text)}" if judge_text(text).ends == Ends.RUN else ""


def abort_reason(folder: Path) -> str:
    """Returns why SWE-agent aborted a batch, from the run's own log, or '' if the batch was not aborted.
    SWE-agent's exit code is 0 in either case."""
    try:
        lines = (folder / "run_batch.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    said = [line for line in lines if "Exiting because" in line]
    return shorten(said[-1].partition("Exiting because")[2].strip(" .")) if said else ""


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
        "completion_kwargs": _further_fields(sampling),
    }


def _further_fields(sampling: Sampling) -> Record:
    """Returns the arguments of SWE-agent's calls of LiteLLM by which the other settings are sent."""
    fields = chat_fields(sampling.values)
    named = {name: fields.pop(name) for name in ("max_tokens", "seed")}
    further = {name: each for name, each in fields.items() if name not in ("temperature", "top_p")}
    return named | ({"extra_body": further} if further else {})


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
        "problem_statement": {"type": "text", "text": task.problem_statement, "id": task.instance_id},
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
