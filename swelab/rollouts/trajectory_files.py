"""The files of a run by SWE-agent or mini-swe-agent: where they lie, and which parts of them are read."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from swelab.records import InputError, Record, shorten

SWE_AGENT, MINI, ROW = ".traj", ".traj.json", ".row.json"
END = 1 << 18
"""Bytes of a file that are read first, from its end."""
STEPS = re.compile(rb'\{\n  ("environment": "[^"\n]*",\n  )?"trajectory": \[\n    \{\n')
STEPS_WITHIN = 1 << 10


class Broken(Exception):
    """A recording that cannot be used. Its text is one line; it is counted by what precedes the colon."""


class _Recording(msgspec.Struct):
    history: Any = msgspec.UNSET
    messages: Any = msgspec.UNSET
    info: Any = msgspec.UNSET
    replay_config: Any = msgspec.UNSET
    trajectory_format: Any = msgspec.UNSET
    instance_id: Any = msgspec.UNSET


_DECODER = msgspec.json.Decoder(_Recording)


def recordings(folder: str | Path) -> dict[str, list[Path]]:
    """Trajectory files below `folder` by the instance that they are named after, all sorted.

    Raises InputError when the folder cannot be read or holds none.
    """
    found: dict[str, list[Path]] = {}
    if not Path(folder).is_dir():
        raise InputError("no such folder", folder, "a folder of recorded trajectories")
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            for ending in (MINI, ROW, SWE_AGENT):
                if name.endswith(ending) and name != ending:
                    found.setdefault(name.removesuffix(ending), []).append(Path(place, name))
    if not found:
        raise InputError("holds no trajectory", folder, "<id>/<id>.traj or <id>/<id>.traj.json")
    return found


def one_run(
    runs_of: dict[str, list[Path]], folder: str | Path, runs: int, sample: int
) -> dict[str, list[Path]]:
    """The recordings of run number `sample`: a run is a folder of <id>/<id>.traj, numbered in sorted order.

    Raises InputError when there are not `runs` of them.
    """
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
    """The parts of a trajectory file that a record is made of. Raises Broken, OSError, ValueError.

    SWE-agent writes each step with the conversation before it, and the whole conversation after the steps:
    of a file that is indented as its own only that end is read. Any other is read whole and must be JSON.
    """
    with open(path, "rb") as stream:
        try:
            found = _decoded(_conversation(stream))
            if {"history", "info", "replay_config"} <= found.keys():
                return found
        except (msgspec.MsgspecError, ValueError):  # what is wrong is told below
            pass
        stream.seek(0)
        data = stream.read()
    try:
        return _decoded(data)
    except (msgspec.MsgspecError, json.JSONDecodeError):
        return _decoded_by_python(data)


def _decoded_by_python(data: bytes) -> Record:
    """As `_decoded`, but NaN and lone surrogates are taken. Raises Broken, ValueError."""
    try:
        whole = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise Broken(f"not JSON: {error.msg} in line {error.lineno}") from None
    if not isinstance(whole, dict):
        raise Broken(f"a {type(whole).__name__}, not an object")
    return {name: whole[name] for name in _Recording.__struct_fields__ if name in whole}


def _decoded(data: bytes) -> Record:
    check_utf8(data)
    found = _DECODER.decode(data)
    parts = {name: getattr(found, name) for name in _Recording.__struct_fields__}
    return {name: part for name, part in parts.items() if part is not msgspec.UNSET}


def parse(part: msgspec.Raw) -> Any:
    """A JSON value as Python's json reads it, which takes more than the fast decoder."""
    try:
        return msgspec.json.decode(part)
    except msgspec.MsgspecError:
        return json.loads(str(part, "utf-8"))


def check_utf8(data: bytes) -> None:
    """Raises UnicodeDecodeError: the fast decoder does not look into what it skips."""
    if not data.isascii():
        data.decode("utf-8")


def _conversation(stream: IO[bytes]) -> bytes:
    """A JSON object of the last `history` and the keys after it, where keys are indented by two; else b''.

    A newline inside a text is written as an escape, so this one is between keys.
    """
    if stream.read(5) != b'{\n  "':
        return b""
    for text in _ends(stream):
        at = text.rfind(b'\n  "history": ')
        if at >= 0:
            return b"{" + text[at:]
    return b""


def last_steps(stream: IO[bytes], count: int) -> bytes:
    """An object of a trajectory's last `count` steps and what follows them; b'' in another layout.

    Parsing it shows whether the cut was right: only then does every bracket close.
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
    """Longer and longer ends of a file, the last of them all of it."""
    size = stream.seek(0, os.SEEK_END)
    span = END
    while True:
        start = stream.seek(max(0, size - span))
        yield stream.read()
        if start == 0:
            return
        span *= 4
