"""Runs the commands of models and the tests of tasks in sandboxes."""

import os
from pathlib import Path

from swelab.choices import BACKENDS
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

_DEFAULT = "bubblewrap"


def backend_name() -> str:
    """Returns the name of the backend to use: $SWELAB_BACKEND, by default bubblewrap."""
    return os.environ.get("SWELAB_BACKEND") or _DEFAULT


def open_backend(name: str | None = None, *, toolbox: Path | None = None) -> Backend:
    """Returns the backend with this name, after a check that the backend works on this machine.

    name: by default `backend_name()`. toolbox: the venv that sandboxes see at /opt/toolbox. By default it is
    $SWELAB_TOOLBOX, or .venv-sandbox next to the package. Raises BackendMissing.
    """
    name = name or backend_name()
    if name not in BACKENDS:
        raise BackendMissing(f"no sandbox backend is called {name!r}; there are: {', '.join(BACKENDS)}")
    backend = BACKENDS[name].load()
    opened: Backend = backend(toolbox or toolbox_path()) if name == _DEFAULT else backend()
    return opened
