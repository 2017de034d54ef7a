"""Downloads files of packages from the package index that pip is configured with.

This module uses internals of pip, its session and its finder. So pip's configuration (index, mirrors,
find-links, proxies, certificates, credentials) applies. `pip download` would run the set-up code of a source
archive. This module never runs that code.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from swelab.records import InputError, shorten, write_bytes

MAX_ARCHIVE = 64 << 20
CHUNK = 1 << 16


class PinnedFile(Protocol):
    """A file of a package on the index. sha256: its hash, hex."""

    @property
    def package(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def sha256(self) -> str: ...


def fetch_archive(recipe: PinnedFile, cache_dir: Path, most: int = MAX_ARCHIVE) -> bytes:
    """Returns a file that a recipe pins, from the cache or the package index.

    most: maximum size in bytes. The cache contains verified files by hash. Raises InputError if the file is
    not on the index, the index is unreachable, or the content differs from the pinned hash.
    """
    cached = cache_dir / recipe.sha256 / recipe.file
    if cached.is_file():
        data = cached.read_bytes()
        if hashlib.sha256(data).hexdigest() == recipe.sha256:
            return data
    data = _download(recipe, most)
    found = hashlib.sha256(data).hexdigest()
    if found != recipe.sha256:
        raise InputError(f"sha256 is {found}", recipe.file, f"{recipe.sha256} as the recipe pins")
    write_bytes(cached, data)
    return data


def _download(recipe: PinnedFile, most: int) -> bytes:
    try:
        from pip._internal.commands import create_command
    except ImportError:
        raise InputError("pip is not in this Python", recipe.file, "a virtual environment with pip") from None
    command = create_command("download")
    options, _ = command.parse_args([])
    with _pip_messages() as messages, command.main_context():
        session = command._build_session(options)  # type: ignore[attr-defined]
        finder = command._build_package_finder(options, session)  # type: ignore[attr-defined]
        links = {found.link.filename: found.link for found in finder.find_all_candidates(recipe.package)}
        link = links.get(recipe.file)
        if link is None:
            faults = [text for text in messages if text.startswith("Could not fetch URL")]
            reason = f" ({shorten(faults[-1])})" if faults and not links else ""
            raise InputError(f"not on the package index{reason}", recipe.file, "a file that the index lists")
        try:
            return _read(session, link.url_without_fragment, recipe.file, most)
        except OSError as error:  # the exceptions of the library requests are OSErrors
            raise InputError(f"download failed: {shorten(str(error))}", recipe.file) from None


def _read(session: Any, url: str, name: str, most: int) -> bytes:
    answer = session.get(url, stream=True, headers={"Accept-Encoding": "identity"})
    answer.raise_for_status()
    data = bytearray()
    for chunk in answer.iter_content(CHUNK):
        data += chunk
        if len(data) > most:
            raise InputError(f"more than {most >> 20} MiB", name, "a smaller file")
    return bytes(data)


@contextmanager
def _pip_messages() -> Iterator[list[str]]:
    """Collects pip's log messages in the block, instead of printing them. They tell why pip failed."""
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, keep = logging.getLogger("pip"), Keep()
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(keep)
    try:
        yield messages
    finally:
        logger.removeHandler(keep)
        logger.level, logger.propagate = before
