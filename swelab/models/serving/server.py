"""A server of our own weights: sglang, started in a context manager and ended with it.

The server listens on the loopback interface, unless told otherwise, behind a random token, which it reads
from a file that it alone can read (a command line is public in `ps`). It lives in a process tree that ends
with us, however we end (`swelab.jobs.child_process`). Answers at temperature 0 are reproducible; sglang
heeds a request's seed only with `--enable-deterministic-inference`, which needs a GPU.
"""

import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from swelab.files.weights import check_weights
from swelab.jobs.child_process import Tethered, fault_line, tail
from swelab.jobs.proxies import bypass
from swelab.models import ServingError
from swelab.models.serving.complete_checkpoint import completed
from swelab.models.serving.lora import adapter_flags, check_name
from swelab.records import InputError

SHIMS = Path(__file__).resolve().parent / "shims"
POLL_SECONDS = 0.1
PORT_ATTEMPTS = 3
PORT_TAKEN = re.compile(r"address already in use|port \S+ is (already )?in use|EADDRINUSE", re.IGNORECASE)

CPU_FLAGS = ("--device", "cpu", "--attention-backend", "torch_native")
CPU_CACHE = 65536
"""Tokens in the cache of a server on a CPU where nothing else is said."""
SETTINGS = {"random-seed": 0, "skip-server-warmup": True, "log-level": "warning"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible service: `url` ends in /v1, `model` is the name that it serves.

    `alive` tells whether a server of ours still runs; a service that others run counts as alive.
    """

    url: str
    api_key: str = field(repr=False)
    model: str
    alive: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)


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
    device: str = "auto",
    dtype: str = "auto",
    startup_seconds: float = 180,
    drain_seconds: float = 5,
    python: str = "",
    extra_args: Sequence[str] = (),
    ending: Callable[[], bool] = lambda: False,
) -> Iterator[Endpoint]:
    """Serves the checkpoint folder `weights` (Hugging Face layout) while the block runs.

    `base`: folder of the model that completes what the checkpoint lacks; `adapters`: LoRA folders by name.
    `context_length` is in tokens; `max_total_tokens` bounds the cache in tokens (without a bound sglang takes
    most of the memory of a GPU; on a CPU there is always one). `device` is auto, cpu or cuda. On CPU dtype
    auto is float32. `python` has sglang: SWELAB_SERVE_PYTHON, or else this interpreter. Must be entered from
    a thread that outlives the block. `ending` tells that it is no longer worth waiting for; `drain_seconds`
    are given in the end to requests that run.

    Raises InputError before anything starts; ServingError: no port, the server ends or is not ready in time.
    """
    check_name(name)
    python = python or os.environ.get("SWELAB_SERVE_PYTHON", "") or sys.executable
    key = api_key or new_key()
    with completed(weights, base) as folder:
        config = _check_sizes(folder, context_length, max_total_tokens)
        on_cpu = (find_device(python) if device == "auto" else device) == "cpu"
        sizes = {"context-length": context_length, "max-running-requests": max_running_requests}
        if bound := max_total_tokens or (max(CPU_CACHE, context_length) if on_cpu else None):
            sizes["max-total-tokens"] = bound
        names = {"host": host, "model-path": str(folder), "served-model-name": name, "api-key": key}
        flags = [*device_flags(on_cpu, dtype), *adapter_flags(adapters or {}, on_cpu), *extra_args]
        environment = _environment(on_cpu, config, python)
        told = SETTINGS | names | sizes
        server, url = _start(told, flags, environment, port, python, log, startup_seconds, ending)
        try:
            yield Endpoint(f"{url}/v1", key, name, alive=lambda: server.poll() is None)
        finally:
            server.stop(drain_seconds)


def device_flags(on_cpu: bool, dtype: str) -> list[str]:
    """sglang's options for a device and the type of the weights: auto, float32, bfloat16 or float16."""
    if on_cpu:
        return [*CPU_FLAGS, "--dtype", "float32" if dtype == "auto" else dtype]
    return ["--dtype", dtype]


def _check_sizes(weights: Path, context_length: int, max_total_tokens: int | None) -> dict:
    """The checkpoint's config.json. Raises InputError."""
    config = check_weights(weights)
    longest = config.get("max_position_embeddings", context_length)
    if max_total_tokens is not None and max_total_tokens < context_length:
        what = f"max_total_tokens {max_total_tokens}"
        raise InputError(what, weights, f"at least {context_length}, the context")
    if context_length > longest:
        raise InputError(f"context_length {context_length}", weights, f"at most {longest}, the model's own")
    return config


def find_device(python: str) -> str:
    """`cuda` when there is a GPU that the torch of `python` can use, else `cpu`."""
    if not Path("/dev/nvidiactl").exists():
        return "cpu"
    probe = [python, "-c", "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"]
    done = subprocess.run(probe, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "cpu"


def _environment(on_cpu: bool, config: dict, python: str) -> dict[str, str]:
    environment = {**os.environ, **OFFLINE, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
    if on_cpu:
        path = [str(SHIMS), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        environment |= {
            "SGLANG_USE_CPU_ENGINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path),
        }
    if skipped := other_architectures(config, python):
        environment["SGLANG_DISABLED_MODEL_ARCHS"] = ",".join(skipped)
    return environment


def other_architectures(config: dict, python: str) -> list[str]:
    """sglang's model modules that do not define the checkpoint's architecture: it need not import them.

    Empty, so that all are imported, where no module defines it by name. Raises ServingError when
    `python` has no sglang.
    """
    probe = "from importlib.util import find_spec; print(find_spec('sglang').submodule_search_locations[0])"
    found = subprocess.run([python, "-c", probe], capture_output=True, text=True)
    if found.returncode:
        raise ServingError(f"sglang is not installed for {python}; expected the requirements in envs/")
    modules = sorted(Path(found.stdout.strip(), "srt", "models").glob("*.py"))
    wanted = re.compile(rf"^class ({'|'.join(map(re.escape, config['architectures']))})\b", re.MULTILINE)
    keep = {path.stem for path in modules if wanted.search(path.read_text(encoding="utf-8"))}
    return [path.stem for path in modules if path.stem not in keep] if keep else []


def _start(
    settings: dict,
    flags: list[str],
    environment: dict[str, str],
    port: int | None,
    python: str,
    log: Path,
    startup_seconds: float,
    ending: Callable[[], bool],
) -> tuple[Tethered, str]:
    """A ready server and its address; another free port is tried when one is taken in between."""
    bypass(host := settings["host"])
    if port is not None and not is_free(port, host):
        raise ServingError(f"port {port} of {host} is in use or not allowed; expected a free one")
    for attempt in range(PORT_ATTEMPTS):
        chosen = port if port is not None else free_port(host)
        url = f"http://{host}:{chosen}"
        recipe = json.dumps({**settings, "port": chosen}).encode()
        with open_log(log) as stream:
            server = Tethered(
                lambda folder: [
                    python,
                    "-m",
                    "sglang.launch_server",
                    "--config",
                    f"{folder}/server.yaml",
                    *flags,
                ],
                env=environment,
                log=stream,
                files={"server.yaml": recipe},
            )
        try:
            _wait_until_ready(server, url, settings, log, startup_seconds, ending)
            return server, url
        except BaseException as error:
            server.stop(grace_seconds=0)
            again = isinstance(error, ServingError) and PORT_TAKEN.search(tail(log))
            if not again or port is not None or attempt == PORT_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def open_log(path: Path) -> IO[bytes]:
    """An empty log for our eyes only. Raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path, "a file for the log") from None


def _wait_until_ready(
    server: Tethered,
    url: str,
    settings: dict,
    log: Path,
    startup_seconds: float,
    ending: Callable[[], bool],
) -> None:
    deadline = time.monotonic() + startup_seconds
    while time.monotonic() < deadline and not ending():
        if (status := server.poll()) is not None:
            raise ServingError(f"the model server ended with {status}: {fault_line(log)}; log: {log}")
        if _answers(f"{url}/health") and _generates(url, settings):
            return
        time.sleep(POLL_SECONDS)
    raise ServingError(f"no model server in {startup_seconds:g} s: {fault_line(log)}; log: {log}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except (OSError, http.client.HTTPException):
        return False


def _generates(url: str, settings: dict) -> bool:
    body = {"model": settings["served-model-name"], "prompt": "a", "max_tokens": 1, "temperature": 0}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {settings['api-key']}"}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status == 200
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise ServingError(f"{url} belongs to another server; address already in use") from None
        return False
    except (OSError, http.client.HTTPException):
        return False


def new_key() -> str:
    """A random token."""
    return secrets.token_hex(24)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of the address that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def is_free(port: int, host: str) -> bool:
    """Whether a server could listen on `port` of the address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            return False
    return True
