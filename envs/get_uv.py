"""Finds the program uv on this machine, or installs it from the package index."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pip_settings import index_fault, read, surroundings, without_password

PINS = Path(__file__).with_name("uv.txt")
HOME = PINS.resolve().parents[1] / ".venv-uv"
INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


class Failed(Exception):
    """An environment could not be made. The message is one line."""


def get_uv() -> str:
    """Returns the path of uv: the value of UV, or else the pinned version in PATH or .venv-uv. Raises Failed.

    Sets environment variables, so that pip and uv use the package indexes of the user's pip settings.
    """
    python = str(HOME / "bin/python")
    pip = [python, "-Im", "pip"]
    with lock(HOME):
        if not output([python, "-Ic", INDEX]):
            with replacing(HOME):
                run([sys.executable, "-m", "venv", str(HOME)], f"no virtual environment at {HOME}")
        os.environ["PIP_QUIET"] = "0"  # otherwise pip lists nothing
        default = run([python, "-Ic", INDEX], "pip does not start").strip()
        settings = {"index-url": default} | read(run([*pip, "config", "list"], "pip does not start"))
        environment = surroundings(settings, dict(os.environ))
        os.environ.clear()
        os.environ.update(environment)
        if not os.access(Path.home(), os.W_OK):
            os.environ.setdefault("UV_CACHE_DIR", str(HOME / "cache"))
        index = os.environ["UV_DEFAULT_INDEX"]
        if not {"PIP_NO_INDEX", "UV_OFFLINE"} & {*os.environ} and (fault := index_fault(index)):
            what = f"the package index {without_password(index)} does not answer"
            raise Failed(f"{what}: {fault} (PIP_INDEX_URL names another)")
        if named := os.environ.get("UV"):
            run([named, "--version"], f"UV={named} does not start")
            return named
        pin = next(line.split()[0] for line in PINS.read_text().splitlines() if line.startswith("uv=="))
        own = str(HOME / "bin/uv")
        for program in (shutil.which("uv"), own):
            if program and pin.removeprefix("uv==") in output([program, "--version"]).split():
                return program
        advice = "set UV=/path/to/uv"
        run(
            [*pip, "install", "-q", "--no-deps", "--force-reinstall", "-r", str(PINS)],
            f"the index gave no {pin} ({advice})",
        )
        run([own, "--version"], f"{pin} does not start on this machine ({advice})")
        return own


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[None]:
    """Removes a folder before the block makes it again, and removes it also if the block fails."""
    shutil.rmtree(folder, ignore_errors=not folder.exists())
    try:
        yield
    except BaseException as error:
        free = shutil.disk_usage(folder.absolute().parent).free
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, Failed) and free < 4 << 20:
            fault = f"No space left on device for {folder}; free some, then `make` anew"
            raise Failed(fault) from None
        raise


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Locks a folder during the block. Prints who holds the lock if it has to wait."""
    with open(f"{folder}.lock", "a+") as holder:
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder.seek(0)
            who = holder.read().strip() or "another process"
            print(f"waiting: {who} installs {folder}; Ctrl-C ends the waiting", file=sys.stderr, flush=True)
            fcntl.flock(holder, fcntl.LOCK_EX)
        holder.truncate(0)
        here = f"process {os.getpid()} of user {os.getuid()} on {os.uname().nodename}"
        holder.write(f"{here}, since {time.strftime('%H:%M')},")
        holder.flush()
        yield


def run(command: list[str], fault: str, **variables: str) -> str:
    """Runs a command and returns its output. Raises Failed with `fault` and the command's error."""
    environment = {**os.environ, "UV_NO_WRAP": "1", **variables}  # otherwise uv wraps at 80 columns
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise Failed(f"{fault}: {error}") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        named = [line for line in lines if line.strip().lower().startswith(("error:", "cause:"))]
        message = "; ".join(line.partition(":")[2].strip() for line in named) or lines[-1]
        raise Failed(f"{fault}: {message[:600]}")
    return done.stdout


def output(command: list[str]) -> str:
    """Runs a command and returns its output, or "" if it fails."""
    try:
        return run(command, "")
    except Failed:
        return ""
