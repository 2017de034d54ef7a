"""Stores evidence and test logs of runs, so that no patch runs twice on the same task.

Each run has a compressed file whose name is the hash of all the run's inputs: `<first two
digits>/<rest>.json.z`. If the rules of judging change, verdicts are computed again from these files.
`scripts.show` prints them. Several graders may use the store at once. A damaged file counts as absent.
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
    """Hash of all inputs of a run: task, patch, digest of repository archive or image, version."""
    return digest(["run", versions.RUN, task, patch, place])


class Archive:
    """A folder of stored runs. Without a folder, it stores nothing and finds nothing."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def get(self, key: str) -> RunEvidence | None:
        """The stored evidence of a key, or None. An infrastructure loss is not evidence."""
        run = self.look(key)
        return run if run and run.ended not in LOST_GRADES else None

    def look(self, key: str) -> RunEvidence | None:
        """The stored record of a run, evidence or not; None if it is absent or damaged."""
        if self.folder is None:
            return None
        try:
            return RunEvidence.of(json.loads(zlib.decompress(self.path(key).read_bytes())))
        except (FileNotFoundError, zlib.error, ValueError):
            return None

    def put(self, key: str, run: RunEvidence) -> None:
        """Stores the record of a run. An infrastructure loss never replaces another record."""
        if self.folder is None or (run.ended in LOST_GRADES and self.path(key).exists()):
            return
        data = zlib.compress(json.dumps(run).encode("utf-8", "backslashreplace"), 6)
        write_bytes(self.path(key), data, durable=False)

    def path(self, key: str) -> Path:
        """The file of a run."""
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.json.z"
