"""Finds Python 3.11 for the environments, or lets uv fetch its own build of it into the clone."""

import os
import sys
from pathlib import Path

from get_uv import Failed, output, run

VERSION = "3.11"
"""The version for which the packages are pinned."""
HOME = Path(__file__).resolve().parents[1] / ".python"


def get_python(uv: str) -> str:
    """Returns the path of a Python 3.11: the one that runs this program, or else uv's build in HOME.

    uv checks the hash of its build. Raises Failed if this machine has no Python 3.11 and uv gets none.
    """
    this = ".".join(map(str, sys.version_info[:2]))
    if this == VERSION:
        return sys.executable
    os.environ.setdefault("UV_PYTHON_INSTALL_DIR", str(HOME))
    place = os.environ["UV_PYTHON_INSTALL_DIR"]
    find = [uv, "python", "find", "--managed-python", "--no-project", VERSION]
    if not (python := output(find).strip()):
        print(f"fetching Python {VERSION} into {place}: {sys.executable} is {this}", flush=True)
        advice = (
            f"set PYTHON=/path/to/python{VERSION}, install the distribution's package python{VERSION}, or "
            "name a mirror of uv's builds of Python in UV_PYTHON_INSTALL_MIRROR"
        )
        run(
            [uv, "python", "install", "--no-bin", "--managed-python", VERSION],
            f"no Python {VERSION} here ({sys.executable} is {this}), and uv gets none ({advice})",
            UV_PYTHON_DOWNLOADS="manual",
        )
        python = output(find).strip()
    if not python:
        raise Failed(f"{place} has no Python {VERSION}, although uv has installed it")
    return python
