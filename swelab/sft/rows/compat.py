"""Writes rows exactly as `collect_trajs` of swesmith 0.0.9 does, even where that program loses text.

So rows can be compared with its datasets. The system prompt of the `xml` style comes from SWE-agent's
inference configuration, which is given as a file. Only the part of a trajectory that the rows need is decoded
to Python objects.
"""

import hashlib
import json
import random
import string
from functools import cache
from pathlib import Path
from typing import IO, Any

import msgspec

from swelab.choices import ROW_STYLES
from swelab.records import Record
from swelab.rollouts.trajectory_files import check_utf8, last_steps, parse
from swelab.sft.rows.student_parsers import OWN_LINES

LIMIT_NOTES = ("Exit due to cost limit", "Exit due to context window")
SUBMIT_TURN = (
    "Since we have successfully fixed the issue and verified it works, let's submit the changes:\n\n"
    "<function=submit>\n</function>"
)
_ABSENT = msgspec.Raw(b"")


class _Step(msgspec.Struct):
    """A step whose fields are decoded on access."""

    query: msgspec.Raw = _ABSENT
    messages: msgspec.Raw = _ABSENT
    response: msgspec.Raw = _ABSENT

    def __contains__(self, name: str) -> bool:
        return getattr(self, name) is not _ABSENT

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return parse(getattr(self, name))


class _Trajectory(msgspec.Struct):
    trajectory: list[_Step]
    replay_config: msgspec.Raw = _ABSENT


_DECODER = msgspec.json.Decoder(_Trajectory)


class Lossy(Exception):
    """Raised for a folder that collect_trajs drops.
    The message is the reason under which the folder is counted."""


@cache
def run_hash(traj_dir: str) -> str:
    """Returns eight characters that depend only on the spelling of the path."""
    draw = random.Random(int(hashlib.sha256(traj_dir.encode()).hexdigest(), 16))
    return "".join(draw.choice(string.ascii_lowercase + string.digits) for _ in range(8))


def compat_row(traj_dir: Path, eval_dir: Path, folder: str, style: str, system: str) -> bytes:
    """Returns the row of a trajectory folder as JSON. Raises Lossy if collect_trajs writes no row."""
    report = eval_dir / folder / "report.json"
    if not report.exists():
        raise Lossy("no_report")
    try:
        resolved = _is_resolved(json.loads(report.read_text(encoding="utf-8")), folder)
        messages, replay = read_messages(traj_dir / folder / f"{folder}.traj")
        row = {"instance_id": folder, "resolved": resolved}
        if replay is not _ABSENT:
            row["model"] = json.loads(replay)["agent"]["model"]["name"]
        row["traj_id"] = f"{folder}.{run_hash(str(traj_dir))}"
        patch = traj_dir / folder / f"{folder}.patch"
        row["patch"] = patch.read_text(encoding="utf-8") if patch.exists() else ""
        return (
            json.dumps({"messages": ROW_STYLES[style].load().compat(messages, system), **row}).encode()
            + b"\n"
        )
    except Exception as error:  # collect_trajs drops a folder after any exception
        key = f" {error}" if isinstance(error, KeyError) else ""
        raise Lossy(f"{type(error).__name__}{key}") from None


def _is_resolved(report: Any, folder: str) -> Any:
    return report.get(folder, report).get("resolved", False)


def read_messages(path: Path) -> tuple[Any, Any]:
    """Returns (messages, replay_config) of a .traj file. Without a replay_config, the second is `_ABSENT`.

    These are the messages that collect_trajs reads, from the last or the second-last step. If the file has
    SWE-agent's layout, earlier steps are not read. Raises OSError. Raises the errors of Python's json for a
    damaged file. Raises KeyError, IndexError or TypeError for an unexpected structure.
    """
    with open(path, "rb") as stream:
        if steps := _last_steps(stream):
            return _messages(steps.trajectory), _replay(steps)
        stream.seek(0)
        data = stream.read()
    try:
        steps = _decode(data)
        return _messages(steps.trajectory), _replay(steps)
    except (msgspec.MsgspecError, json.JSONDecodeError):  # Python's json accepts more than msgspec
        whole = json.loads(data.decode("utf-8"))
        return _messages(whole["trajectory"]), whole.get("replay_config", _ABSENT)


def _last_steps(stream: IO[bytes]) -> _Trajectory | None:
    """Returns a trajectory with only its last step, or with two steps if the messages are in the second-last.
    Returns None if the file does not have SWE-agent's layout."""
    steps = None
    for count in (1, 2):
        try:
            steps = _decode(last_steps(stream, count))
        except (msgspec.MsgspecError, ValueError):
            return None
        last = steps.trajectory[-1]
        if "messages" in last:
            return steps
        if not ("query" in last and "response" in last):
            return None
        if last["response"] not in LIMIT_NOTES:
            return steps
    return steps


def _decode(data: bytes) -> _Trajectory:
    check_utf8(data)
    return _DECODER.decode(data)


def _replay(trajectory: _Trajectory) -> Any:
    return (
        trajectory.replay_config if trajectory.replay_config is _ABSENT else parse(trajectory.replay_config)
    )


def _messages(steps: Any) -> Any:
    last = steps[-1]
    if "messages" in last:
        return last["messages"][:-1]
    if last["response"] in LIMIT_NOTES:
        return steps[-2]["query"][:]
    return last["query"][:]


def ticks(messages: Any, system: str) -> list[Record]:
    """Returns messages with each action as a fenced command. The system prompt stays."""
    rows = []
    for message in messages:
        role = message["role"]
        if role == "assistant":
            content = f"{message['thought']}\n\n```\n{message['action']}\n```"
        elif role == "system":
            content = message["content"]
        else:
            (_,) = message["content"]
            content = message["content"][0]["text"]
        rows.append({"role": "user" if role == "tool" else role, "content": content})
    return rows


def xml(messages: Any, system: str) -> list[Record]:
    """Returns messages with each action as an XML function, and with another system prompt."""
    rows = []
    for message in messages:
        role, content = message["role"], None if message["role"] == "system" else message["content"]
        if role == "assistant":
            content = _assistant_text(message)
        elif role == "system":
            content = system
        elif isinstance(content, list):
            (part,) = content
            content = part["text"]
        elif not isinstance(content, str):
            raise ValueError(f"content is a {type(content).__name__}")
        rows.append({"role": "user" if role == "tool" else role, "content": content})
    return rows


def _assistant_text(message: Record) -> str:
    content = message["content"]
    if content == LIMIT_NOTES[0]:
        return SUBMIT_TURN
    said: Any = message.get("thought", content)
    if "tool_calls" in message:
        calls = () if message["tool_calls"] is None else message["tool_calls"]
        said = said + "\n\n" + "\n".join(_call(call["function"]) for call in calls)
    return str(said.strip())


def _call(function: Record) -> str:
    lines = [f"<function={function['name']}>"]
    for name, value in json.loads(function["arguments"]).items():
        around = "\n" if name in OWN_LINES else ""
        lines.append(f"<parameter={name}>{around}{value}{around}</parameter>")
    return "\n".join([*lines, "</function>"])


def tool(messages: Any, system: str) -> Any:
    """Returns the messages unchanged."""
    return messages
