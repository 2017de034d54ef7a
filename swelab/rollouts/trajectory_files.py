"""Finds the trajectory files of SWE-agent or mini-swe-agent, and reads the parts that are needed."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from swelab.records import InputError, Record, shorten

SWE_AGENT, MINI, ROW, ATIF = ".traj", ".traj.json", ".row.json", ".atif.json"
HARBOR = "trajectory.json"
"""Name of the ATIF document in the folder `agent` of a trial of Harbor."""
END = 1 << 18
"""Number of bytes that are first read from the end of a file."""
STEPS = re.compile(rb'\{\n  ("environment": "[^"\n]*",\n  )?"trajectory": \[\n    \{\n')
STEPS_WITHIN = 1 << 10


class Broken(Exception):
    """A recording that cannot be used. Its text is one line. Recordings are counted by the part before the
    colon."""


class _Recording(msgspec.Struct):
    history: Any = msgspec.UNSET
    messages: Any = msgspec.UNSET
    info: Any = msgspec.UNSET
    replay_config: Any = msgspec.UNSET
    trajectory_format: Any = msgspec.UNSET
    instance_id: Any = msgspec.UNSET


_DECODER = msgspec.json.Decoder(_Recording)


def recordings(folder: str | Path) -> dict[str, list[Path]]:
    """Returns the trajectory files below `folder`, sorted and keyed by instance id. Raises InputError if
    there is no such folder, or if it contains no trajectory."""
    paths: dict[str, list[Path]] = {}
    if not Path(folder).is_dir():
        raise InputError("no such folder", folder, "a folder of recorded trajectories")
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            for ending in (MINI, ROW, ATIF, SWE_AGENT):
                if name.endswith(ending) and name != ending:
                    paths.setdefault(name.removesuffix(ending), []).append(Path(place, name))
            if name == HARBOR and (task := harbor_task(Path(place, name))):
                paths.setdefault(task, []).append(Path(place, name))
    if not paths:
        raise InputError("holds no trajectory", folder, "<id>/<id>.traj, .traj.json or .atif.json")
    return paths


def harbor_task(path: Path) -> str:
    """Returns the task of a trial of Harbor, whose folder has `agent/trajectory.json` and `result.json`.
    Returns '' if it is no such folder."""
    try:
        name = json.loads(path.parent.with_name("result.json").read_bytes())["task_name"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return name if isinstance(name, str) and path.parent.name == "agent" else ""


def one_run(
    runs_of: dict[str, list[Path]], folder: str | Path, runs: int, sample: int
) -> dict[str, list[Path]]:
    """Returns the recordings of run number `sample`. A run is a folder of <id>/<id>.traj. Runs are sorted by
    name. Raises InputError if the number of runs is not `runs`."""
    there = sorted({path.parent.parent for paths in runs_of.values() for path in paths})
    if len(there) != runs:
        told = shorten(", ".join(map(str, there)))
        raise InputError(f"holds {len(there)} runs: {told}", folder, f"{runs}, as many as samples")
    mine = {
        name: [path for path in paths if path.parent.parent == there[sample]]
        for name, paths in runs_of.items()
    }
    return {name: paths for name, paths in mine.items() if paths}


def read_parts(path: Path) -> Record:
    """Reads the parts of a trajectory file that our records use. Raises Broken, OSError, ValueError.

    SWE-agent writes each step with the conversation before it, and the whole conversation after the steps. If
    a file has SWE-agent's own indentation, only the part after the steps is read. Any other file is read
    completely and must be JSON.
    """
    with open(path, "rb") as stream:
        try:
            found = _decode(_conversation(stream))
            if {"history", "info", "replay_config"} <= found.keys():
                return found
        except (msgspec.MsgspecError, ValueError):  # the code below reports the fault
            pass
        stream.seek(0)
        data = stream.read()
    try:
        return _decode(data)
    except (msgspec.MsgspecError, json.JSONDecodeError):
        return _decoded_by_python(data)


def _decoded_by_python(data: bytes) -> Record:
    """Like `_decode`, but accepts NaN and lone surrogates. Raises Broken, ValueError."""
    try:
        whole = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise Broken(f"not JSON: {error.msg} in line {error.lineno}") from None
    if not isinstance(whole, dict):
        raise Broken(f"a {type(whole).__name__}, not an object")
    return {name: whole[name] for name in _Recording.__struct_fields__ if name in whole}


def _decode(data: bytes) -> Record:
    check_utf8(data)
    found = _DECODER.decode(data)
    parts = {name: getattr(found, name) for name in _Recording.__struct_fields__}
    return {name: part for name, part in parts.items() if part is not msgspec.UNSET}


def parse(part: msgspec.Raw) -> Any:
    """Parses a JSON value. Python's json module reads what the fast decoder refuses."""
    try:
        return msgspec.json.decode(part)
    except msgspec.MsgspecError:
        return json.loads(str(part, "utf-8"))


def check_utf8(data: bytes) -> None:
    """Raises UnicodeDecodeError if `data` is not UTF-8. The fast decoder does not check the parts that it
    skips."""
    if not data.isascii():
        data.decode("utf-8")


def _conversation(stream: IO[bytes]) -> bytes:
    """Returns a JSON object with the last `history` and all keys after it. Returns b'' unless keys are
    indented by two.

    A newline within a text is written as an escape, so the newline that is found here is between keys.
    """
    if stream.read(5) != b'{\n  "':
        return b""
    for text in _ends(stream):
        at = text.rfind(b'\n  "history": ')
        if at >= 0:
            return b"{" + text[at:]
    return b""


def last_steps(stream: IO[bytes], count: int) -> bytes:
    """Returns a JSON object with a trajectory's last `count` steps and the keys after them, or b'' in another
    layout.

    The object may begin at the wrong place. This shows when it is parsed, because then some brackets do not
    close.
    """
    stream.seek(0)
    if not STEPS.match(stream.read(STEPS_WITHIN)):
        return b""
    for text in _ends(stream):
        at = text.rfind(b'\n  ],\n  "history": ')
        for _ in range(count if at >= 0 else 0):
            at = text.rfind(b"\n    {\n", 0, at) if at >= 0 else at
        if at >= 0:
            return b"".join((b'{"trajectory": [', memoryview(text)[at:]))
    return b""


def _ends(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields the last N bytes of a file, with growing N, and finally the whole file."""
    size = stream.seek(0, os.SEEK_END)
    span = END
    while True:
        start = stream.seek(max(0, size - span))
        yield stream.read()
        if start == 0:
            return
        span *= 4
