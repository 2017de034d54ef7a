"""Starts a container engine as root, runs a command with it, and stops the engine.

.venv/bin/python -m benchmarks.own_engine .venv/bin/python -m benchmarks.grading ...
"""

import argparse
import os
import subprocess

from swelab.console.terminal import run_script
from swelab.records import InputError
from tests.contract.engine import engine_end, start_engine, why_not


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its words")
    command = parser.parse_args().command
    if not command:
        parser.error("no command")
    if reason := why_not():
        raise InputError(reason, expected="a machine that can start dockerd")
    engine = start_engine()
    try:
        return subprocess.run(command, env={**os.environ, "DOCKER_HOST": engine.address}).returncode
    finally:
        engine_end(engine)


if __name__ == "__main__":
    run_script(main)
