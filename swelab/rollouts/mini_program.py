"""Runs the program mini-swe-agent on a benchmark with its own runner, in our sandboxes or in Docker.

In the program's preds.json, an instance that was lost to infrastructure looks like an instance with an empty
patch. The program's next run would skip it. So lost instances are first removed from preds.json, and the same
command tries them again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swelab.agents.exit_status import mini_end
from swelab.outcomes import RETRIED_ROLLOUTS, RolloutEnd
from swelab.records import InputError, Record, read_json, write_json, write_jsonl
from swelab.records.attempt_records import Prediction
from swelab.records.task_records import Task
from swelab.rollouts.predictions import load_predictions

PREDICTIONS = "preds.json"
HIDDEN = tuple(
    """
patch test_patch eval_script FAIL_TO_PASS PASS_TO_PASS hints_text hint verifier_tar solution_tar
""".split()
)
"""Fields of a task that are hidden from the program, because they contain the answer."""
ENVIRONMENT = "swelab.rollouts.program_environment.ProgramEnvironment"
RUNNER = ("-m", "minisweagent.run.benchmarks.swebench")
KEY, NO_KEY = "OPENAI_API_KEY", "none"
QUIET = {"MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@dataclass(frozen=True)
class Program:
    """A run of the program.

    python: interpreter that has the program. config: configuration files, of which later files take
    precedence. sandboxes: whether commands run in our sandboxes, with the archives in `repos` and the images
    in `images`. Otherwise they run in Docker. output: folder for the program's files. further: additional
    options.
    """

    url: str
    model: str
    output: Path
    config: tuple[str, ...]
    workers: int = 1
    part: str = ""
    pattern: str = ""
    python: str = sys.executable
    sandboxes: bool = True
    repos: Path = Path("results/repos")
    images: Path | None = None
    further: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def command(self, data: Path) -> list[str]:
        """Returns the command line of the program's own runner."""
        name = self.model if self.model.startswith("openai/") else f"openai/{self.model}"
        settings = {"model.model_kwargs.api_base": address(self.url), **self.settings}
        if self.sandboxes:
            settings |= {
                "environment.tasks": str(self.output.absolute() / "tasks.json"),
                "environment.repos": str(self.repos.absolute()),
                "environment.images": str(self.images.absolute()) if self.images else "",
                "run.env_startup_command": "swelab-open {{instance_id}}",
            }
        specs = [*self.config, *(f"{name}={json.dumps(value)}" for name, value in settings.items())]
        return [
            self.python,
            *RUNNER,
            *("--subset", str(data), "--split", "test", "--output", str(self.output)),
            *("--workers", str(self.workers), "--model", name),
            *(word for spec in specs for word in ("--config", spec)),
            *(("--slice", self.part) if self.part else ()),
            *(("--filter", self.pattern) if self.pattern else ()),
            *("--environment-class", ENVIRONMENT if self.sandboxes else "docker"),
            *self.further,
        ]


def address(url: str) -> str:
    """Returns the address of a server's OpenAI-compatible API. Raises InputError."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--sglang-url {url!r}", expected="an address such as http://host:30000")
    base = url.rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


def run(program: Program, tasks: Iterable[Task]) -> dict[str, RolloutEnd]:
    """Makes the missing attempts. Returns the end of each attempt in the folder, keyed by instance id. Raises
    InputError if the program failed, or made no prediction."""
    folder = program.output
    data, rows = folder / "data", list(tasks)
    write_jsonl(data / "test.jsonl", (public_task(task) for task in rows))
    write_json(folder / "tasks.json", rows)
    take_out(folder)
    library = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (library, os.environ.get("PYTHONPATH", ""))))
    told = {"PYTHONPATH": path, KEY: os.environ.get(KEY) or NO_KEY, **QUIET}
    own = folder / "own"  # hides the user's settings of the program, which would change the run
    own.mkdir(exist_ok=True)
    told["MSWEA_GLOBAL_CONFIG_DIR"] = str(own)
    done = subprocess.run(program.command(data), env={**os.environ, **told})
    found = ends(folder)
    if done.returncode or not found:
        what = f"the program ended with {done.returncode} and {len(found)} predictions"
        raise InputError(what, folder / "minisweagent.log", "its words are above")
    return found


def public_task(task: Task) -> Record:
    """Returns a task without its answer."""
    return {name: value for name, value in task.items() if name not in HIDDEN}


def ends(folder: Path) -> dict[str, RolloutEnd]:
    """Returns the end of each attempt in a folder of the program, keyed by instance id. An attempt without a
    trajectory is lost."""
    path = folder / PREDICTIONS
    return {name: end_of(folder, name) for name in load_predictions(path)} if path.is_file() else {}


def end_of(folder: Path, name: str) -> RolloutEnd:
    """Returns how the attempt at an instance ended."""
    path = folder / name / f"{name}.traj.json"
    found = read_json(path) if path.is_file() else {}
    info = found.get("info") if isinstance(found, dict) else None
    return mini_end(info) if isinstance(info, dict) and "exit_status" in info else RolloutEnd.SANDBOX_LOST


def take_out(folder: Path) -> list[str]:
    """Removes lost instances from a folder's predictions, so that they are tried again. Returns their ids."""
    lost = sorted(name for name, end in ends(folder).items() if end in RETRIED_ROLLOUTS)
    if lost:
        rows = load_predictions(folder / PREDICTIONS)
        write_json(folder / PREDICTIONS, {name: row for name, row in rows.items() if name not in lost})
        print(f"{folder}: {len(lost)} lost attempts are tried again, such as {lost[0]}", file=sys.stderr)
    return lost


def merge_slices(folders: Iterable[Path], instance_ids: Iterable[str]) -> dict[str, Prediction]:
    """Merges the predictions of several slices, in the order of `instance_ids`.

    Each instance must occur exactly once. Raises InputError with the instances that are in two slices, in no
    slice, lost, or not among the tasks.
    """
    predictions: dict[str, Prediction] = {}
    faults: dict[str, list[str]] = {"in two slices": [], "lost (run the slice again)": []}
    for folder in folders:
        if not (folder / PREDICTIONS).is_file():
            raise InputError("holds no preds.json", folder, "a folder that the program wrote")
        for name, row in load_predictions(folder / PREDICTIONS).items():
            end = end_of(folder, name)
            if name in predictions:
                faults["in two slices"].append(name)
            if end in RETRIED_ROLLOUTS:
                faults["lost (run the slice again)"].append(name)
            predictions[name] = row | {"model_patch": row.model_patch or "", "outcome": end}
    order = list(instance_ids)
    faults["in none"] = sorted(set(order) - predictions.keys())
    faults["not of the tasks"] = sorted(predictions.keys() - set(order))
    told = [f"{len(names)} {what}, such as {names[0]}" for what, names in faults.items() if names]
    if told:
        raise InputError("; ".join(told), expected="each instance in one slice")
    return {name: predictions[name] for name in order}
