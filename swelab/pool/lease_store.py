"""Stores the nodes and leases of a pool in SQLite, so that they survive a restart of the server."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from swelab.pool.request_schemas import LEASE, NODE, PoolRequest, first_fault
from swelab.records import InputError, Record, shorten

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nodes (url TEXT PRIMARY KEY, draining INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS left_nodes (url TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS leases (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request_id TEXT NOT NULL UNIQUE,
    asked TEXT NOT NULL,
    state TEXT NOT NULL,
    node TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    container TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS damaged (told TEXT NOT NULL, why TEXT NOT NULL);
"""
_VERSION = 1
_COLUMNS = ("id", "request_id", "asked", "state", "node", "attempt", "container", "reason")
_log = logging.getLogger(__name__)


class LeaseStore:
    """The database of one pool. Only one server at a time can open the database.

    A damaged row is moved to the table `damaged` and logged. The other rows stay usable. Raises InputError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _private(path.with_name(path.name + ".lock"))
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(_private(path))
            self._base = sqlite3.connect(path, isolation_level=None)
            self._base.text_factory = lambda text: text.decode("utf-8", "replace")
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            version = self._base.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise InputError(f"version {version}", path, f"the state of a pool, version {_VERSION}")
            if (fault := self._base.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(shorten(str(fault)))
            self._base.executescript(_TABLES + f"PRAGMA user_version={_VERSION};")
            self._base.execute("INSERT OR IGNORE INTO meta VALUES ('pool', ?)", (secrets.token_hex(16),))
            self._id = str(self._base.execute("SELECT value FROM meta WHERE name = 'pool'").fetchone()[0])
        except BlockingIOError:
            raise InputError("another pool server holds it", path) from None
        except (OSError, sqlite3.Error) as error:
            raise InputError(
                f"cannot be used: {error}",
                path,
                "the state of a pool (or no file there: then hosts end the sandboxes of the old pool)",
            ) from None

    def pool_id(self) -> str:
        """Returns the permanent id of this pool. Nodes store the id as the owner of the pool's sandboxes."""
        return self._id

    def nodes(self) -> dict[str, bool]:
        """Maps the URL of each node to whether the node is being drained."""
        nodes = {}
        for number, url, draining in self._base.execute("SELECT rowid, url, draining FROM nodes").fetchall():
            if fault := first_fault(NODE, {"url": url}):
                self._set_aside("nodes", number, {"url": url, "draining": draining}, fault)
            else:
                nodes[url] = bool(draining)
        return nodes

    def set_node(self, url: str, draining: bool) -> None:
        """Adds or changes a node. Raises OSError if the change could not be written."""
        with self._transaction():
            self._base.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?)", (url, draining))
            self._base.execute("DELETE FROM left_nodes WHERE url = ?", (url,))

    def drop_node(self, url: str) -> None:
        """Removes a node and records that it left the pool.

        Raises OSError if the change could not be written.
        """
        with self._transaction():
            self._base.execute("INSERT OR REPLACE INTO left_nodes VALUES (?)", (url,))
            self._base.execute("DELETE FROM nodes WHERE url = ?", (url,))

    def left_nodes(self) -> set[str]:
        """Returns the addresses of nodes that were removed by request and have not joined again."""
        return {url for (url,) in self._base.execute("SELECT url FROM left_nodes").fetchall()}

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            reason = f"the pool's state cannot be written, so nothing was changed: {error}"
            raise OSError(errno.ENOSPC, reason, str(self._path)) from None

    def set_lease(self, lease: Record) -> None:
        """Inserts or updates a lease. lease: record with the fields of request_schemas.LEASE."""
        values = {**lease, "asked": json.dumps(lease["asked"])}
        self._base.execute(
            "INSERT INTO leases (id, request_id, asked, state, node, attempt, container, reason) VALUES"
            " (:id, :request_id, :asked, :state, :node, :attempt, :container, :reason)"
            " ON CONFLICT (id) DO UPDATE SET"
            " state = :state, node = :node, attempt = :attempt, container = :container, reason = :reason",
            values,
        )

    def drop_lease(self, lease_id: str) -> None:
        """Delete a lease."""
        self._base.execute("DELETE FROM leases WHERE id = ?", (lease_id,))

    def leases(self) -> list[Record]:
        """Returns all leases, including ended leases, oldest first."""
        leases = []
        rows = self._base.execute(f"SELECT number, {', '.join(_COLUMNS)} FROM leases ORDER BY number")
        for number, *values in rows.fetchall():
            row = dict(zip(_COLUMNS, values))
            try:
                lease = {**row, "asked": json.loads(row["asked"])}
                fault = first_fault(LEASE, lease)
            except (ValueError, TypeError, RecursionError) as error:
                fault = f"field asked: {error}"
            if fault:
                self._set_aside("leases", number, row, fault)
            else:
                leases.append({**lease, "asked": PoolRequest.of(lease["asked"])})
        return leases

    def _set_aside(self, table: str, number: int, row: Record, fault: str) -> None:
        """Moves a damaged row out of its table.

        If the row is a lease, nobody renews its sandbox any more. So the host ends the sandbox.
        """
        _log.error("%s: row %d of %s is damaged and set aside: %s", self._path, number, table, fault)
        with contextlib.suppress(sqlite3.Error):  # a failure is harmless, since the row is skipped anyway
            self._base.execute("INSERT INTO damaged VALUES (?, ?)", (json.dumps(row, default=str), fault))
            self._base.execute(f"DELETE FROM {table} WHERE rowid = ?", (number,))

    def close(self) -> None:
        """Closes the database and releases the lock file."""
        self._base.close()
        os.close(self._lock)


def _private(path: Path) -> int:
    """Opens a file with mode 0600, and creates it if necessary. Returns the file descriptor."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(opened, 0o600)
    return opened
