"""Runs a command with a container engine of its own, which goes with it. As root.

.venv/bin/python -m benchmarks.own_engine .venv/bin/python -m benchmarks.grading ...
"""

import os
import subprocess
import sys

from swelab.console.terminal import run_script
from swelab.records import InputError
from tests.contract.engine import engine_end, start_engine, why_not


def main() -> int:
    if reason := why_not():
        raise InputError(reason, expected="a machine that can start dockerd")
    if not sys.argv[1:]:
        raise InputError("no command", expected=".venv/bin/python -m benchmarks.own_engine COMMAND ...")
    engine = start_engine()
    try:
        return subprocess.run(sys.argv[1:], env={**os.environ, "DOCKER_HOST": engine.address}).returncode
    finally:
        engine_end(engine)


if __name__ == "__main__":
    run_script(main)
