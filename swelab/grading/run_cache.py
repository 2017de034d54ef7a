"""Evidence and test logs of runs, kept by content: a patch that was run on a task is not run again.

One compressed file a run, named by the hash of all that it depends on: `<first two digits>/<rest>.json.z`.
A verdict can be made from it anew when the way of judging changes; `scripts.show` prints it. Safe for several
graders at once; a damaged file counts as absent.
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
    """Hash of all that a run depends on: task, patch, digest of repository archive or image, way of
    running."""
    return digest(["run", versions.RUN, task, patch, place])


class Archive:
    """A folder of runs; without one nothing is kept and nothing found."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def get(self, key: str) -> RunEvidence | None:
        """The evidence kept under a key, or None. A run that was lost to infrastructure is no evidence."""
        run = self.look(key)
        return run if run and run.ended not in LOST_GRADES else None

    def look(self, key: str) -> RunEvidence | None:
        """The kept record of a run, evidence or not; None where nothing is, or where it cannot be read."""
        if self.folder is None:
            return None
        try:
            return RunEvidence.of(json.loads(zlib.decompress(self.path(key).read_bytes())))
        except (FileNotFoundError, zlib.error, ValueError):
            return None

    def put(self, key: str, run: RunEvidence) -> None:
        """Keeps what a run left. A run that was lost to infrastructure never takes another one's place."""
        if self.folder is None or (run.ended in LOST_GRADES and self.path(key).exists()):
            return
        data = zlib.compress(json.dumps(run).encode("utf-8", "backslashreplace"), 6)
        write_bytes(self.path(key), data, durable=False)

    def path(self, key: str) -> Path:
        """The file of a run."""
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.json.z"
