"""Checks that the things that a run uses work: a sandbox, a service, the keys of a policy."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from swelab.checks.finding import Finding, fix, ok
from swelab.configs.experiment import key_variables
from swelab.configs.kinds.policy import Policy
from swelab.jobs.proxies import bypass
from swelab.records import Fault, shorten
from swelab.sandbox import open_backend


def sandbox_fault(name: str) -> str:
    """Returns why no command can run in a sandbox of a backend, or "" if a command can run."""
    try:
        backend = open_backend(name)
        if backend.name != "bubblewrap":
            return ""  # the images of other backends exist only after a pull
        with tempfile.TemporaryDirectory() as tree, backend.start(Path(tree)) as sandbox:
            done = sandbox.exec("/opt/toolbox/bin/python -m pytest --version")
        return "" if done.returncode == 0 else shorten(done.output.decode(errors="replace"))
    except (Fault, OSError) as error:
        return str(error)


def check_sandboxes(name: str, advice: str = "see docs/sandboxes.md") -> Finding:
    """Checks that a command runs in a sandbox of a backend.

    For backends other than bubblewrap, checks only that the backend works on this machine.
    """
    if fault := sandbox_fault(name):
        return fix(f"sandboxes ({name}): {fault}; {advice}")
    return ok(f"sandboxes ({name}): {'a command ran in one' if name == 'bubblewrap' else 'it answers'}")


def check_keys(name: str, policy: Policy) -> Iterator[Finding]:
    """Checks that the environment has the keys that a policy names. The values are not shown."""
    for variable in key_variables(policy):
        if os.environ.get(variable, "").strip(" :"):
            yield ok(f"policy {name}: {variable} is set")
        else:
            yield fix(f"policy {name}: its token is missing; export {variable}=...")


def ask(base: str, path: str, token: str | None = None, seconds: float = 10) -> httpx.Response:
    """Sends a GET request and returns the response, also if its status is an error.

    A request to this machine bypasses the proxy. base: address of the service. Raises Fault if nothing
    responds.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        host = httpx.URL(base).host
        if host.startswith("127."):  # `no_proxy` has the names of this machine already
            bypass(host)
        return httpx.get(base.rstrip("/") + path, headers=headers, timeout=seconds)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Fault(f"{base} does not answer ({shorten(str(error)) or type(error).__name__})") from None


def answers(base: str, path: str, token: str | None = None, seconds: float = 5) -> bool:
    """Returns whether a service answers a GET request with status 200."""
    try:
        return ask(base, path, token, seconds).status_code == 200
    except Fault:
        return False
