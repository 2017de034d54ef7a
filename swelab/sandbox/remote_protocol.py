"""The protocol between clients, the pool server and its hosts: error records, headers, tokens.

Files and outputs are sent as bytes, with their metadata as ASCII JSON in a header. Bytes in the JSON that are
not UTF-8 become escaped lone surrogates, so that no byte is lost.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from swelab.records import InputError, shorten
from swelab.records.typed import TypedRecord, field
from swelab.sandbox.protocol import (
    BackendMissing,
    EngineDown,
    ImageMissing,
    PathRefused,
    SandboxError,
    SandboxLost,
)

BYTES = "application/octet-stream"
REQUEST, RESULT = "swelab-request", "swelab-result"  # headers
SHORTEST_TOKEN = 24
LATE_SECONDS = 15.0
"""Seconds that one hop waits for a result beyond the command's time limit. Each hop adds this time."""
CREATE_SECONDS = 180.0
"""Maximum seconds of a request that creates a sandbox on a host.

If the host must prepare an image first, this may take longer. The request must then be repeated.
"""


class Grant(TypedRecord):
    """The response of a pool that grants a lease."""

    lease_id: str = field("id of the lease, for the client")
    container_id: str = field("id of the sandbox on the host")
    node_url: str = field("URL of the host")
    ttl_seconds: float = field("seconds to live after each renewal")


class NoPlace(SandboxLost):
    """No host had free capacity before the deadline. The client may try again later."""


class NotReached(SandboxLost):
    """A server did not respond, or the connection broke.

    The client may repeat the request with the same id.
    """


class Refused(SandboxError):
    """The server rejects this request for good. The message gives the reason."""


_TYPES: tuple[type[Exception], ...] = (
    *(NoPlace, NotReached, Refused, EngineDown, SandboxLost, ImageMissing, BackendMissing, PathRefused),
    *(SandboxError, ValueError, TypeError),
)
_NAMED = {each.__name__: each for each in _TYPES}
_STATUS = {
    "NoPlace": 503,
    "NotReached": 503,
    "EngineDown": 503,
    "SandboxLost": 410,
    "ImageMissing": 404,
    "PathRefused": 422,
    "ValueError": 400,
    "Refused": 400,
}


def error_record(error: Exception) -> tuple[int, dict[str, Any]]:
    """Returns (HTTP status, JSON object), which report an error to the other side."""
    if isinstance(error, OSError):
        code = error.errno or errno.EIO
        status = {errno.ENOENT: 404, errno.ENOSPC: 507}.get(code, 500)
        facts = {"error_type": "OSError", "errno": code, "strerror": error.strerror, "path": error.filename}
        return status, {"ok": False, "error": shorten(str(error), 500), **facts}
    name = next((each.__name__ for each in _TYPES if isinstance(error, each)), "SandboxError")
    facts = {"error_type": name, "retryable": isinstance(error, EngineDown | NoPlace | NotReached)}
    return _STATUS.get(name, 500), {"ok": False, "error": " ".join(str(error).split("\n")), **facts}


def told_error(status: int, record: Any) -> Exception:
    """Returns the error that is reported by a response with a status other than 200."""
    if not isinstance(record, dict) or not isinstance(record.get("error"), str):
        return NotReached(f"the server answered {status} without a reason")
    if record.get("error_type") == "OSError" and isinstance(record.get("errno"), int):
        return OSError(record["errno"], record.get("strerror") or record["error"], record.get("path"))
    return _NAMED.get(str(record.get("error_type")), Refused)(record["error"])


def header(record: dict[str, Any]) -> str:
    """Returns the header value that contains a JSON object."""
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"))


def find_token(path: str | Path | None = None) -> str:
    """Returns the token from a file or from $SWELAB_POOL_TOKEN. Raises InputError.

    path: the file, by default $SWELAB_POOL_TOKEN_FILE. The variable is used if there is no file.
    """
    found, where = _token_text(path)
    return checked_token(found, where)


def find_tokens(path: str | Path | None = None) -> list[str]:
    """Returns the tokens in the file or variable of `find_token`, one per line. Raises InputError."""
    found, where = _token_text(path)
    return [checked_token(line, where) for line in dict.fromkeys(found.split("\n"))]


def _token_text(path: str | Path | None) -> tuple[str, str | Path]:
    path = path or os.environ.get("SWELAB_POOL_TOKEN_FILE")
    if not path:
        return os.environ.get("SWELAB_POOL_TOKEN", ""), "$SWELAB_POOL_TOKEN"
    try:
        with open(path, encoding="ascii") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read(1 << 20).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the token cannot be read: {error}", path) from None
    if stat.S_IMODE(mode) & 0o077:
        raise InputError("others can read the token", path, "a file of mode 600")
    return text, path


def checked_token(text: str, where: str | Path) -> str:
    """Returns `text` if it is a valid token. Raises InputError."""
    if len(text) < SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError("no token", where, f"at least {SHORTEST_TOKEN} printable characters, none a space")
    return text
