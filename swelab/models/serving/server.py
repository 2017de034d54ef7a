"""Serves our own weights: starts an inference engine in a context manager and stops it at the end.

By default the server listens on the loopback interface and requires a random token. The token is in a private
file, because `ps` shows command lines to everybody. The server's process tree always ends with this process
(`swelab.jobs.child_process`).
"""

import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from swelab.checks.probes import answers
from swelab.files.model_config import ModelConfig
from swelab.files.weights import check_weights
from swelab.jobs.child_process import ChildProcess, fault_line, tail
from swelab.jobs.proxies import bypass
from swelab.models import ServingError
from swelab.models.serving.complete_checkpoint import complete_folder
from swelab.models.serving.engine import DEFAULT_ENGINE, Engine, ServerSettings, open_engine
from swelab.models.serving.lora import check_name
from swelab.records import InputError

POLL_SECONDS = 0.1
PORT_ATTEMPTS = 3
PORT_TAKEN = re.compile(r"address already in use|port \S+ is (already )?in use|EADDRINUSE", re.IGNORECASE)


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible service.

    url: ends in /v1. model: the served name. alive: returns whether our server still runs; always True for
    other services. engine: a key of `engine.ENGINES`. admin_key: needed to replace weights. `engine` and
    `admin_key` exist only for our servers.
    """

    url: str
    api_key: str = field(repr=False)
    model: str
    alive: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)
    engine: str = DEFAULT_ENGINE
    admin_key: str = field(default="", repr=False)


@contextmanager
def serve(
    weights: Path,
    *,
    name: str,
    context_length: int,
    max_total_tokens: int | None,
    max_running_requests: int,
    log: Path,
    base: str | Path | None = None,
    adapters: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    api_key: str | None = None,
    admin_key: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    reasoning_parser: str = "",
    startup_seconds: float = 180,
    drain_seconds: float = 5,
    python: str = "",
    extra_args: Sequence[str] = (),
    engine: str = DEFAULT_ENGINE,
    ending: Callable[[], bool] = lambda: False,
) -> Iterator[Endpoint]:
    """Serves the checkpoint folder `weights` (Hugging Face layout) during the block.

    base: folder of the base model, for files that the checkpoint lacks. adapters: maps names to LoRA folders.
    context_length, max_total_tokens: tokens of a context, and of the cache. If max_total_tokens is None, the
    engine uses most of a GPU's memory, or a default size on a CPU. device: auto, cpu or cuda. dtype: auto is
    float32 on a CPU. python: interpreter with the engine (by default $SWELAB_SERVE_PYTHON or this one).
    reasoning_parser: see `ServerSettings`. ending: returns whether to stop waiting for the start.
    drain_seconds: time for running requests at the end. Enter the block from a thread that outlives it.
    Raises InputError before anything starts. Raises ServingError if there is no port, or if the server dies
    or is not ready in time.
    """
    check_name(name)
    python = python or os.environ.get("SWELAB_SERVE_PYTHON", "") or sys.executable
    with complete_folder(weights, base) as folder:
        config = _check_sizes(folder, context_length, max_total_tokens)
        on_cpu = (find_device(python) if device == "auto" else device) == "cpu"
        settings = ServerSettings(
            folder, config, name, api_key or new_key(), admin_key or new_key(), host,
            context_length, max_total_tokens, max_running_requests,
            on_cpu, dtype, adapters or {}, extra_args, python, reasoning_parser,
        )  # fmt: skip
        server, url = _start(open_engine(engine), settings, port, log, startup_seconds, ending)
        try:
            alive = lambda: server.poll() is None  # noqa: E731
            yield Endpoint(f"{url}/v1", settings.key, name, alive, engine, settings.admin_key)
        finally:
            server.stop(drain_seconds)


def _check_sizes(weights: Path, context_length: int, max_total_tokens: int | None) -> ModelConfig:
    """Checks the sizes against the checkpoint's config.json, and returns the config. Raises InputError."""
    config = check_weights(weights)
    longest = config.get("max_position_embeddings", context_length)
    if max_total_tokens is not None and max_total_tokens < context_length:
        what = f"max_total_tokens {max_total_tokens}"
        raise InputError(what, weights, f"at least {context_length}, the context")
    if context_length > longest:
        raise InputError(f"context_length {context_length}", weights, f"at most {longest}, the model's own")
    return config


def find_device(python: str) -> str:
    """Returns `cuda` if the torch of the interpreter `python` can use a GPU, otherwise `cpu`."""
    if not Path("/dev/nvidiactl").exists():
        return "cpu"
    probe = [python, "-c", "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"]
    done = subprocess.run(probe, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "cpu"


def _start(
    engine: Engine,
    settings: ServerSettings,
    port: int | None,
    log: Path,
    startup_seconds: float,
    ending: Callable[[], bool],
) -> tuple[ChildProcess, str]:
    """Returns (a ready server, its address). Tries another free port if another program takes the chosen port
    first."""
    bypass(host := settings.host)
    if port is not None and not is_free(port, host):
        raise ServingError(f"port {port} of {host} is in use or not allowed; expected a free one")
    for attempt in range(PORT_ATTEMPTS):
        chosen = port if port is not None else free_port(host)
        url = f"http://{host}:{chosen}"
        program = engine.program(settings, chosen)
        with open_log(log) as stream:
            server = ChildProcess(program.arguments, env=program.environment, log=stream, files=program.files)
        try:
            _wait_until_ready(server, engine, url, settings, log, startup_seconds, ending)
            return server, url
        except BaseException as error:
            server.stop(grace_seconds=0)
            again = isinstance(error, ServingError) and PORT_TAKEN.search(tail(log))
            if not again or port is not None or attempt == PORT_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def open_log(path: Path) -> IO[bytes]:
    """Opens an empty log file with mode 0600. Raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path, "a file for the log") from None


def _wait_until_ready(
    server: ChildProcess,
    engine: Engine,
    url: str,
    settings: ServerSettings,
    log: Path,
    startup_seconds: float,
    ending: Callable[[], bool],
) -> None:
    deadline = time.monotonic() + startup_seconds
    while time.monotonic() < deadline and not ending():
        if (status := server.poll()) is not None:
            raise ServingError(f"the model server ended with {status}: {fault_line(log)}; log: {log}")
        if answers(url, engine.listens) and _generates(url, settings):
            if (served := engine.weights(url, settings.key).folder) != settings.folder:
                raise ServingError(f"{url} serves {served}; expected {settings.folder}")
            return
        time.sleep(POLL_SECONDS)
    raise ServingError(f"no model server in {startup_seconds:g} s: {fault_line(log)}; log: {log}")


def _generates(url: str, settings: ServerSettings) -> bool:
    body = {"model": settings.name, "prompt": "a", "max_tokens": 1, "temperature": 0}
    headers = {"Authorization": f"Bearer {settings.key}"}
    try:
        status = httpx.post(f"{url}/v1/completions", headers=headers, json=body, timeout=60).status_code
    except httpx.HTTPError:
        return False
    if status == 401:
        raise ServingError(f"{url} belongs to another server; address already in use")
    return status == 200


def new_key() -> str:
    """Returns a random token."""
    return secrets.token_hex(24)


def free_port(host: str = "127.0.0.1") -> int:
    """Returns a TCP port that is free now at an address."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_free(port: int, host: str) -> bool:
    """Returns whether a server could listen on `port` of the address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            return False
    return True
