"""Stores the witnesses of a subset on the host.

The witness of a task is its tests in question form, and the values that the gold patch emits in them. Each
subset has one ZIP archive in the folder of its lock, with one member for each task. The gold values never
enter a sandbox, a prompt or the lock.
"""

import json
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Literal, Self

from swelab.records import InputError, Record, digest
from swelab.records.typed import TypedRecord, field
from swelab.records.whole_files import atomic
from swelab.records.witness_records import GoldValues, WitnessManifest

Guard = Literal["whole", "reference"]
"""How patches are judged: with all checks, or only by the log, as SWE-bench's own harness does."""

_HEADER = "guard.json"
_DATE = (1980, 1, 1, 0, 0, 0)


class KeptWitness(TypedRecord):
    """The witness question of a task, and the values that the gold patch emits in it."""

    is_open = False
    files: dict[str, str] = field("text of the question's files, keyed by path in the repository")
    kept: list[str] = field("further test files that the question needs")
    patterns: list[str] = field("name patterns of test files, from the runner's settings", default=[])
    whole: bool = field(
        "whether the needed files are unknown, so that the whole test folders stay", default=False
    )
    removed: list[str] = field("files that must not exist")
    cases: dict[str, list[int]] = field(
        "maps a question file to the numbers of its requested cases; all cases of other files", default={}
    )
    args: list[str] = field("arguments of pytest")
    repaired: list[str] = field("tests that the patch must repair; the other tests were selected at random")
    manifest: WitnessManifest = field("slots of the question")
    gold: GoldValues = field("values of the gold patch")


class Witnesses:
    """Reads the witnesses of the tasks of one or more subsets, by instance id. Without a file, there are
    none.

    Raises InputError if a file is not a witness file, or if two subsets have different guards.
    """

    def __init__(self, *paths: Path | None, guard: Guard = "whole"):
        self._lock, self.guard = threading.Lock(), guard
        self._zips: list[zipfile.ZipFile] = []
        for path in filter(None, paths):
            try:
                self._zips.append(zipfile.ZipFile(path))
                own: Guard = json.loads(self._zips[-1].read(_HEADER))["guard"]
            except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
                what = f"cannot be read: {error}"
                raise InputError(what, path, "the witness file that validation wrote with the lock") from None
            if len(self._zips) > 1 and own != self.guard:
                raise InputError(f"its guard is {own}", path, f"{self.guard}, as that of the other subset")
            self.guard = own

    def of(self, instance_id: str) -> KeptWitness | None:
        """Returns the witness of a task, or None if none is stored."""
        data = self._read(instance_id)
        return KeptWitness.of(json.loads(data)) if data else None

    def digest(self, instance_id: str) -> str:
        """Returns the hash of the task's witness and the guard.

        Returns "" if there is no witness and no check is disabled.
        """
        data = self._read(instance_id)
        parts = [data.decode() if data else "", "" if self.guard == "whole" else self.guard]
        return digest(parts) if any(parts) else ""

    def _read(self, instance_id: str) -> bytes:
        name = f"{instance_id}.json"
        with self._lock:
            return next((each.read(name) for each in self._zips if name in each.NameToInfo), b"")


class WitnessWriter:
    """Writes a subset's witness file, task by task."""

    def __init__(self, stream: IO[bytes], guard: Guard = "whole"):
        self._zip = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED)
        self._add(_HEADER, {"guard": guard})

    def add(self, instance_id: str, witness: KeptWitness) -> None:
        """Adds a task's witness file to the archive."""
        self._add(f"{instance_id}.json", witness)

    def _add(self, name: str, record: Record) -> None:
        member = zipfile.ZipInfo(name, _DATE)
        member.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(member, json.dumps(record).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Writes the directory of the ZIP archive. The stream stays open."""
        self._zip.close()


def write_part(path: Path, whole: Witnesses, names: Iterable[str]) -> None:
    """Copies the witnesses of the tasks `names` to the witness file of another subset."""
    with atomic(path) as stream, WitnessWriter(stream, whole.guard) as writer:
        for name in names:
            if witness := whole.of(name):
                writer.add(name, witness)
