"""The fields of requests to the exec server and the pool server, and a schema for each path."""

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from swelab.http.refusal import Refused
from swelab.http.shapes import decode
from swelab.records import Record, shorten
from swelab.records.typed import TypedRecord, field
from swelab.sandbox.docker_images import IMAGE_NAME
from swelab.sandbox.live_session import LINE_BYTES, PROMPT_BYTES
from swelab.sandbox.protocol import WORKDIR, Limits

Name = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:@/+=-]*)?\Z", max_length=300)]
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\Z")]
RequestId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{7,63}\Z")]
ImageName = Annotated[str, Meta(pattern=rf"^({IMAGE_NAME})\Z", min_length=1, max_length=300)]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Folder = Annotated[str, Meta(pattern=r"^/[^\u0000-\u001f]*\Z", max_length=1000)]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]
Url = Annotated[str, Meta(pattern=r"^https?://[A-Za-z0-9.\[\]:-]+\Z", max_length=200)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Count = Annotated[int, Meta(ge=1, le=1 << 50)]
TREE_BYTES = 7 << 30
FILE_BYTES = 256 << 20
_TAR_BYTES = 64 << 20  # tar headers and padding for 40,000 files
_FORM_BYTES = 512 << 10
_MOST_BYTES = {"containers": 2 << 20}
"""Maps a field to the maximum bytes of its value, unless the value is a string. For other fields the maximum
is _FORM_BYTES.

Longer values are not parsed.
"""


class PoolRequest(TypedRecord):
    """A request. The schema of the path determines which fields are allowed and which are required."""

    request_id: RequestId = field("the same for every repetition of a request", default="")
    container_id: Id = field("a sandbox of a host", default="")
    lease_id: Id = field("a lease of a pool", default="")
    lease_ids: Annotated[list[Any], Meta(max_length=10_000)] = field("leases, each checked alone", default=())
    image: ImageName = field("the image's name", default="")
    digest: Digest = field("of the image", default="")
    cwd: Folder = field("folder of the repository, or of a command", default=WORKDIR)
    tree: bool = field("whether `fill` will replace the repository", default=False)
    forgets: bool = field("whether its files leave the host's page cache at its end", default=False)
    limits: Record = field("of the sandbox or of a command", default={})
    owner: Id = field("id of the pool that owns the sandbox", default="")
    ttl_seconds: Seconds = field("how long a sandbox lives unless it is renewed", default=0.0)
    name: Name = field("name of the sandbox on the host", default="")
    instance_id: Name = field("the task", default="")
    run: Name = field("name of the run, for the status page", default="")
    client: str = field("hash of the client's token, sent by a pool to its hosts", default="")
    heartbeats: bool = field("whether the client renews its lease also while a command runs", default=False)
    deadline_seconds: Annotated[float, Meta(ge=0, le=86400)] = field("longest time to queue", default=3600.0)
    containers: Annotated[dict[str, Any], Meta(max_length=20_000)] = field(
        "seconds to live by sandbox, each checked alone", default={}
    )
    url: Url = field("a host", default="")
    force: bool = field("whether to end its leases first", default=False)
    command: str = field("a line of bash", default="")
    env: Annotated[dict[str, str], Meta(max_length=1000)] = field("variables; null for none", default={})
    timeout: Seconds = field("seconds; ignored by an allocation", default=3600.0)
    path: Path = field("a file", default="")
    max_bytes: Annotated[int, Meta(ge=0, le=256 << 20)] = field("longest file to read", default=64 << 20)
    patch: str = field("a diff that is applied first", default="")
    eval_script: Annotated[str, Meta(min_length=1)] = field("bash script whose exit code decides", default="")
    session: Id = field("a session in the sandbox", default="")
    line: Annotated[str, Meta(max_length=LINE_BYTES)] | None = field(
        "the line to send; without it only wait", default=None
    )
    until: Annotated[str, Meta(max_length=PROMPT_BYTES)] = field("the prompt to wait for", default="")
    quiet: Seconds = field("seconds of silence that end an answer", default=0.0)


class HostState(TypedRecord):
    """The state of a host. The host sends its state to each pool that renews sandboxes."""

    boot: str = field("id of the server process; its sandboxes end with it")
    healthy: bool = field("whether its engine responds")
    unknown: list[str] = field("sandboxes of the pool that do not exist there")
    extra: dict[str, str] = field("the pool's other sandboxes there, with their request ids")
    refused: list[str] = field("sandboxes with invalid seconds to live", default=())
    active_containers: int = field("number of sandboxes, of every pool")
    max_containers: int = field("most sandboxes")
    memory_bytes: int = field("memory reserved for sandboxes")
    max_memory_bytes: int = field("most memory for sandboxes")
    max_limits: dict[str, float] = field("the highest limits of one sandbox", default={})


def _struct(name: str, kinds: Mapping[str, Any], required: Iterable[str]) -> type[Struct]:
    fields = [(each, kind) if each in required else (each, kind, UNSET) for each, kind in kinds.items()]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


_COUNTS = {name: Seconds if name == "wall_seconds" else Count for name in vars(Limits())}
_KINDS = {name: kind for name, (kind, _) in PoolRequest.declared.items()}
_KINDS |= {"limits": _struct("Limits", _COUNTS, ()), "env": _KINDS["env"] | None}


def _shape(fields: str, required: str = "") -> type[Struct]:
    return _struct("Request", {name: _KINDS[name] for name in fields.split()}, required.split())


_SANDBOX = "image digest cwd tree forgets limits timeout request_id"
CREATE = _shape(f"{_SANDBOX} owner client ttl_seconds name")
ALLOCATE = _shape(f"{_SANDBOX} instance_id run heartbeats deadline_seconds")
CANCEL = _shape("request_id", "request_id")
HEARTBEAT = _shape("lease_id lease_ids")
RENEW = _shape("owner containers", "owner containers")
NODE = _shape("url", "url")
LEAVE = _shape("url force", "url")
_LEASE = {
    "id": Annotated[str, Meta(pattern=r"^swe-lease-[0-9a-f]{32}\Z")],
    "request_id": RequestId,
    "asked": _shape(f"{_SANDBOX} instance_id run client heartbeats deadline_seconds"),
    "state": Literal["making", "active", "ending", "ended"],
    "node": Annotated[str, Meta(pattern=r"^https?://|^\Z", max_length=200)],
    "attempt": Annotated[int, Meta(ge=0)],
    "container": Annotated[str, Meta(max_length=1000)],
    "reason": str,
}
LEASE = _struct("Lease", _LEASE, _LEASE)
"""A lease in the form in which the pool stores it."""
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
"""Maps the verb of each request about one sandbox to (fields, required fields), without the ids."""


def acts(which: str) -> dict[str, type[Struct]]:
    """Maps the verb of each request about one sandbox to its schema. which: "container_id" or "lease_id"."""
    return {
        verb: _shape(f"{which} request_id {fields}", f"{which} {required}")
        for verb, (fields, required) in _ACTS.items()
    }


@functools.cache
def _outline(shape: type[Struct]) -> type[Struct]:
    return _struct("Request", dict.fromkeys(shape.__struct_fields__, msgspec.Raw), ())


def read_request(data: bytes, shape: type[Struct]) -> PoolRequest:
    """Parses a request and checks it against the schema `shape`. Raises Refused.

    Strings may contain lone surrogates, which msgspec's decoder rejects. So that decoder only measures the
    size of each field, and `json` parses the text.
    """
    paired = data.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")
    values = msgspec.structs.asdict(decode(paired, _outline(shape)))
    sizes = {name: len(bytes(value)) for name, value in values.items() if value is not UNSET}
    texts = {name for name in sizes if bytes(values[name]).startswith(b'"')}
    for name, size in {**sizes, "what is between fields": len(data) - sum(sizes.values())}.items():
        if name not in texts and size > (most := _MOST_BYTES.get(name, _FORM_BYTES)):
            raise Refused(f"{name} has {size} bytes; expected at most {most}")
    try:
        record = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise Refused("the request is not JSON, is nested too deeply, or names a field twice") from None
    if fault := first_fault(shape, record):
        raise Refused(fault)
    return PoolRequest.of({name: value for name, value in record.items() if value is not None})


def _once(pairs: list[tuple[str, Any]]) -> Record:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a field is given twice")
    return record


def first_fault(shape: type[Struct], value: Any) -> str:
    """Returns a description of the first field that violates the schema, or "" if the request is valid."""
    try:
        msgspec.convert(value, shape)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        return shorten(str(error), 400)
    return ""


def footprint(limits: Limits) -> int:
    """Returns the bytes of memory that a sandbox may use on its host, including its files and output."""
    return limits.memory_bytes + limits.disk_bytes + limits.shm_bytes + limits.output_bytes


def tar_bytes(limits: Limits) -> int:
    """Returns the maximum bytes of a tar of the sandbox's repository: the disk limit plus the tar overhead.

    The result is at most TREE_BYTES.
    """
    return min(TREE_BYTES, limits.disk_bytes + _TAR_BYTES)


def limits_of(request: PoolRequest, start: Limits) -> Limits:
    """Returns the limits of a request. Limits that the request does not name are taken from `start`."""
    own: dict[str, Any] = {
        name: value if name == "wall_seconds" else int(value) for name, value in request.limits.items()
    }
    if "timeout" in request:
        own.setdefault("wall_seconds", request.timeout)
    return Limits(**{**vars(start), **own})
