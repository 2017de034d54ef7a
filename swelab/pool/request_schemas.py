"""Shapes (JSON Schema) of what may be asked of the exec server and of the pool server."""

from typing import Any

from swelab.records import Record
from swelab.sandbox.live_session import LINE_BYTES, PROMPT_BYTES
from swelab.sandbox.protocol import Limits

_NAME = {"type": "string", "pattern": r"^([A-Za-z0-9][A-Za-z0-9_.:@/+=-]*)?\Z", "maxLength": 300}
_ID = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\Z"}
_REQUEST = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.:-]{7,63}\Z"}
_IMAGE = {"type": "string", "pattern": r"^[a-z0-9][A-Za-z0-9_.:@/-]*\Z", "minLength": 1, "maxLength": 300}
_DIGEST = {"type": "string", "pattern": r"^sha256:[0-9a-f]{64}\Z"}
_FOLDER = {"type": "string", "pattern": r"^/[^\u0000-\u001f]*\Z", "maxLength": 1000}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 1 << 50}
_PATH = {"type": "string", "minLength": 1, "maxLength": 4096}
_ENV = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1000}
_LIMITS = {
    "type": "object",
    "properties": {name: _SECONDS if name == "wall_seconds" else _COUNT for name in vars(Limits())},
    "additionalProperties": False,
}


def _shape(required: str = "", **fields: Any) -> Record:
    return {
        "type": "object",
        "properties": fields,
        "required": required.split(),
        "additionalProperties": False,
    }


SANDBOX: dict[str, Any] = {
    "image": _IMAGE,
    "digest": _DIGEST,
    "cwd": _FOLDER,  # where the image has its repository
    "tree": {"type": "boolean"},  # whether a tree follows that takes the repository's place
    "limits": _LIMITS,
    "timeout": _SECONDS,  # accepted, not needed
}
CREATE = _shape(**SANDBOX, request_id=_REQUEST, owner=_ID, ttl_seconds=_SECONDS, name=_NAME)
ALLOCATE = _shape(
    **SANDBOX,
    request_id=_REQUEST,
    instance_id=_NAME,
    run=_NAME,
    heartbeats={"type": "boolean"},
    deadline_seconds={"type": "number", "minimum": 0, "maximum": 86400},
)
CANCEL = _shape("request_id", request_id=_REQUEST)
HEARTBEAT = {
    **_shape(lease_id=_ID, lease_ids={"type": "array", "items": _ID, "maxItems": 10_000}),
    "minProperties": 1,
}
RENEW = _shape(
    "owner containers",
    owner=_ID,
    containers={"type": "object", "propertyNames": _ID, "additionalProperties": _SECONDS},
)
NODE = _shape("url", url={"type": "string", "pattern": r"^https?://[A-Za-z0-9.\[\]:-]+\Z", "maxLength": 200})
LEAVE = _shape("url", url=NODE["properties"]["url"], force={"type": "boolean"})


def act(which: str, required: str = "", **fields: Any) -> Record:
    """The shape of a request about one sandbox, which the field `which` names."""
    return _shape(f"{which} {required}", **{which: _ID}, request_id=_REQUEST, **fields)


def acts(which: str) -> dict[str, Record]:
    """Shapes of what is done with one sandbox, by verb; `which` is container_id or lease_id."""
    return {
        "exec": act(
            which,
            "command",
            command={"type": "string"},
            cwd=_FOLDER,
            env=_ENV,
            timeout=_SECONDS,
            limits=_LIMITS,
        ),
        "put": act(which, "path", path=_PATH),
        "fill": act(which),
        "get": act(
            which, "path", path=_PATH, max_bytes={"type": "integer", "minimum": 0, "maximum": 256 << 20}
        ),
        "diff": act(which, cwd=_FOLDER),
        "evaluate": act(
            which,
            "eval_script",
            patch={"type": "string"},
            eval_script={"type": "string", "minLength": 1},
            cwd=_FOLDER,
            timeout=_SECONDS,
        ),
        "session_start": act(which, "command", command={"type": "string"}, env=_ENV, limits=_LIMITS),
        "session_say": act(
            which,
            "session timeout",
            session=_ID,
            line={"type": "string", "maxLength": LINE_BYTES},  # none: wait
            until={"type": "string", "maxLength": PROMPT_BYTES},
            timeout=_SECONDS,
            quiet=_SECONDS,
        ),
        "session_end": act(which, "session", session=_ID),
        "destroy": act(which),
    }


def limits_of(record: Record, start: Limits) -> Limits:
    """The limits that a request names, the others as in `start`."""
    named = {
        name: value if name == "wall_seconds" else int(value)
        for name, value in record.get("limits", {}).items()
    }
    if "timeout" in record and "wall_seconds" not in named:
        named["wall_seconds"] = record["timeout"]
    return Limits(**{**vars(start), **named})
