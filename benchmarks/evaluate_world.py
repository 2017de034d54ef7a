"""Instances for `benchmarks.evaluate`, with sandboxes and test runs that take no time.

`python -m benchmarks.evaluate_world ...` runs `scripts.evaluate` with instant sandboxes.
`InstantEnvironment` provides the same sandboxes to mini-swe-agent's runner.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import tiny_tasks
from swelab.models.chat.text_model import Settings
from swelab.records import Record, write_json, write_jsonl
from swelab.records.task_records import Task
from swelab.sandbox import ExecResult, Limits
from swelab.sandbox.protocol import Closing

IMAGE = "tiny/instant:1"
MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
PULLED = {"bytes": 0, "folder": "", "workdir": "/testbed", "pulled": "1970-01-01T00:00:00Z"}


def make_world(folder: Path, count: int, instant: bool) -> list[Task]:
    """Writes rows.jsonl, and the files from which sandboxes start.

    These are images.json for instant sandboxes, and repos/tiny.tar for real sandboxes.
    """
    (folder / "repos").mkdir(parents=True)
    tiny_tasks.archive(folder / "repos")
    rows = [
        row | {"problem_statement": f"x is 2 in {row.instance_id}, and should be 1."}
        for row in tiny_tasks.rows(count)
    ]
    if instant:
        rows = [row | {"repo_recipe": "", "image_name": IMAGE} for row in rows]
        image = PULLED | {"digest": f"sha256:{'0' * 64}", "checked": 1, "leaks": []}
        write_json(folder / "images.json", {"images": {IMAGE: image}, "failed": {}, "counts": {}})
    write_jsonl(folder / "rows.jsonl", rows)
    return rows


def output_of(command: str) -> str:
    """Returns the output of a command in a sandbox that runs nothing."""
    if MARKER in command:
        return f"{MARKER}\n{tiny_tasks.FIX}"
    return f"BASE {'0' * 40}\n" if "scrub.sh" in command else ""


class InstantSandbox(Closing):
    """A sandbox that runs nothing."""

    def exec(self, command: str, *, env: Any = None, limits: Limits | None = None) -> ExecResult:
        """See `protocol.Sandbox.exec`."""
        return ExecResult(output_of(command).encode(), 0, False, 0, "", 0.0)

    def put(self, path: str, data: bytes) -> None:
        """Keeps nothing."""

    def close(self) -> None:
        """Nothing to end."""


class InstantBackend:
    """A backend whose sandboxes run nothing."""

    name = "instant"

    def start(self, tree: Path | None, **_: Any) -> Any:
        """See `protocol.Backend.start`."""
        return InstantSandbox()


class InstantEnvironment:
    """See mini-swe-agent's Environment protocol."""

    def __init__(self, **_: Any) -> None:
        self.config = Settings()

    def execute(self, action: Record, cwd: str = "") -> Record:
        """Runs nothing. Raises Submitted."""
        from minisweagent.exceptions import Submitted

        output = output_of(action["command"])
        if output.startswith(MARKER):
            patch = output.partition("\n")[2]
            extra = {"exit_status": "Submitted", "submission": patch}
            raise Submitted({"role": "exit", "content": patch, "extra": extra})
        return {"output": output, "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **kwargs: Any) -> Record:
        """Variables for prompts."""
        return {"system": "Linux", "release": "", "version": "", "machine": "x86_64", **kwargs}

    def serialize(self) -> Record:
        """Returns the trajectory's facts about the environment."""
        return {"info": {"config": {"environment_type": "instant"}}}


def evidence_of(task: Mapping[str, Any], patch: str, *_: Any, **__: Any) -> Any:
    """Returns evidence of passed tests, without running the tests."""
    from swelab.grading.evidence import RunEvidence

    tests = [*task["FAIL_TO_PASS"], *task["PASS_TO_PASS"]]
    guard = {"findings": [], "dynamic": [], "echo": "", "guarded": False, "sealed": "", "observed": None}
    log = "".join(f"PASSED {test}\n" for test in tests)
    rest = {"ended": "ran", "reason": "", "seconds": 0.0, "timed_out": False, "log": log, "code": 0}
    return RunEvidence.of({**guard, **rest})


def main() -> None:
    from scripts import evaluate
    from swelab.console.terminal import run_script
    from swelab.evaluation import attempt_run
    from swelab.grading import grading_stage

    attempt_run.open_backend = InstantBackend  # type: ignore[assignment]
    grading_stage.run_patch = evidence_of  # type: ignore[attr-defined]
    run_script(evaluate.main)


if __name__ == "__main__":
    main()
