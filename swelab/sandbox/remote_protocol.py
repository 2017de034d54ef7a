"""Messages between clients of remote sandboxes, the pool and its hosts: errors, settings, the token.

Files and output travel as bytes; what is said about them, as ASCII JSON in a header (text that is
not UTF-8 as escaped lone surrogates, so that nothing is lost).
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
"""Seconds after a command's wall time within which its end is reported; every hop adds as many again."""
CREATE_SECONDS = 180.0
"""Seconds in which a host makes a sandbox; preparing an image takes longer, and the request is repeated."""


class Granted(TypedRecord):
    """The answer of a pool that lends a sandbox."""

    lease_id: str = field("what the caller names it by")
    container_id: str = field("what its host names it by")
    node_url: str = field("its host")
    ttl_seconds: float = field("how long it lives unless its lease is renewed")


class NoPlace(SandboxLost):
    """No host had room in the time given; the caller tries again after a while."""


class NotReached(SandboxLost):
    """A server did not answer, or was cut off: the same request (same id) may be sent again."""


class Refused(SandboxError):
    """A server does not take this request, now or later; the message says why."""


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
    """Returns (HTTP status, JSON object), which reports an error to the other side."""
    if isinstance(error, OSError):
        code = error.errno or errno.EIO
        status = {errno.ENOENT: 404, errno.ENOSPC: 507}.get(code, 500)
        told = {"error_type": "OSError", "errno": code, "strerror": error.strerror, "path": error.filename}
        return status, {"ok": False, "error": shorten(str(error), 500), **told}
    name = next((each.__name__ for each in _TYPES if isinstance(error, each)), "SandboxError")
    told = {"error_type": name, "retryable": isinstance(error, EngineDown | NoPlace | NotReached)}
    return _STATUS.get(name, 500), {"ok": False, "error": " ".join(str(error).split("\n")), **told}


def told_error(status: int, record: Any) -> Exception:
    """The error that a response other than 200 reports."""
    if not isinstance(record, dict) or not isinstance(record.get("error"), str):
        return NotReached(f"the server answered {status} and no reason")
    if record.get("error_type") == "OSError" and isinstance(record.get("errno"), int):
        return OSError(record["errno"], record.get("strerror") or record["error"], record.get("path"))
    return _NAMED.get(str(record.get("error_type")), Refused)(record["error"])


def header(record: dict[str, Any]) -> str:
    """A JSON object as the value of a header."""
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"))


def find_token(path: str | Path | None = None) -> str:
    """The token in a file ($SWELAB_POOL_TOKEN_FILE), else in $SWELAB_POOL_TOKEN. Raises InputError."""
    found, where = _token_text(path)
    return checked_token(found, where)


def find_tokens(path: str | Path | None = None) -> list[str]:
    """The tokens in a file, one a line, found as `find_token` finds it. Raises InputError."""
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
    """The token itself, if it is one. Raises InputError."""
    if len(text) < SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError("no token", where, f"at least {SHORTEST_TOKEN} printable characters, none a space")
    return text
