"""Converts trajectory folders to training rows in several processes.
Memory is constant and the order of the rows is stable."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from swelab.configs.kinds.sft import Rows, Sft
from swelab.configs.recipes import read_yaml
from swelab.records import InputError, Record, atomic, line, read_text
from swelab.rollouts.recorded_trajectories import read_recording
from swelab.rollouts.trajectory_files import MINI, SWE_AGENT, Broken
from swelab.sft.rows.chat_template import ChatTemplate, is_marked
from swelab.sft.rows.compat import Lossy, compat_row, run_hash
from swelab.sft.rows.styles import Style, Unfit, definitions, write_conversation

CHUNK = 16
"""Number of folders that a worker converts at a time."""


class Line(NamedTuple):
    """Result of a folder. row: a line of JSON Lines, or b'' if the folder gives no row. reason: why it gives
    none. where: the folder, and the part of its conversation that does not fit."""

    row: bytes
    reason: str = ""
    where: str = ""


@dataclass
class Drops:
    """The folders that gave no row for one reason. first: the first of them, and the part of its conversation
    that does not fit."""

    count: int
    first: str


def folders_of(traj_dir: Path, eval_dir: Path) -> list[str]:
    """Returns the sorted names of the folders in `traj_dir`.
    Raises InputError if `traj_dir` or `eval_dir` is missing or contains no folder."""
    _names(eval_dir, "<id>/report.json")
    return _names(traj_dir, "<id>/<id>.traj")


def _names(folder: Path, holds: str) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", folder, f"a folder with {holds}") from None
    if not names:
        raise InputError("holds no folder", folder, holds)
    return names


def compat_line(traj_dir: Path, eval_dir: Path, style: str, system: str, folder: str) -> Line:
    """Converts one folder to the row that collect_trajs would write, byte for byte."""
    try:
        return Line(compat_row(traj_dir, eval_dir, folder, style, system))
    except Lossy as loss:
        return Line(b"", str(loss), folder)


def is_resolved(report: Path, folder: str) -> bool:
    """Returns whether a report.json says that the run is resolved.

    The result may be under the key `folder` or at the top level. Raises Unfit if the report cannot be read.
    """
    try:
        found = json.loads(report.read_bytes())
        return found.get(folder, found).get("resolved", False) is True
    except FileNotFoundError:
        raise Unfit("no_report") from None
    except (OSError, ValueError, AttributeError):
        raise Unfit("unreadable_report") from None


def whole_line(traj_dir: Path, eval_dir: Path, style: Style, folder: str) -> Line:
    """Converts one resolved run to a row with the whole conversation and collect_trajs' columns."""
    path = traj_dir / folder / f"{folder}{SWE_AGENT}"
    try:
        if not is_resolved(eval_dir / folder / "report.json", folder):
            return Line(b"", "unresolved", folder)
        recording = read_recording(path if path.is_file() else path.with_name(folder + MINI))
        written = write_conversation(recording, style)
    except Unfit as unfit:
        return Line(b"", str(unfit), ": ".join(filter(None, (folder, unfit.where))))
    except Broken as broken:
        return Line(b"", str(broken).partition(":")[0].replace(" ", "_"), folder)
    row = {"messages": written.messages, "instance_id": folder, "resolved": True}
    row |= {"tools": written.tools} if written.tools else {}
    model, name = recording.info.get("model"), f"{folder}.{run_hash(str(traj_dir))}"
    row |= {"model": model or "", "traj_id": name, "patch": recording.model_patch}
    return Line(line(row))


def _chunk(convert: Callable[[str], Line], folders: Sequence[str]) -> list[Line]:
    return [convert(folder) for folder in folders]


def convert_all(convert: Callable[[str], Line], folders: Sequence[str], workers: int) -> Iterator[Line]:
    """Yields `convert(folder)` for every folder, in order. Only a few chunks are in memory at a time.
    Raises InputError if a worker process was killed."""
    chunks = (folders[start : start + CHUNK] for start in range(0, len(folders), CHUNK))
    if workers < 2 or len(folders) <= CHUNK:
        for chunk in chunks:
            yield from _chunk(convert, chunk)
        return
    waiting: deque[Future[list[Line]]] = deque()
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
            for chunk in chunks:
                waiting.append(pool.submit(_chunk, convert, chunk))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError("a worker process ended early", expected="memory for one folder each") from None


def write_lines(lines: Iterator[Line], output: Path) -> tuple[int, dict[str, Drops]]:
    """Writes the rows atomically. Returns (number of rows, the dropped folders by reason).
    Raises InputError if there is no row; `output` is then unchanged."""
    dropped: dict[str, Drops] = {}
    count = 0
    with atomic(output) as stream:
        for each in lines:
            stream.write(each.row)
            count += not each.reason
            if each.reason:
                dropped.setdefault(each.reason, Drops(count=0, first=each.where)).count += 1
        dropped = dict(sorted(dropped.items()))
        if not count:
            total = sum(each.count for each in dropped.values())
            why = ", ".join(f"{each.count} {reason}" for reason, each in dropped.items())
            raise InputError(f"no row comes of {total} folders ({why})", output)
    return count, dropped


def style_of(recipe: Sft) -> Style | None:
    """Returns the style of an SFT recipe's rows, or None if rows keep the policy's text.
    Raises InputError."""
    rows, malformed = recipe.rows, recipe.selection.malformed_turns
    if rows.style == "text":
        return None
    system = system_prompt(Path(rows.system)) if rows.system else ""
    tools = definitions(Path(rows.tools)) if rows.tools else []
    return Style(rows.style, malformed, system, tools, recipe.selection.failed_turns)


def template_for(rows: Rows, base: Path) -> ChatTemplate | None:
    """Returns the chat template of a base model if rows are measured with it, otherwise None. Raises
    InputError."""
    used = rows.style == "tool" or rows.thoughts in ("keep", "last") or is_marked(base)
    return ChatTemplate(base) if used else None


def system_prompt(path: Path) -> str:
    """Returns the system prompt in SWE-agent's configuration file `path`.
    If the file is not YAML, returns its whole text. Raises InputError."""
    if path.suffix not in (".yaml", ".yml"):
        return read_text(path)
    found: Record = read_yaml(path)
    try:
        return str(found["agent"]["templates"]["system_template"])
    except (KeyError, TypeError):
        raise InputError("no agent.templates.system_template", path, "a SWE-agent configuration") from None
