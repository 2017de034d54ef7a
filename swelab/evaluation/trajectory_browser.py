"""Shows trajectories in a terminal: a list of attempts, and each conversation turn by turn. Control
characters in the output of a model or a test are replaced, so that they do not reach the terminal."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swelab.evaluation.attempt_folders import ROWS
from swelab.records import InputError, Record, read_json, read_jsonl
from swelab.rollouts.recorded_thoughts import thoughts_of
from swelab.rollouts.recorded_trajectories import read_recording
from swelab.rollouts.trajectory_files import ATIF, Broken

HELP = "n/p turn   N/P attempt   g/G first/last turn   l list   q quit"
CLEAR = "\x1b[2J\x1b[H"
ENDINGS = ("traj.json", ".traj", ATIF)


@dataclass(frozen=True)
class Entry:
    """An attempt. name: instance id. path: trajectory file. ended: how the attempt ended, in at most two
    words."""

    name: str
    path: Path
    ended: str


def entries(folder: Path, pattern: str = "", status: str = "") -> list[Entry]:
    """Lists the attempts in an evaluation's folder. In any other folder, lists all trajectory files.

    pattern: regular expression that is searched in instance ids. status: a word that `Entry.ended` must
    contain. Raises InputError if no attempt is found.
    """
    rows = folder / ROWS
    everything = list(_evaluation_entries(folder)) if rows.is_file() else list(_below(folder))
    if not everything:
        expected = "the folder of an evaluation, or of .traj or .traj.json files"
        raise InputError("holds no trajectory" if folder.is_dir() else "no such folder", folder, expected)
    try:
        selection = [each for each in everything if re.search(pattern, each.name)]
    except re.error as error:
        raise InputError(f"{pattern!r}: {error}", expected="a regular expression") from None
    selection = [each for each in selection if not status or status in each.ended.split()]
    if not selection:
        raise InputError(f"no such trajectory of {len(everything)}", folder, "another --filter or --status")
    return selection


def _evaluation_entries(folder: Path) -> Iterator[Entry]:
    for row in read_jsonl(folder / ROWS):
        if row.get("run_dir"):
            sample = f"#{row['sample']}" if row.get("sample") else ""
            ended = f"{row['status']} {row['exit_status']}"
            yield Entry(row["instance_id"] + sample, folder / row["run_dir"] / "traj.json", ended)


def _below(folder: Path) -> Iterator[Entry]:
    if folder.is_file():
        yield Entry(folder.parent.name, folder, "")
        return
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(ENDINGS) and path.is_file():
            name = path.name.removesuffix(ATIF).partition(".traj")[0]
            yield Entry(name or path.parent.name, path, "")


def pages(entry: Entry) -> list[str]:
    """Returns the pages of a trajectory: a summary page, and then one page for each message. Raises
    InputError."""
    record = _read(entry.path)
    if not isinstance(record, dict):
        raise InputError("no trajectory", entry.path, "a JSON object with messages")
    messages: Any = record.get("messages") or record.get("history") or record.get("trajectory") or []
    info = record.get("info") or {}
    known = {name: info[name] for name in ("exit_status", "steps", "error", "eval_result") if info.get(name)}
    head = "\n".join([entry.name, entry.ended, *(f"{name}: {value}" for name, value in known.items())])
    patch = info.get("submission") or ""
    shown = [clean(f"{head}\n{len(messages)} messages\n\n{patch}")]
    for number, message in enumerate(messages, 1):
        shown.append(clean(f"[{number}/{len(messages)}] {_turn(message)}"))
    return shown


def _read(path: Path) -> Any:
    if not path.name.endswith(ATIF):
        return read_json(path)
    try:
        return read_recording(path)
    except Broken as fault:
        raise InputError(str(fault), path, "a trajectory in ATIF") from None


def _turn(message: Record) -> str:
    """Returns a message as text: its role, its thoughts, its content, and the commands of its tool calls."""
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", part)) for part in content if isinstance(part, dict))
    actions = (message.get("extra") or {}).get("actions") or []
    calls = [str(action["command"]) for action in actions if action.get("tool") and action.get("command")]
    calls = calls or [
        str((call.get("function") or {}).get("arguments", "")) for call in message.get("tool_calls") or []
    ]
    thoughts = thoughts_of(message)
    inner = ["thoughts:", *(f"| {line}" for line in thoughts.splitlines()), ""] if thoughts else []
    return "\n".join([str(message.get("role", "")), "", *inner, str(content or ""), *calls])


def clean(text: str) -> str:
    """Replaces control characters, because a terminal would execute them."""
    return "".join(c if c.isprintable() or c == "\n" else "    " if c == "\t" else "\ufffd" for c in text)


def browse(entries: Sequence[Entry], keys: Iterator[str], write: Callable[[str], object]) -> None:
    """Shows the page that each pressed key selects.

    Returns at the key `q`, or when there are no more keys.
    """
    place = turn = 0
    shown = pages(entries[0])
    write(_page(entries, place, shown, turn))
    for key in keys:
        if key == "q":
            return
        if key in ("N", "P"):
            place = min(max(place + (1 if key == "N" else -1), 0), len(entries) - 1)
            shown, turn = pages(entries[place]), 0
        step = {"n": turn + 1, " ": turn + 1, "p": turn - 1, "g": 0, "G": len(shown) - 1}.get(key, turn)
        turn = min(max(step, 0), len(shown) - 1)
        write(
            CLEAR + "\n".join(list_lines(entries, place))
            if key == "l"
            else _page(entries, place, shown, turn)
        )


def list_lines(entries: Sequence[Entry], place: int = -1) -> list[str]:
    """Returns one line for each attempt."""
    width = max(len(each.name) for each in entries)
    return [
        clean(f"{'>' if number == place else ' '} {each.name:{width}}  {each.ended}")
        for number, each in enumerate(entries)
    ]


def _page(entries: Sequence[Entry], place: int, shown: Sequence[str], turn: int) -> str:
    size = shutil.get_terminal_size()
    lines = [part for line in shown[turn].split("\n") for part in textwrap.wrap(line, size.columns) or [""]]
    room = max(5, size.lines - 3)
    if len(lines) > room:
        half = room // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]
    bar = f"attempt {place + 1}/{len(entries)}  page {turn + 1}/{len(shown)}   {HELP}"
    return CLEAR + "\n".join([*lines, "", bar[: size.columns]])


@contextmanager
def pressed_keys() -> Iterator[Iterator[str]]:
    """Yields an iterator of the pressed keys, one at a time and without echo, until the terminal closes."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield (key.decode("ascii", "replace") for key in iter(lambda: os.read(descriptor, 1), b""))
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
