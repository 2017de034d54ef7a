"""Helps the scripts with SWE-RL's names: runs their swelab command with this clone's Python."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from swelab.console.option_types import at_least as at_least  # noqa: E402


def fail(text):
    """Prints an error line and exits with 2."""
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


def run(command, *arguments, **environment):
    """Prints the command that this script stands for, and replaces this process by it."""
    python = os.environ.get("PYTHON_BIN") or ROOT / ".venv/bin/python"
    if not Path(python).exists():
        fail(f"no such program: {python}; expected `make setup`, or PYTHON_BIN")
    print(f"{Path(sys.argv[0]).name} stands for `python -m {command}`", file=sys.stderr, flush=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = os.environ | environment | {"PYTHONPATH": path}
    os.execve(python, [str(python), "-m", command, *map(str, arguments)], variables)
