"""Reads and writes trajectories in ATIF, the Agent Trajectory Interchange Format, versions 1.0 to 1.8.

A step of the agent holds its tool calls and what was observed after it. Source:
https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md

Nothing is lost in either direction. What ATIF has no field for is in `extra.swelab` of a step or of the root.
What our messages have no field for is in `extra.atif` of a message, and in `info.atif`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from atif import Trajectory as Document
from pydantic import ValidationError

from swelab.outcomes import RolloutEnd
from swelab.records import InputError, Record, read_records, shorten, write_json
from swelab.records.attempt_records import Message, Rollout, Trajectory
from swelab.rollouts.token_usage import usage_of
from swelab.rollouts.trajectory_files import ATIF, Broken

FORMAT: Final = "atif"
WRITTEN = "ATIF-v1.7"
VERSIONS = tuple(f"ATIF-v1.{number}" for number in range(9))
OURS = "swelab"
"""Key of an `extra` that holds what ATIF has no field for."""
SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "user": "user",
    "agent": "assistant",
}
USAGE = ("prompt_tokens", "completion_tokens")


def from_atif(name: str, document: Any) -> Rollout:
    """Returns the rollout of instance `name` in an ATIF document. Its patch is '' if another program wrote
    the document, because ATIF has no field for it. Raises Broken."""
    check(document)
    if document.get("continued_trajectory_ref"):
        raise Broken(f"unfinished: continues in {shorten(document['continued_trajectory_ref'], 80)}")
    own = (document.get("extra") or {}).get(OURS)
    messages: list[Message] = []
    for step in document["steps"]:
        messages += _messages(step, own is not None)
    if own is not None:
        if own.get("instance_id") != name:
            raise Broken(f"of another instance: it is of {own.get('instance_id')}")
        return Rollout.of({**own, "messages": messages})
    rest = {key: value for key, value in document.items() if key not in ("steps", "schema_version")}
    tools = document["agent"].get("tool_definitions")
    info: Record = {
        "exit_status": "recorded",
        "submission": "",
        "model": document["agent"].get("model_name") or "",
        "atif": {"schema_version": document["schema_version"], **rest},
    }
    return Rollout(
        instance_id=name,
        outcome=RolloutEnd.SUBMITTED,
        model_patch="",
        messages=messages,
        info=info | ({"config": {"tools": tools}} if tools else {}),
        trajectory_format=FORMAT,
    )


def check(document: Any) -> None:
    """Raises Broken, in one line, unless `document` is ATIF of a known version."""
    if not isinstance(document, dict):
        raise Broken(f"a {type(document).__name__}, not an object")
    if (version := document.get("schema_version")) not in VERSIONS:
        raise Broken(f"unknown format: schema_version {shorten(repr(version), 40)}")
    try:
        Document.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Broken(f"of another shape: {place or 'the document'}: {shorten(first['msg'], 100)}") from None


def _messages(step: Record, own: bool) -> list[Message]:
    """Returns the messages of a step: its own, then one for each result observed after it."""
    message = Message(role=ROLES[step["source"]], content=step["message"])
    if step.get("reasoning_content") is not None:
        message["reasoning_content"] = step["reasoning_content"]
    if step.get("tool_calls"):
        message["tool_calls"] = [_call(call) for call in step["tool_calls"]]
    message |= _own_fields(step) if own else {"extra": _foreign_extra(step)}
    return [message, *(_result(each, own) for each in (step.get("observation") or {}).get("results") or ())]


def _result(result: Record, own: bool) -> Message:
    content, call = result.get("content"), result.get("source_call_id")
    message = Message(role="tool" if call else "user", content="" if content is None else content)
    if call:
        message["tool_call_id"] = call
    rest = {key: value for key, value in result.items() if key not in ("source_call_id", "content")}
    return message | (_own_fields(result) if own else {"extra": {"atif": {"result": rest}}})


def _own_fields(part: Record) -> Record:
    fields: Record = (part.get("extra") or {}).get(OURS) or {}
    return fields


def _foreign_extra(step: Record) -> Record:
    mapped = ("step_id", "source", "message", "reasoning_content", "tool_calls", "observation")
    extra: Record = {"atif": {"step": {key: value for key, value in step.items() if key not in mapped}}}
    metrics = step.get("metrics") or {}
    if usage := {key: metrics[key] for key in USAGE if metrics.get(key) is not None}:
        extra["usage"] = usage
    if metrics.get("cost_usd") is not None:
        extra["cost"] = metrics["cost_usd"]
    if step.get("is_copied_context") or step.get("llm_call_count") == 0:
        extra["demonstration"] = True  # not a turn of this run's model: it must not be trained
    return extra


def _call(call: Record) -> Record:
    text = json.dumps(call["arguments"], ensure_ascii=False)
    function = {"name": call["function_name"], "arguments": text}
    rest = {"extra": call["extra"]} if call.get("extra") else {}
    return {"id": call["tool_call_id"], "type": "function", "function": function, **rest}


def to_atif(rollout: Rollout) -> Record:
    """Returns a rollout as an ATIF document."""
    if "atif" in rollout.info:
        return _foreign_document(rollout)
    steps: list[Record] = []
    for message in rollout.messages:
        after_agent = bool(steps) and steps[-1]["source"] == "agent"
        if message.role in ("user", "tool") and after_agent:
            _observe(steps[-1], _result_of(message, steps[-1]))
        else:
            steps.append(_step(message))
    fields = {key: value for key, value in rollout.items() if key != "messages"}
    document: Record = {
        "schema_version": WRITTEN,
        "session_id": rollout.get("key") or rollout.instance_id,
        "agent": _agent(rollout),
        "steps": _with_numbers(steps),
        "extra": {OURS: fields},
    }
    usage = usage_of(rollout)
    totals = {f"total_{name}": usage[name] for name in USAGE if usage.get(name) is not None}
    if usage.get("cost") is not None:
        totals["total_cost_usd"] = usage["cost"]
    return document | {"final_metrics": {**totals, "total_steps": len(steps)}}


def export_atif(paths: Iterable[Path], output: Path) -> int:
    """Writes each trajectory in JSON Lines to `<n>/<id>/<id>.atif.json` in the folder `output`, where n is
    the number of the attempt at the task. Returns the number of documents.

    paths: files, or folders of files that end in .jsonl. Raises InputError.
    """
    count = 0
    for given in paths:
        files = sorted(given.glob("*.jsonl")) if given.is_dir() else [given]
        if not files:
            raise InputError("holds no trajectories", given, "files that end in .jsonl")
        for _, rollout in read_records(files, Trajectory):
            name = rollout.instance_id
            write_json(output / str(rollout.sample) / name / f"{name}{ATIF}", to_atif(rollout))
            count += 1
    return count


def _foreign_document(rollout: Rollout) -> Record:
    """Returns the ATIF document from which a rollout was read."""
    steps: list[Record] = []
    for message in rollout.messages:
        ((kind, rest),) = message["extra"]["atif"].items()
        if kind == "result":
            call = {"source_call_id": message["tool_call_id"]} if message.role == "tool" else {}
            _observe(steps[-1], {**call, "content": message.content, **rest})
            continue
        step: Record = {"source": SOURCES[message.role], "message": message.content, **rest}
        if "reasoning_content" in message:
            step["reasoning_content"] = message["reasoning_content"]
        if "tool_calls" in message:
            step["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
        steps.append(step)
    return {**rollout.info["atif"], "steps": _with_numbers(steps)}


def _observe(step: Record, result: Record) -> None:
    step.setdefault("observation", {"results": []})["results"].append(result)


def _with_numbers(steps: list[Record]) -> list[Record]:
    return [{"step_id": number, **step} for number, step in enumerate(steps, 1)]


def _agent(rollout: Rollout) -> Record:
    info = rollout.info
    config, model = info.get("config"), info.get("model") or rollout.get("policy")
    tools = config.get("tools") if isinstance(config, dict) else None
    agent: Record = {"name": "swelab", "version": str(info.get("mini_version") or "unknown")}
    agent |= {"model_name": model} if isinstance(model, str) else {}
    return agent | ({"tool_definitions": tools} if isinstance(tools, list) and tools else {})


def _step(message: Message) -> Record:
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    if message.role not in SOURCES:
        rest["role"] = message.role
    source = SOURCES.get(message.role, "system")
    step: Record = {"source": source, "message": _text(message.content, rest)}
    if source == "agent":
        if isinstance(rest.get("reasoning_content"), str):
            step["reasoning_content"] = rest.pop("reasoning_content")
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [_tool_call(call) for call in calls]
            if [_call(call) for call in step["tool_calls"]] == calls:
                del rest["tool_calls"]
        if metrics := _metrics(message.get("extra") or {}):
            step["metrics"] = metrics
    return step | ({"extra": {OURS: rest}} if rest else {})


def _result_of(message: Message, step: Record) -> Record:
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    result: Record = {"content": _text(message.content, rest)}
    answers = any(call["tool_call_id"] == rest.get("tool_call_id") for call in step.get("tool_calls", ()))
    if answers and rest["tool_call_id"]:
        result["source_call_id"] = rest.pop("tool_call_id")
    if message.role != ("tool" if "source_call_id" in result else "user"):
        rest["role"] = message.role
    return result | ({"extra": {OURS: rest}} if rest else {})


def _text(content: Any, rest: Record) -> str:
    """Returns the text of a message. Keeps a content that is no text in `rest`."""
    if isinstance(content, str):
        return content
    rest["content"] = content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _tool_call(call: Record) -> Record:
    try:
        arguments = json.loads(call["function"].get("arguments") or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return {
        "tool_call_id": str(call.get("id") or ""),
        "function_name": call["function"]["name"],
        "arguments": arguments if isinstance(arguments, dict) else {},
        **({"extra": call["extra"]} if call.get("extra") else {}),
    }


def _metrics(extra: Record) -> Record:
    usage = extra.get("usage") or (extra.get("response") or {}).get("usage") or {}
    metrics = {key: usage[key] for key in USAGE if isinstance(usage.get(key), int)}
    cost = extra.get("cost")
    return metrics | ({"cost_usd": cost} if isinstance(cost, int | float) and cost else {})
