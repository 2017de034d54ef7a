"""Serves a model from the command line until Ctrl-C, and writes the access token to a file."""

import fcntl
import ipaddress
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from swelab.configs.kinds.policy import Job
from swelab.models.serving.engine import DEFAULT_ENGINE, open_engine
from swelab.models.serving.fleet import open_fleet
from swelab.models.serving.server import new_key
from swelab.records import InputError

STARTUP_SECONDS = 1800
SHORTEST_KEY = 16
CONTEXT = 32768


def serve_by_hand(weights: Path, *, token: Path, key_env: str, host: str, log: Path, **settings: Any) -> None:
    """Serves until Ctrl-C. During that time the file `token` contains the access token.

    The access token comes from the environment variable `key_env`, or is random. settings: as for
    `open_fleet`. Raises InputError before anything starts, for example if another server uses `token` or
    `log`. Raises ServingError if the server does not start or restart.
    """
    key, began = chosen_key(key_env, host), time.monotonic()
    endings: dict[str, Any] = {"api_key": key, "host": host, "log": log, "startup_seconds": STARTUP_SECONDS}
    check_free(token)
    with (
        hold(log),
        open_fleet(weights, job=Job(), **settings, **endings) as (fleet, endpoint),
        private_file(token, endpoint.api_key + "\n"),
    ):
        seconds = time.monotonic() - began
        lent = "".join(f", also as {endpoint.model}:{name}" for name in settings.get("adapters") or {})
        print(f"{endpoint.url} serves {endpoint.model}{lent}; its token is in {token}", flush=True)
        print(f"ready and warm after {seconds:.0f} s; log: {log}", file=sys.stderr, flush=True)
        try:
            fleet.await_end()
        except KeyboardInterrupt:
            print("stopped", flush=True)


def chosen_key(key_env: str, host: str) -> str:
    """Returns the key in an environment variable, or a random key if the variable is not set. Raises
    InputError if the key is short and other machines can reach the server."""
    key = os.environ.get(key_env, "") if key_env else ""
    if key and not is_loopback(host) and len(key) < SHORTEST_KEY:
        what = f"the key in ${key_env} has {len(key)} characters and the server listens on {host}"
        raise InputError(what, expected=f"at least {SHORTEST_KEY}, or none at all for a random one")
    return key or new_key()


def is_loopback(host: str) -> bool:
    """Returns whether an address can be reached only from this machine."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def further_options(text: str, engine: str = DEFAULT_ENGINE, gpus: int = 1) -> list[str]:
    """Returns options of an engine: the options for `gpus` GPUs, then the options in `text`, split as a shell
    does. Raises InputError for a reserved option or an unclosed quote."""
    chosen = open_engine(engine)
    try:
        options = shlex.split(text)
    except ValueError as error:
        raise InputError(f"cannot be split: {error}", repr(text), f"options of {engine}'s server") from None
    for option in options:
        name = option.partition("=")[0]
        if len(name) > 2 and any(each.startswith(name) for each in chosen.refused_options):
            raise InputError(f"{name} among further options", expected="--api-key-env, --host or --port here")
    return [*(chosen.gpu_options(gpus, 0) if gpus != 1 else ()), *options]


def check_free(token: Path) -> None:
    """Raises InputError if a running server uses the token file. Call this before starting a server, because
    a start takes minutes."""
    if token.exists():
        hold(token).close()


def hold(path: Path) -> IO[bytes]:
    """Opens `path` with mode 0600 and locks it until it is closed. Makes its folder. The content is kept.
    Raises InputError if another server holds the lock, or if the file cannot be written."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        except OSError as error:
            fault = f"cannot be written: {error.strerror}"
            raise InputError(fault, path, "a file for the token or log") from None
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            expected = "--token and --log with other files for a second server"
            raise InputError("a running server uses this file", path, expected) from None
        if _is_at(stream, path):
            return stream
        stream.close()  # another server removed the file in between


def _is_at(stream: IO[bytes], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    return False


@contextmanager
def private_file(path: Path, text: str) -> Iterator[None]:
    """Writes `text` to a file of mode 0600 that exists during the block. Raises InputError as `hold` does."""
    with hold(path) as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.truncate(0)
        stream.write(text.encode())
        stream.flush()
        try:
            yield
        finally:
            if _is_at(stream, path):  # keep a file that another server created meanwhile
                path.unlink()
