"""Stores evidence and test logs of runs, so that no patch runs twice on the same task.

Each run has a compressed file, `<first two digits>/<rest>.json.z`, named by the hash of all inputs of the
run. If the rules of judging change, verdicts are recomputed from these files. `scripts.show` prints them.
Several graders may use the store at once. A damaged file counts as absent.
"""

import json
import zlib
from pathlib import Path

from swelab.grading import versions
from swelab.grading.evidence import RunEvidence
from swelab.outcomes import LOST_GRADES
from swelab.records import digest, write_bytes
from swelab.records.task_records import Task


def run_key(task: Task, patch: str, place: str) -> str:
    """Returns the hash of a run's inputs: version, task, patch, digest of the repository archive or image."""
    return digest(["run", versions.RUN, task, patch, place])


class Archive:
    """A folder of stored runs. Without a folder, the archive stores nothing and finds nothing."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def get(self, key: str) -> RunEvidence | None:
        """Returns the stored evidence for a key, or None.

        Returns None for a run that was lost to infrastructure.
        """
        run = self.look(key)
        return run if run and run.ended not in LOST_GRADES else None

    def look(self, key: str) -> RunEvidence | None:
        """Returns the stored record of a run, lost or not.

        Returns None if the record is absent or damaged.
        """
        if self.folder is None:
            return None
        try:
            return RunEvidence.of(json.loads(zlib.decompress(self.path(key).read_bytes())))
        except (FileNotFoundError, zlib.error, ValueError):
            return None

    def put(self, key: str, run: RunEvidence) -> None:
        """Stores the record of a run. The record of a lost run never replaces another record."""
        if self.folder is None or (run.ended in LOST_GRADES and self.path(key).exists()):
            return
        data = zlib.compress(json.dumps(run).encode("utf-8", "backslashreplace"), 6)
        write_bytes(self.path(key), data, durable=False)

    def path(self, key: str) -> Path:
        """Returns the path of the file of a run."""
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.json.z"
