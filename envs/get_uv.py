"""The program uv: the machine's own, or from the package index into an environment of its own."""

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
    """Why there is no environment, in one line."""


def get_uv() -> str:
    """The uv that UV names, else the pinned one of the PATH or of .venv-uv. Raises Failed.

    The environment of this process then says where the user wants packages to come from, for pip and uv.
    """
    python = str(HOME / "bin/python")
    pip = [python, "-Im", "pip"]
    with held(HOME):
        if not output([python, "-Ic", INDEX]):
            with made_anew(HOME):
                run([sys.executable, "-m", "venv", str(HOME)], f"no virtual environment at {HOME}")
        os.environ["PIP_QUIET"] = "0"  # otherwise pip lists nothing
        settings = read(run([*pip, "config", "list"], "pip does not start"))
        environment = surroundings(settings, dict(os.environ))
        os.environ.clear()
        os.environ.update(environment)
        if not os.access(Path.home(), os.W_OK):
            os.environ.setdefault("UV_CACHE_DIR", str(HOME / "cache"))
        index = (
            os.environ.get("UV_DEFAULT_INDEX") or run([python, "-Ic", INDEX], "pip does not start").strip()
        )
        if not {"PIP_NO_INDEX", "UV_OFFLINE"} & {*os.environ} and (fault := index_fault(index)):
            what = f"the package index {without_password(index)} does not answer"
            raise Failed(f"{what}: {fault} (PIP_INDEX_URL names another)")
        if named := os.environ.get("UV"):
            run([named, "--version"], f"UV={named} does not start")
            return named
        wanted = next(line.split()[0] for line in PINS.read_text().splitlines() if line.startswith("uv=="))
        own = str(HOME / "bin/uv")
        for program in (shutil.which("uv"), own):
            if program and wanted.removeprefix("uv==") in output([program, "--version"]).split():
                return program
        advice = "set UV=/path/to/uv"
        run(
            [*pip, "install", "-q", "--no-deps", "--force-reinstall", "-r", str(PINS)],
            f"the index gave no {wanted} ({advice})",
        )
        run([own, "--version"], f"{wanted} does not start on this machine ({advice})")
        return own


@contextlib.contextmanager
def made_anew(folder: Path) -> Iterator[None]:
    """Removes what is there, and what was half made when the making fails: it heals no other way."""
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
def held(folder: Path) -> Iterator[None]:
    """Waits until no other process installs into a folder, and says who does."""
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


def run(command: list[str], fault: str) -> str:
    """What a command prints. Raises Failed with what it says, in one line."""
    try:
        whole_lines = {**os.environ, "UV_NO_WRAP": "1"}  # or uv cuts what it says at the 80th column
        done = subprocess.run(command, env=whole_lines, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise Failed(f"{fault}: {error}") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        named = [line for line in lines if line.strip().lower().startswith(("error:", "cause:"))]
        said = "; ".join(line.partition(":")[2].strip() for line in named) or lines[-1]
        raise Failed(f"{fault}: {said[:600]}")
    return done.stdout


def output(command: list[str]) -> str:
    """What a command prints; "" where it fails."""
    try:
        return run(command, "")
    except Failed:
        return ""
