"""Converts trajectories that other programs recorded to our records, one file at a time.

SWE-agent writes `<run>/<id>/<id>.traj`, a `.pred` file next to it, and sometimes a `.patch` file.
mini-swe-agent writes `<run>/<id>/<id>.traj.json`. Both are found at any depth of a folder, so that a whole
`trajectories/<user>/<run>/` can be given. `<id>/<id>.row.json` is a row of a published set. `<id>.atif.json`,
and `agent/trajectory.json` in a trial of Harbor, are ATIF.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from swelab.agents.exit_status import mini_end, swe_agent_end
from swelab.outcomes import RolloutEnd
from swelab.records import Record, sha256_file, shorten
from swelab.records.attempt_records import Message, Rollout
from swelab.rollouts import atif
from swelab.rollouts.trajectory_files import (
    ATIF,
    HARBOR,
    MINI,
    ROW,
    SWE_AGENT,
    Broken,
    harbor_task,
    read_parts,
)

MINI_1: Final = "mini-swe-agent-1"
MINI_2: Final = "mini-swe-agent-1.1"
ROLES = {"system", "user", "assistant", "tool", "exit"}
KINDS = (("thought", str), ("action", str), ("tool_call_id", str), ("extra", dict))


def read_recording(path: Path) -> Rollout:
    """Reads the rollout in a trajectory file. Raises Broken."""
    try:
        if path.name.endswith(ROW):
            record = _row(path, json.loads(path.read_bytes()))
        elif path.name.endswith((ATIF, HARBOR)):
            record = _atif(path, json.loads(path.read_bytes()))
        else:
            record = (_mini if path.name.endswith(MINI) else _swe_agent)(path, read_parts(path))
        for number, message in enumerate(record.messages):
            if fault := _strange(message):
                raise Broken(f"message of another shape: message {number} has {fault}")
    except (OSError, UnicodeDecodeError) as error:
        raise Broken(f"cannot be read: {shorten(str(error))}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise Broken(f"of another shape: {type(error).__name__} {shorten(str(error), 80)}") from None
    return record


def _swe_agent(path: Path, parts: Record) -> Rollout:
    name, info = path.name.removesuffix(SWE_AGENT), parts.get("info") or {}
    if "history" not in parts:
        raise Broken("no history")
    patch, source = _patch(path, name, info)
    messages = [_message(message) for message in parts["history"]]
    last_words = " ".join(str(message.content) for message in messages if message.role == "exit")
    settings = _settings(parts.get("replay_config"))
    end = swe_agent_end(info, settings, patch, last_words)
    if end is None:
        raise Broken(f"unfinished: exit status {info.get('exit_status')!r}")
    keys = ("exit_status", "model_stats", "swe_agent_version", "swe_agent_hash", "edited_files30")
    facts = {"submission": patch, "patch_from": source, "model": _model_name(settings)}
    return Rollout(
        instance_id=name,
        outcome=end,
        model_patch=patch,
        messages=messages,
        info={key: info[key] for key in keys if key in info} | facts,
        trajectory_format="swe-agent",
    )


def _atif(path: Path, document: Any) -> Rollout:
    """Reads an ATIF document. If another program wrote it, takes the patch from the `.pred` or `.patch` file
    in the same folder."""
    name = harbor_task(path) or path.name.removesuffix(ATIF)
    record = atif.from_atif(name, document)
    if record.trajectory_format == atif.FORMAT:
        patch, source = _patch(path, name, {})
        record["model_patch"] = patch
        record["info"] |= {"submission": patch, "patch_from": source}
    return record


def _row(path: Path, row: Record) -> Rollout:
    """Converts a row of a published data set to a rollout.

    Rows do not say how the run ended, and most rows lack the submission.
    """
    name = path.name.removesuffix(ROW)
    if row["instance_id"] != name:
        raise Broken(f"of another instance: it is of {row['instance_id']}")
    patch, spoken = _text(row.get("patch")), [m for m in row["messages"] if m["role"] == "assistant"]
    structured = any(message.get(key) for message in spoken for key in ("tool_calls", "action"))
    info = {
        "exit_status": "published",
        "submission": patch,
        "patch_from": "row",
        "model": row.get("model") or "",
    }
    return Rollout(
        instance_id=name,
        outcome=RolloutEnd.SUBMITTED,
        model_patch=patch,
        messages=[_message(message) for message in row["messages"]],
        info=info | {key: row[key] for key in ("traj_id", "resolved") if key in row},
        trajectory_format="swe-agent" if structured else "swe-agent-text",
    )


def _patch(path: Path, name: str, info: Record) -> tuple[str, str]:
    """Returns (patch, kind of its source). A `.patch` file may belong to another instance, a `.pred` file
    never does."""
    prediction, patch = path.with_name(f"{name}.pred"), path.with_name(f"{name}.patch")
    if prediction.is_file():
        found = json.loads(prediction.read_bytes())
        if found.get("instance_id", name) != name:
            raise Broken(f"of another instance: its .pred is of {found['instance_id']}")
        return _text(found.get("model_patch")), "pred"
    if patch.is_file():
        return patch.read_bytes().decode("utf-8", "surrogateescape"), "patch"
    return _text(info.get("submission")), "submission"


def _text(value: Any) -> str:
    if not isinstance(value, str | None):
        raise Broken(f"patch of another kind: its patch is a {type(value).__name__}")
    return value or ""


def _settings(replay: Any) -> Any:
    """Returns SWE-agent's `replay_config` as an object, parsed if it is JSON in a string. Returns None for
    other text."""
    try:
        return json.loads(replay) if isinstance(replay, str) else replay
    except ValueError:
        return None


def _model_name(settings: Any) -> str:
    try:
        return str(settings["agent"]["model"]["name"])
    except (KeyError, TypeError):
        return ""


def _message(message: Record) -> Message:
    """Converts an entry of SWE-agent's history. "Exit due to ..." is a message of the program, not of the
    model."""
    role, content = message["role"], _content(message.get("content"))
    if role == "assistant" and isinstance(content, str) and content.startswith("Exit due to "):
        return Message(role="exit", content=content)
    record = Message(role=role, content=content)
    for name in ("thought", "action", "tool_calls", "reasoning_content", "thinking_blocks"):
        if value := message.get(name):
            record[name] = value
    extra: Record = {}
    action = message.get("action")
    if role == "assistant" and isinstance(action, str) and action.strip():
        extra["actions"] = [{"command": action}]
    if message.get("is_demo") or message.get("message_type") == "demonstration":
        extra["demonstration"] = True
    if role == "tool":
        record["tool_call_id"] = (message.get("tool_call_ids") or [""])[0]
    return record | ({"extra": extra} if extra else {})


def _strange(message: Message) -> str:
    """Describes a part of a message that later stages could not read. Returns '' if all parts are
    readable."""
    if message.role not in ROLES:
        return f"the role {shorten(str(message.role), 40)}"
    for name, kind in KINDS:
        if (value := message.get(name)) is not None and not isinstance(value, kind):
            return f"a {name} that is a {type(value).__name__}"
    calls = message.get("tool_calls")
    if not calls:
        return ""
    functions = [call.get("function") if isinstance(call, dict) else None for call in calls]
    known = (str, type(None))
    if not isinstance(calls, list) or not all(
        isinstance(found, dict)
        and isinstance(found.get("name"), str)
        and isinstance(found.get("arguments"), known)
        for found in functions
    ):
        return "tool_calls of another shape"
    return ""


def _content(content: Any) -> Any:
    """Returns a content as one text if it is a list of text parts, and otherwise unchanged."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "".join(part["text"] for part in content)
    return "" if content is None else content


