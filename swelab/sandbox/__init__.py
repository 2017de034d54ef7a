"""Runs the commands of models and the tests of tasks in sandboxes."""

import os
from pathlib import Path

from swelab.sandbox.bubblewrap import BubblewrapBackend
from swelab.sandbox.protocol import (
    SCRIPT_FOLDERS,
    SCRIPTS,
    WORKDIR,
    Backend,
    BackendMissing,
    CpuExceeded,
    EngineDown,
    ExecResult,
    Image,
    ImageMissing,
    LimitMet,
    Limits,
    OutOfMemory,
    PathRefused,
    Sandbox,
    SandboxError,
    SandboxFull,
    SandboxLost,
    Session,
    SessionAnswer,
    Timeout,
)
from swelab.sandbox.rootfs import toolbox_path

__all__ = [
    "BACKENDS",
    "FOR_SCRIPTS",
    "SCRIPTS",
    "SCRIPT_FOLDERS",
    "WORKDIR",
    "SessionAnswer",
    "Backend",
    "BackendMissing",
    "CpuExceeded",
    "EngineDown",
    "ExecResult",
    "Image",
    "ImageMissing",
    "LimitMet",
    "Limits",
    "OutOfMemory",
    "PathRefused",
    "Sandbox",
    "SandboxError",
    "SandboxFull",
    "SandboxLost",
    "Session",
    "Timeout",
    "backend_name",
    "open_backend",
    "toolbox_path",
]

BACKENDS = ("bubblewrap", "docker", "apptainer", "remote")
FOR_SCRIPTS = ("bubblewrap", "docker")
"""Backends whose sandboxes may have `SCRIPT_FOLDERS`."""


def backend_name() -> str:
    """Returns the name of the backend to use: $SWELAB_BACKEND, by default bubblewrap."""
    return os.environ.get("SWELAB_BACKEND") or "bubblewrap"


def open_backend(name: str | None = None, *, toolbox: Path | None = None) -> Backend:
    """Returns the backend with this name, after a check that the backend works on this machine.

    name: by default `backend_name()`. toolbox: the venv that sandboxes see at /opt/toolbox. By default it is
    $SWELAB_TOOLBOX, or .venv-sandbox next to the package. Raises BackendMissing.
    """
    name = name or backend_name()
    if name == "docker":
        from swelab.sandbox.docker_backend import DockerBackend  # the docker client is slow to import

        return DockerBackend()
    if name == "apptainer":
        from swelab.sandbox.apptainer import ApptainerBackend

        return ApptainerBackend()
    if name == "remote":
        from swelab.sandbox.remote import RemoteBackend

        return RemoteBackend()
    if name != "bubblewrap":
        raise BackendMissing(f"no sandbox backend is called {name!r}; there are: {', '.join(BACKENDS)}")
    return BubblewrapBackend(toolbox or toolbox_path())
