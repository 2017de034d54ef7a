"""Evidence of runs, kept by content: a patch that was run on a task is not run again, by whomever it is.

One compressed file a run, named by the hash of all that the run depends on; a verdict can be made from it
anew when the way of judging changes. Safe for several graders at once; a damaged file counts as absent.
"""

import json
import zlib
from pathlib import Path

from swelab.grading import versions
from swelab.records import Record, digest, write_bytes


def run_key(task: Record, patch: str, place: str) -> str:
    """Hash of all that a run depends on: task, patch, digest of repository archive or image, way of
    running."""
    return digest(["run", versions.RUN, task, patch, place])


class Archive:
    """A folder of runs; without one nothing is kept and nothing found."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def get(self, key: str) -> Record | None:
        """The evidence kept under a key, or None."""
        if self.folder is None:
            return None
        try:
            return json.loads(zlib.decompress(self._path(key).read_bytes()))
        except (FileNotFoundError, zlib.error, ValueError):
            return None

    def put(self, key: str, run: Record) -> None:
        """Keeps a run's evidence. What was lost to infrastructure is no evidence and is not kept."""
        if self.folder is not None and run["ended"] != "infra_error":
            data = zlib.compress(json.dumps(run).encode("utf-8", "backslashreplace"), 6)
            write_bytes(self._path(key), data, durable=False)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.json.z"