def _mini(path: Path, parts: Record) -> Rollout:
    name, info = path.name.removesuffix(MINI), parts["info"]
    messages = list(map(Message.of, parts["messages"]))
    if parts.get("instance_id", name) != name:
        raise Broken(f"of another instance: it is of {parts['instance_id']}")
    version: Any = parts.get("trajectory_format") or MINI_1
    if version not in (MINI_1, MINI_2):
        raise Broken(f"unknown format: trajectory format {version!r}")
    if version == MINI_1 and messages and messages[-1].role == "user":
        messages[-1] = messages[-1] | {"role": "exit"}  # format version 1 stores the submission here
    if not info.get("exit_status"):
        raise Broken("unfinished: no exit status")
    for message in messages:
        message.get("extra", {}).pop("traceback", None)
    end = mini_end(info)
    return Rollout(
        instance_id=name,
        outcome=end,
        model_patch=_text(info.get("submission")) if end == RolloutEnd.SUBMITTED else "",
        messages=messages,
        info=info,
        trajectory_format=version,
    )


def import_recordings(mine: list[str], recordings: dict[str, list[Path]]) -> Iterator[tuple[Rollout, str]]:
    """Yields, for each instance in `mine`, the rollout and the reason why its recording was refused, or "". A
    task without a usable recording has the outcome not_recorded, and the reason in its info."""
    for name in mine:
        paths = recordings.get(name, [])
        try:
            if not paths:
                raise Broken("not recorded")
            if len(set(map(sha256_file, paths[1:] and paths))) > 1:
                raise Broken(f"recorded {len(paths)} times: {', '.join(map(str, paths))}")
            yield read_recording(paths[0]) | {"key": sha256_file(paths[0])}, ""
        except Broken as fault:
            none = no_rollout(name, RolloutEnd.NOT_RECORDED, "NotRecorded", str(fault))
            yield none, f"{paths[0]}: {fault}" if paths else ""


def no_rollout(instance_id: str, end: RolloutEnd, exit_status: str, reason: str) -> Rollout:
    """Returns the record of a task that was not attempted."""
    return Rollout(
        instance_id=instance_id,
        outcome=end,
        model_patch="",
        messages=[],
        info={"exit_status": exit_status, "submission": "", "reason": reason},
        trajectory_format=MINI_2,
    )
