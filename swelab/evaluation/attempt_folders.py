"""Writes a readable folder for each attempt: `<instance_id>__<ts>/{traj.json, patch.diff, meta.json}`.

The SWE-RL scripts use the same file names and fields. traj.json has the complete messages, so that
mini-swe-agent's inspector can also open the file. No file contains a gold patch.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from swelab.evaluation.attempt_result import AttemptResult
from swelab.records import Record, line, write_bytes, write_json
from swelab.records.attempt_records import Trajectory
from swelab.rollouts.command_steps import steps
from swelab.tasks.patch_application import encode_patch

ROWS = "results.jsonl"


class AttemptFolders:
    """Writes a folder for each attempt of an evaluation, and a line of results.jsonl for each attempt.

    Thread-safe.

    meta: facts that are the same for all attempts (model, scaffold, limits). ended: a function that is called
    after each attempt.
    """

    def __init__(self, folder: Path, meta: Record, ended: Callable[[], object] = lambda: None):
        self.folder, self.meta, self.ended = folder, meta, ended
        self._names: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def keep(self, done: AttemptResult) -> None:
        """Remembers the folder name of an attempt that an earlier run finished."""
        if done.run_dir:
            self._names[done.instance_id, done.sample] = done.run_dir

    def begin(self, instance: str, sample: int) -> None:
        """Called when an attempt begins or is resumed. Does nothing in this class."""

    def name(self, instance: str, sample: int) -> str:
        """Returns the name of an attempt's folder. Retries of the attempt get the same name."""
        with self._lock:
            return self._names.setdefault((instance, sample), f"{instance}__{time.time_ns()}")

    def write(self, trajectory: Trajectory, done: AttemptResult) -> None:
        """Writes the files of an attempt's folder, and replaces existing files."""
        folder = self.folder / done.run_dir
        row = done.row()
        verdict = {"status": row["status"], "resolved": row["resolved"]} if done.grade else None
        info = {
            **trajectory.info,
            "instance_id": done.instance_id,
            "exit_status": done.exit_status or row["exit_status"],
            "outcome": done.outcome,
            "error": row["error"],
            "steps": row["n_steps"],
            "patch_source": row["patch_source"],
            "reward": None if row["infrastructure"] else int(row["resolved"]),
            "eval_result": verdict,
        }
        write_json(
            folder / "traj.json",
            {
                "info": info,
                "messages": trajectory.messages,
                "step_debug": list(steps(trajectory.messages)),
                "trajectory_format": trajectory.trajectory_format,
                "instance_id": done.instance_id,
            },
        )
        patch = folder / "patch.diff"
        if done.model_patch:
            write_bytes(patch, encode_patch(done.model_patch))
        else:
            patch.unlink(missing_ok=True)
        meta = {"instance_id": done.instance_id, **self.meta, "sample": done.sample}
        write_json(folder / "meta.json", meta)

    def append(self, done: AttemptResult) -> None:
        """Appends the attempt's line to results.jsonl."""
        with self._lock, open(self.folder / ROWS, "ab") as stream:
            stream.write(line(done.row()))
        self.ended()
