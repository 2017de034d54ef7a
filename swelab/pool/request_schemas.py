"""What may be asked of the exec server and of the pool server: fields, and by path the shape of a request."""

from collections.abc import Callable
from typing import Annotated, Any

from swelab.records import Record, shorten
from swelab.records.typed import Bounds, TypedRecord, field, schema
from swelab.sandbox.docker_images import IMAGE_NAME
from swelab.sandbox.live_session import LINE_BYTES, PROMPT_BYTES
from swelab.sandbox.protocol import WORKDIR, Limits

Name = Annotated[str, Bounds(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:@/+=-]*)?\Z", maxLength=300)]
Id = Annotated[str, Bounds(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\Z")]
RequestId = Annotated[str, Bounds(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{7,63}\Z")]
ImageName = Annotated[str, Bounds(pattern=rf"^({IMAGE_NAME})\Z", minLength=1, maxLength=300)]
Digest = Annotated[str, Bounds(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Folder = Annotated[str, Bounds(pattern=r"^/[^\u0000-\u001f]*\Z", maxLength=1000)]
Url = Annotated[str, Bounds(pattern=r"^https?://[A-Za-z0-9.\[\]:-]+\Z", maxLength=200)]
Seconds = Annotated[float, Bounds(exclusiveMinimum=0, maximum=86400)]
TREE_BYTES = 7 << 30
FILE_BYTES = 256 << 20
_TAR_BYTES = 64 << 20  # heads and padding of 40,000 files
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 1 << 50}
_LIMITS = {name: _SECONDS if name == "wall_seconds" else _COUNT for name in vars(Limits())}


class PoolRequest(TypedRecord):
    """A request. Which of the fields it may have, and which it must have, is the shape of its path."""

    request_id: RequestId = field("the same where the same request is sent again", default="")
    container_id: Id = field("a sandbox of a host", default="")
    lease_id: Id = field("a lease of a pool", default="")
    lease_ids: list[Any] = field("leases of a pool, each looked at alone", default=(), maxItems=10_000)
    image: ImageName = field("the image's name", default="")
    digest: Digest = field("of the image", default="")
    cwd: Folder = field("where the repository lies, or where a command starts", default=WORKDIR)
    tree: bool = field("whether a tree follows that takes the repository's place", default=False)
    forgets: bool = field("whether what it brings into the host's memory goes with it", default=False)
    limits: Record = field(
        "of the sandbox or of a command", default={}, properties=_LIMITS, additionalProperties=False
    )
    owner: Id = field("the pool that a host's sandbox is for", default="")
    ttl_seconds: Seconds = field("how long a sandbox lives unless it is renewed", default=0.0)
    name: Name = field("what the host calls the sandbox", default="")
    instance_id: Name = field("the task", default="")
    run: Name = field("the run, for who looks at the status page", default="")
    client: str = field("whose token it came with; a pool says this to its hosts", default="")
    heartbeats: bool = field("whether the caller renews its lease also while a command runs", default=False)
    deadline_seconds: float = field("how long to wait for a place", default=3600.0, minimum=0, maximum=86400)
    containers: dict[str, Any] = field(
        "seconds to live by sandbox, each looked at alone", default={}, maxProperties=20_000
    )
    url: Url = field("a host", default="")
    force: bool = field("whether to end first what runs there", default=False)
    command: str = field("a line of bash", default="")
    env: dict[str, str] = field("variables", default={}, maxProperties=1000)
    timeout: Seconds = field("seconds; an allocation takes it and does not need it", default=3600.0)
    path: str = field("a file", default="", minLength=1, maxLength=4096)
    max_bytes: int = field("of the file", default=64 << 20, minimum=0, maximum=256 << 20)
    patch: str = field("a diff to apply first", default="")
    eval_script: str = field("bash that decides by its exit code", default="", minLength=1)
    session: Id = field("a session in the sandbox", default="")
    line: str | None = field(
        "what to say; where it is absent, only wait", default=None, type="string", maxLength=LINE_BYTES
    )
    until: str = field("the prompt to wait for", default="", maxLength=PROMPT_BYTES)
    quiet: Seconds = field("seconds of silence that end an answer", default=0.0)


class HostState(TypedRecord):
    """How a host is, in its answer to the pool that renews its sandboxes there."""

    boot: str = field("the host's process, which forgets its sandboxes when it ends")
    healthy: bool = field("whether its engine answers")
    unknown: list[str] = field("sandboxes of the pool that are not there")
    extra: dict[str, str] = field("request id by sandbox of those of the pool that it did not renew")
    refused: list[str] = field("sandboxes whose seconds to live are none", default=())
    active_containers: int = field("sandboxes, of every pool")
    max_containers: int = field("so many it may have")
    memory_bytes: int = field("memory promised to sandboxes")
    max_memory_bytes: int = field("so much it may promise")
    max_limits: dict[str, float] = field("the highest limits of one sandbox", default={})


_FIELDS: Record = schema(PoolRequest)["properties"]


def _shape(fields: str, required: str = "") -> Record:
    return {
        "type": "object",
        "properties": {name: _FIELDS[name] for name in fields.split()},
        "required": required.split(),
        "additionalProperties": False,
    }


_SANDBOX = "image digest cwd tree forgets limits timeout request_id"
CREATE = _shape(f"{_SANDBOX} owner client ttl_seconds name")
ALLOCATE = _shape(f"{_SANDBOX} instance_id run heartbeats deadline_seconds")
CANCEL = _shape("request_id", "request_id")
HEARTBEAT = {**_shape("lease_id lease_ids"), "minProperties": 1}
RENEW = _shape("owner containers", "owner containers")
NODE = _shape("url", "url")
LEAVE = _shape("url force", "url")
_TEXT = {"type": "string", "maxLength": 1000}
_KEPT = {
    "id": {"type": "string", "pattern": r"^swe-lease-[0-9a-f]{32}\Z"},
    "request_id": _FIELDS["request_id"],
    "asked": _shape(f"{_SANDBOX} instance_id run client heartbeats deadline_seconds"),
    "state": {"enum": ["making", "active", "ending", "ended"]},
    "node": {"type": "string", "pattern": r"^https?://|^\Z", "maxLength": 200},
    "attempt": {"type": "integer", "minimum": 0},
    "container": _TEXT,
    "reason": {"type": "string"},
}
KEPT_LEASE = {**_shape(""), "properties": _KEPT, "required": list(_KEPT)}
"""A lease as a pool writes it down."""
_ACTS = {
    "exec": ("command cwd env timeout limits", "command"),
    "put": ("path", "path"),
    "fill": ("", ""),
    "get": ("path max_bytes", "path"),
    "diff": ("cwd", ""),
    "evaluate": ("patch eval_script cwd timeout", "eval_script"),
    "session_start": ("command env limits", "command"),
    "session_say": ("session line until timeout quiet", "session timeout"),
    "session_end": ("session", "session"),
    "destroy": ("", ""),
}
"""By verb, the fields of a request about one sandbox besides those that name it; and the required ones."""


_CHECKS: dict[int, tuple[Record, Callable[[Any], Any]]] = {}


def acts(which: str) -> dict[str, Record]:
    """Shapes of what is done with one sandbox, by verb; `which` is container_id or lease_id."""
    return {
        verb: _shape(f"{which} request_id {fields}", f"{which} {required}")
        for verb, (fields, required) in _ACTS.items()
    }


def first_fault(shape: Record, found: Any) -> str:
    """The first field in which a request departs from its shape, and how; "" for none."""
    import fastjsonschema

    if id(shape) not in _CHECKS:
        _CHECKS[id(shape)] = shape, fastjsonschema.compile(shape, use_default=False)
    try:
        _CHECKS[id(shape)][1](found)
    except fastjsonschema.JsonSchemaValueException as error:
        where = ".".join(str(part) for part in error.path[1:]) or "(top level)"
        return f"field {shorten(where)}: {shorten(error.message)}"
    return ""


def footprint(limits: Limits) -> int:
    """Bytes of a host's memory that a sandbox may take: its files are there too, and its output."""
    return limits.memory_bytes + limits.disk_bytes + limits.shm_bytes + limits.output_bytes


def tar_bytes(limits: Limits) -> int:
    """Bytes that the tar of a sandbox's repository may have: its disk, and what the tar adds to files."""
    return min(TREE_BYTES, limits.disk_bytes + _TAR_BYTES)


def limits_of(asked: PoolRequest, start: Limits) -> Limits:
    """The limits that a request names, the others as in `start`."""
    named: dict[str, Any] = {
        name: value if name == "wall_seconds" else int(value) for name, value in asked.limits.items()
    }
    if "timeout" in asked:
        named.setdefault("wall_seconds", asked.timeout)
    return Limits(**{**vars(start), **named})
