"""Finds the program SWE-agent in its own environment, checks its version, runs it and watches it."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path

from swelab.jobs.child_process import ChildProcess, fault_line, tail
from swelab.models import ServingError
from swelab.models.service_words import Ends, judge_text
from swelab.records import Fault, InputError, shorten

PROGRAM_VARIABLE = "SWELAB_SWEAGENT"
DEFAULT = ".venv-swe-agent/bin/sweagent"
VERSIONS = {"1.1.0"}
POLL_SECONDS = 0.5
STOP_SECONDS = 20
_VERSION_LINE = re.compile(r"SWE-agent version (\S+)")
_LACKS = re.compile(r"No module named [\w'.]+")
_OURS = ("SWE_AGENT_CONFIG_DIR", "SWE_AGENT_TOOLS_DIR", "SWE_AGENT_TRAJECTORY_DIR", "SWE_AGENT_CONFIG_ROOT")


class AgentFailed(Fault):
    """SWE-agent ended too early, or hung. Its finished instances are kept."""


def find_program() -> str:
    """Returns the path of the program `sweagent`.

    It is taken from $SWELAB_SWEAGENT, otherwise from where `make swe-agent` installs it, otherwise from the
    PATH. Raises InputError if the program is missing, does not start, or has another version.
    """
    given = os.environ.get(PROGRAM_VARIABLE, "")
    expected = f"SWE-agent {' or '.join(sorted(VERSIONS))} (make swe-agent, or ${PROGRAM_VARIABLE})"
    found = shutil.which(given) if given else shutil.which(DEFAULT) or shutil.which("sweagent")
    if not found:
        raise InputError("no such program", given or "sweagent", expected)
    program = str(Path(found).absolute())
    try:
        process = subprocess.run(
            [program, "--help"],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"does not start: {shorten(str(error))}", program, expected) from None
    said = (process.stdout + process.stderr).decode(errors="replace")
    version = _VERSION_LINE.search(said)
    if process.returncode or not version:
        last = said.strip().splitlines()[-1:] or ["it printed nothing"]
        raise InputError(f"does not tell its version: {shorten(last[0])}", program, expected)
    if version[1] not in VERSIONS:
        raise InputError(f"this is version {version[1]}", program, expected)
    return program


def _environment() -> dict[str, str]:
    """Returns this process's environment variables, without variables that would change the run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SWE_AGENT_") or k in _OURS}
    return kept | {"COLUMNS": "400", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONUNBUFFERED": "1"}


def run_batch(
    program: str,
    config: Path,
    folder: Path,
    *,
    secrets: dict[str, str],
    hidden: Collection[str],
    stall_seconds: float,
    alive: Callable[[], bool],
    done: Callable[[], None],
    log: Path,
) -> None:
    """Runs `sweagent run-batch` with a configuration.

    The program's output is written to `log`, and its files to `folder`. secrets: variables that are added to
    the program's environment. hidden: variables of this process that are removed. done: a function that is
    called regularly. The program and all its processes end with this process. They also end if the model
    server is no longer `alive`, or if nothing below `folder` changes for `stall_seconds`. Raises AgentFailed,
    ServingError.
    """
    with open(log, "ab") as stream:
        start = stream.tell()
        process = ChildProcess(
            lambda scratch: [program, "run-batch", "--config", str(config)],
            env={k: v for k, v in _environment().items() if k not in hidden} | secrets,
            log=stream,
        )
        try:
            code = _watch(process, folder, stall_seconds, alive, done)
        finally:
            process.stop(STOP_SECONDS)
    if code is None:
        raise AgentFailed(f"{program} did nothing for {stall_seconds:g} s and was ended; see {log}")
    if not alive():
        raise ServingError(f"the model server has ended; see {log}")
    if code:
        raise AgentFailed(f"{program} ended with exit status {code}: {_complaint(log, start)}; see {log}")


def _watch(
    process: ChildProcess, folder: Path, stall: float, alive: Callable[[], bool], done: Callable[[], None]
) -> int | None:
    """Returns the exit status. Returns 0 if the model server ended first, and None if the program hangs."""
    changed, looked = time.time(), time.monotonic()
    while (code := process.poll()) is None and alive():
        time.sleep(POLL_SECONDS)
        if time.monotonic() - looked >= min(10, stall / 4):
            looked = time.monotonic()
            changed = max(changed, _newest(folder))
            done()
            if time.time() - changed > stall:
                return None
    return code or 0


def _newest(folder: Path) -> float:
    """Returns the time of the last change in a run's folder or in the folders of its instances."""
    newest = 0.0
    for place in (folder, *(path for path in _entries(folder) if path.is_dir())):
        for path in _entries(place):
            try:
                newest = max(newest, path.stat().st_mtime)
            except OSError:
                continue
    return newest


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _complaint(log: Path, start: int) -> str:
    """Returns the line that explains why a run ended, from the text in `log` since byte `start`."""
    size = log.stat().st_size - start
    lines = [" ".join(line.strip("│╭╮╰╯─ \t").split()) for line in tail(log, max(size, 1)).splitlines()]
    for word in ("Input should", "not permitted", "Error:"):  # pydantic's details say more
        if wanted := [line for line in lines if word in line]:
            return shorten(wanted[-1])
    return fault_line(log)


def hopeless(text: str) -> str:
    """Returns why a retry would end with the same last message `text`, or '' if a retry might end
    differently."""
    if lacks := _LACKS.search(text):
        return f"SWE-agent's environment is not whole: {lacks[0]}; expected envs/swe-agent.txt"
    if "Error calculating cost" in text:
        return "LiteLLM knows no price for this model; expected cost_limit: 0 in the scaffold"
    return f"the model service refused: {shorten(text)}" if judge_text(text).ends == Ends.RUN else ""


def abort_reason(folder: Path) -> str:
    """Returns why SWE-agent aborted a batch, from the run's own log, or '' if the batch was not aborted.
    SWE-agent's exit code is 0 in either case."""
    try:
        lines = (folder / "run_batch.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    said = [line for line in lines if "Exiting because" in line]
    return shorten(said[-1].partition("Exiting because")[2].strip(" .")) if said else ""
