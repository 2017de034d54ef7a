"""The state of a pool that outlives its server: nodes and leases, in SQLite."""

import fcntl
import json
import secrets
import sqlite3
from pathlib import Path

from swelab.pool.request_schemas import PoolRequest
from swelab.records import InputError, Record

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nodes (url TEXT PRIMARY KEY, draining INTEGER NOT NULL);
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
"""
_VERSION = 1


class LeaseStore:
    """One pool's file; held by one server at a time. Raises InputError."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held = open(path.with_name(path.name + ".lock"), "w")
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._base = sqlite3.connect(path, isolation_level=None)
            path.chmod(0o600)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            version = self._base.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise InputError(f"version {version}", path, f"the state of a pool, version {_VERSION}")
            self.new = version == 0
            self._base.executescript(_TABLES + f"PRAGMA user_version={_VERSION};")
        except BlockingIOError:
            raise InputError("another pool server holds it", path) from None
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"cannot be used: {error}", path, "the state of a pool") from None

    def pool_id(self) -> str:
        """The name by which this pool's nodes know it, always the same."""
        self._base.execute("INSERT OR IGNORE INTO meta VALUES ('pool', ?)", (secrets.token_hex(16),))
        return str(self._base.execute("SELECT value FROM meta WHERE name = 'pool'").fetchone()[0])

    def nodes(self) -> dict[str, bool]:
        """Whether each node is being drained."""
        return {
            url: bool(draining) for url, draining in self._base.execute("SELECT url, draining FROM nodes")
        }

    def set_node(self, url: str, draining: bool) -> None:
        """Add a node, or change it."""
        self._base.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?)", (url, draining))

    def drop_node(self, url: str) -> None:
        """Forget a node."""
        self._base.execute("DELETE FROM nodes WHERE url = ?", (url,))

    def set_lease(self, lease: Record) -> None:
        """Write a lease: id, request_id, asked, state, node, attempt, container, reason."""
        values = {**lease, "asked": json.dumps(lease["asked"])}
        self._base.execute(
            "INSERT INTO leases (id, request_id, asked, state, node, attempt, container, reason) VALUES"
            " (:id, :request_id, :asked, :state, :node, :attempt, :container, :reason)"
            " ON CONFLICT (id) DO UPDATE SET"
            " state = :state, node = :node, attempt = :attempt, container = :container, reason = :reason",
            values,
        )

    def drop_lease(self, lease_id: str) -> None:
        """Forget a lease."""
        self._base.execute("DELETE FROM leases WHERE id = ?", (lease_id,))

    def leases(self) -> list[Record]:
        """All leases, also ended ones; oldest first."""
        columns = ("id", "request_id", "asked", "state", "node", "attempt", "container", "reason")
        rows = self._base.execute(f"SELECT {', '.join(columns)} FROM leases ORDER BY number")
        return [{**dict(zip(columns, row)), "asked": PoolRequest.of(json.loads(row[2]))} for row in rows]

    def close(self) -> None:
        """Give the file back."""
        self._base.close()
        self._held.close()
