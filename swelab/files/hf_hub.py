"""Downloads files of a Hugging Face hub repository at a fixed commit. Downloads are resumed and checked.

A file is downloaded to a `.part` file in the target folder. If the connection is lost or the process is
killed, the next download continues this file. (After a kill, the hub's own client would start again from the
beginning.) The `.part` file is renamed when it has the hash that the hub lists or the recipe requires. The
environment variables HF_ENDPOINT and HF_TOKEN are used.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx

from swelab.patience import DOWNLOADS, Patience, repeat, retry_after
from swelab.records import Fault, InputError, Record, sha256_file, shorten


def newest_commit(name: str, kind: str) -> str:
    """Returns the current commit of a repository's main branch. kind: model or dataset. Raises InputError if
    there is no such repository, and HubError if the hub does not answer with a commit."""
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
    token = hub_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(
            f"{endpoint}/api/{kind}s/{name}", headers=headers, timeout=30, follow_redirects=True
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise HubError(f"{kind} {name}: {endpoint} does not answer: {shorten(str(error))}") from None
    if answer.status_code in (401, 403, 404):
        raise InputError(
            f"the hub refuses it ({answer.status_code})",
            f"{kind} {name}",
            "its name; HF_TOKEN if it is gated",
        )
    try:
        commit = str(json.loads(answer.content)["sha"])
    except (ValueError, KeyError, TypeError):
        commit = ""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise HubError(f"{kind} {name}: {endpoint} answers {answer.status_code} without a commit")
    return commit


T = TypeVar("T")
ENDPOINT = "https://huggingface.co"
PATIENCE_SECONDS = 600
"""Seconds without progress after which a temporary error is not retried any more."""
SPARE_BYTES = 1 << 30


class HubError(Fault):
    """A file could not be fetched from the hub. The message is one line."""


class _Passing(Exception):
    """A temporary error: the same request may succeed after at least `after` seconds."""

    def __init__(self, what: str, after: float = 0):
        super().__init__(what)
        self.after = after


@dataclass(frozen=True)
class Entry:
    """A file in the hub's list of files. blob: the file's hash in git. sha256: "" if the hub lists none, as
    for small files."""

    path: str
    size: int
    blob: str
    sha256: str


class HubRepository:
    """A repository at a commit. kind: model or dataset. Raises InputError if `revision` is a branch or
    tag."""

    def __init__(self, name: str, revision: str, kind: str = "model", patience: float = PATIENCE_SECONDS):
        if len(revision) != 40 or set(revision) - set("0123456789abcdef"):
            raise InputError(f"revision {revision!r}", f"{kind} {name}", "a commit of 40 hexadecimal digits")
        self.name, self.revision, self.kind, self.patience = name, revision, kind, patience
        self._endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
        token = hub_token()
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._client = httpx.Client(
            headers=headers, follow_redirects=True, timeout=httpx.Timeout(60, connect=20)
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.name}@{self.revision[:12]}"

    def fetch(self, folder: Path, patterns: Sequence[str], sha256: Mapping[str, str]) -> dict[str, Record]:
        """Downloads the files that match one of `patterns` into `folder`. Returns name -> {"size", "sha256"}.

        sha256: maps a file name to the hash that the file must have. A complete file is not downloaded again.
        Raises HubError, InputError.
        """
        entries = [e for e in self.entries() if any(fnmatchcase(e.path, pattern) for pattern in patterns)]
        entries = self._with_pins(entries, patterns, sha256)
        folder.mkdir(parents=True, exist_ok=True)
        missing = [entry for entry in entries if not is_whole(folder / entry.path, entry)]
        self._check_room(folder, missing)
        for entry in missing:
            began = time.monotonic()
            self._download(entry, folder / entry.path)
            seconds = time.monotonic() - began
            print(f"{self}: {entry.path}, {entry.size / 1e6:.1f} MB in {seconds:.0f} s", file=sys.stderr)
        return {
            entry.path: {"size": entry.size, "sha256": entry.sha256 or sha256_file(folder / entry.path)}
            for entry in entries
        }

    def entries(self) -> list[Entry]:
        """Returns the repository's files, sorted by path. Raises HubError, InputError."""
        address = f"{self._endpoint}/api/{self.kind}s/{self.name}/tree/{self.revision}?recursive=true"
        found: list[Entry] = []
        while address:
            rows, address = self._patiently("its list of files", partial(self._page, address), lambda: 0)
            found += rows
        return sorted(found, key=lambda entry: entry.path)

    def _page(self, address: str) -> tuple[list[Entry], str]:
        with self._answer(address) as response:
            response.read()
            following = response.links.get("next", {}).get("url", "")
        try:
            rows = [row for row in json.loads(response.content) if row["type"] == "file"]
            found = [Entry(r["path"], r["size"], r["oid"], (r.get("lfs") or {}).get("oid", "")) for r in rows]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise HubError(f"{self}: {self._endpoint} lists files in a form that is not the hub's") from None
        if strange := [e.path for e in found if e.path.startswith("/") or ".." in e.path.split("/")]:
            raise HubError(f"{self}: a file is called {strange[0]!r}")
        return found, following

    def _with_pins(
        self, entries: list[Entry], patterns: Sequence[str], sha256: Mapping[str, str]
    ) -> list[Entry]:
        """Returns the entries with the recipe's hashes added. Raises InputError if the hub lists another
        hash, or no such file."""
        if not entries:
            raise InputError("no file matches", str(self), f"one of {', '.join(patterns)}")
        listed = {entry.path: entry for entry in entries}
        for name, wanted in sha256.items():
            if name not in listed:
                raise InputError(f"has no file {name}", str(self), "the files that the recipe names")
            if listed[name].sha256 not in ("", wanted):
                raise InputError(f"{name} has sha256 {listed[name].sha256} there", str(self), wanted)
        return [Entry(e.path, e.size, e.blob, e.sha256 or sha256.get(e.path, "")) for e in entries]

    def _check_room(self, folder: Path, missing: list[Entry]) -> None:
        """Raises HubError if the disk has too little space for the missing bytes."""
        need = sum(entry.size - _size(_part(folder / entry.path, entry)) for entry in missing)
        free = shutil.disk_usage(folder).free - SPARE_BYTES
        if missing and need > free:
            room = f"{need / 1e9:.1f} GB to come and {max(free, 0) / 1e9:.1f} GB free"
            raise HubError(f"{self}: {room} in {folder}; expected room")

    def _download(self, entry: Entry, path: Path) -> None:
        """Downloads one file completely. If the hash is wrong, deletes the download and tries once more."""
        part = _part(path, entry)
        part.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            self._patiently(entry.path, lambda: self._transfer(entry, part), lambda: _size(part))
            if is_whole(part, entry):
                part.chmod(0o644)
                part.replace(path)
                return
            part.unlink()
        raise HubError(
            f"{self}: {entry.path}: twice {entry.size} bytes with another hash than the listed one"
        )

    def _transfer(self, entry: Entry, part: Path) -> None:
        """Appends the missing bytes to `part`. Raises _Passing if the transfer ends too early."""
        start = _size(part)
        if start >= entry.size and part.exists():
            return
        address = f"{'datasets/' if self.kind == 'dataset' else ''}{self.name}/resolve/{self.revision}"
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._answer(f"{self._endpoint}/{address}/{entry.path}", headers) as response:
            goes_on = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            mode = "ab" if start and response.status_code == 206 and goes_on else "wb"
            with open(part, mode, buffering=0) as stream:
                for data in response.iter_raw():
                    stream.write(data)
                os.fsync(stream.fileno())
        if _size(part) > entry.size:
            part.unlink()
        if _size(part) != entry.size:
            raise _Passing(f"{_size(part)} bytes came, expected {entry.size}")

    @contextmanager
    def _answer(self, address: str, headers: Mapping[str, str] = {}) -> Iterator[httpx.Response]:  # noqa: B006
        """Yields the hub's response with status 200 or 206. Raises HubError, InputError, _Passing."""
        try:
            with self._client.stream("GET", address, headers=dict(headers)) as response:
                if response.status_code not in (200, 206):
                    self._raise_refusal(response)
                yield response
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _Passing(f"no answer: {shorten(str(error)) or type(error).__name__}") from None
        except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
            raise HubError(f"{self}: {self._endpoint}: {error}") from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise HubError(
                    f"{self}: disk full; free some space: the same command continues here"
                ) from None
            raise

    def _raise_refusal(self, response: httpx.Response) -> None:
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        if status == 429 or status >= 500 or status in (408, 425):
            said = "allows no more requests for now (429)" if status == 429 else f"answers {status}"
            raise _Passing(f"the hub {said}", retry_after(response.headers) or 0.0)
        if code == "RevisionNotFound":
            raise InputError(
                "the hub has no such commit", f"{self} ({self.revision})", "one of the repository"
            )
        if code == "GatedRepo":
            raise HubError(f"{self}: expected its terms accepted on its page, and HF_TOKEN ({status})")
        if status in (401, 403):
            raise HubError(f"{self}: access refused ({status}); expected a correct name and a valid HF_TOKEN")
        path = httpx.URL(response.request.url).path
        raise HubError(f"{self}: the hub has no {path} ({status})")

    def _patiently(self, what: str, once: Callable[[], T], progress: Callable[[], int]) -> T:
        """Returns the result of `once()`. Retries after temporary errors, for up to `self.patience` seconds
        without progress. There is progress when the value of `progress()` has increased. Raises HubError."""
        patience, seen = Patience(DOWNLOADS), progress()

        def pause(fault: _Passing) -> float | None:
            nonlocal seen
            if (now := progress()) > seen:
                seen = now
                patience.renew()
            return patience.next_pause(self.patience, fault.after)

        try:
            return repeat(once, _Passing, pause)
        except _Passing as fault:
            left = "; the same command goes on from here"
            raise HubError(f"{self}: {what}: {shorten(str(fault))}{left}") from None


def is_whole(path: Path, entry: Entry) -> bool:
    """Returns whether a file exists at `path` with the size and hash of `entry`."""
    if not path.is_file() or path.stat().st_size != entry.size:
        return False
    if entry.sha256:
        return sha256_file(path) == entry.sha256
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == entry.blob


def _part(path: Path, entry: Entry) -> Path:
    """Returns the path of a partial download. The path contains the hash, so that different contents have
    different paths."""
    return path.with_name(f".{path.name}.{(entry.sha256 or entry.blob)[:16]}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def hub_token() -> str:
    """Returns the user's hub token from $HF_TOKEN or from the file that `hf auth login` wrote. Returns "" if
    there is none."""
    home = Path(os.environ.get("HF_HOME", "") or Path.home() / ".cache" / "huggingface")
    try:
        return os.environ.get("HF_TOKEN", "").strip() or (home / "token").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
