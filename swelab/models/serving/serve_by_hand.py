"""A server started from the command line: its token in a file, kept running until it is stopped."""

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
    """Serves until Ctrl-C; `token` holds the access token meanwhile. `settings` are those of `open_fleet`.

    The key is that of the environment variable `key_env`, or else random. Raises InputError before anything
    starts, also when another server uses `token` or `log`; ServingError when the server does not start, or
    does not come up again.
    """
    key, began = chosen_key(key_env, host), time.monotonic()
    endings: dict[str, Any] = {"api_key": key, "host": host, "log": log, "startup_seconds": STARTUP_SECONDS}
    check_free(token)
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
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
    """The key of an environment variable, or a random one where it is not set.

    Raises InputError on a key that others could guess when the server listens to others.
    """
    key = os.environ.get(key_env, "") if key_env else ""
    if key and not is_loopback(host) and len(key) < SHORTEST_KEY:
        what = f"the key in ${key_env} has {len(key)} characters and the server listens on {host}"
        raise InputError(what, expected=f"at least {SHORTEST_KEY}, or none at all for a random one")
    return key or new_key()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def further_options(text: str, engine: str = DEFAULT_ENGINE, gpus: int = 1) -> list[str]:
    """Options of an engine: those for several GPUs, and others as a shell splits them.

    Raises InputError on a secret or an odd quote.
    """
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
    """Raises InputError where a running server uses a file, before another starts for minutes."""
    if token.exists():
        hold(token).close()


def hold(path: Path) -> IO[bytes]:
    """`path`, opened for our eyes only and ours until it is closed or we end; its content stays.

    Raises InputError when another server holds it, or it cannot be written.
    """
    while True:
        try:
            stream = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        except OSError as error:
            told = f"cannot be written: {error.strerror}"
            raise InputError(told, path, "a file for the token or log") from None
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            expected = "--token and --log with other files for a second server"
            raise InputError("a running server uses this file", path, expected) from None
        if _is_at(stream, path):
            return stream
        stream.close()  # a server that ended removed it in this moment


def _is_at(stream: IO[bytes], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    return False


@contextmanager
def private_file(path: Path, text: str) -> Iterator[None]:
    """A file for our eyes only while the block runs. Raises InputError as `hold` does."""
    with hold(path) as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.truncate(0)
        stream.write(text.encode())
        stream.flush()
        try:
            yield
        finally:
            if _is_at(stream, path):  # another process may have put another server's file in its place
                path.unlink()
