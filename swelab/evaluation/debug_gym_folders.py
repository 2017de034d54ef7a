"""Writes the output files of debug-gym's and SWE-PDB's `scripts/run.py`: a folder for each problem, and
summary.txt.

A problem's folder has debug_gym.log, <problem>_status.json, trajectory.json, tool_calls.json,
conversation.jsonl and debug_gym.patch. The files of swelab's evaluation are next to these folders, in
`evaluation/`.
"""

import json
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.attempt_result import AttemptResult
from swelab.records import Record, read_json, write_bytes, write_json, write_jsonl
from swelab.records.attempt_records import Trajectory
from swelab.scores.statistics.one_rate import wilson
from swelab.tasks.patch_application import encode_patch

RESOLVED, UNRESOLVED, ERROR = "resolved", "unresolved", "error"
SKIPPED = "skip-"
"""Prefix of a status, if an earlier run finished the problem."""


class DebugGymFolders(AttemptFolders):
    """Writes each attempt twice: in swelab's format, and in `runs` in debug-gym's format. Thread-safe. most:
    maximum number of model calls of an attempt."""

    def __init__(self, folder: Path, meta: Record, ended: Callable[[], object], runs: Path, most: int):
        super().__init__(folder, meta, ended)
        self.runs, self.most = runs, most

    def begin(self, instance: str, sample: int) -> None:
        """Writes the status "running" of the problem."""
        write_status(self.runs, instance, "running", total_steps=self.most)

    def write(self, trajectory: Trajectory, done: AttemptResult) -> None:
        """Writes the folder of an attempt in both formats."""
        super().write(trajectory, done)
        name, folder = done.instance_id, self.runs / done.instance_id
        calls = list(tool_calls(trajectory.messages))
        log = list(steps(trajectory.messages))
        head = {"problem": name, "success": status_of(done) == RESOLVED, "agent_type": self.meta["scaffold"]}
        write_json(folder / "trajectory.json", {**head, "log": log})
        write_json(
            folder / "tool_calls.json", {"counts": Counter(each["name"] for each in calls), "calls": calls}
        )
        write_jsonl(folder / "conversation.jsonl", map(message_row, trajectory.messages))
        write_bytes(
            folder / "debug_gym.log",
            "".join(f"{row}\n" for row in log_lines(log, done)).encode("utf-8", "replace"),
        )
        patch = folder / "debug_gym.patch"
        if done.model_patch:
            write_bytes(patch, encode_patch(done.model_patch))
        else:
            patch.unlink(missing_ok=True)
        passed, tests = score_of(done)
        steps_done = done.usage.calls
        write_status(self.runs, name, status_of(done), steps_done, self.most, passed, tests)


def status_of(done: AttemptResult) -> str:
    """Returns "resolved", "unresolved", or "error" if the attempt or its grade was lost to infrastructure."""
    if done.row()["infrastructure"]:
        return ERROR
    return RESOLVED if done.row()["resolved"] else UNRESOLVED


def score_of(done: AttemptResult) -> tuple[int, int | None]:
    """Returns (number of tests with the required result, number of listed tests), or (0, None) if unknown."""
    told = done.grade.tests_status if done.grade else None
    if told is None:
        return 0, None
    passed = [len(part["success"]) for part in told.values()]
    return sum(passed), sum(passed) + sum(len(part["failure"]) for part in told.values())


def write_status(
    runs: Path,
    problem: str,
    status: str,
    step: int = 0,
    total_steps: int = 1,
    score: int = 0,
    max_score: int | None = None,
) -> None:
    """Writes the status file of a problem."""
    found = {"problem_id": problem, "step": step, "total_steps": total_steps, "score": score}
    found |= {"max_score": max_score, "status": status, "logdir": str(runs / problem)}
    write_json(status_path(runs, problem), found)


def status_path(runs: Path, problem: str) -> Path:
    """Returns the path of a problem's status file."""
    return runs / problem / f"{problem}_status.json"


def read_status(runs: Path, problem: str) -> Record:
    """Reads a problem's status file. Returns {} if there is no such file. Raises InputError."""
    path = status_path(runs, problem)
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def steps(messages: Sequence[Record]) -> Iterator[Record]:
    """Yields one record for each turn of the policy: the thought, the tool call and the observation."""
    number = 0
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        answer = next((each for each in messages[place + 1 :] if each["role"] in ("tool", "user")), None)
        calls = message.get("extra", {}).get("actions", [])
        call = calls[-1] if calls else {}
        yield {
            "step_id": number,
            "content": message["content"],
            "action": {"name": call.get("tool", ""), "arguments": call.get("arguments", {})},
            "obs": str(answer["content"]) if answer else "",
        }
        number += 1


def tool_calls(messages: Sequence[Record]) -> Iterator[Record]:
    """Yields each tool call with the number of its turn."""
    for number, step in enumerate(steps(messages)):
        if step["action"]["name"]:
            yield {"step_id": number, **step["action"]}


def message_row(message: Record) -> Record:
    """Returns the message without the fields that only swelab's records need."""
    kept = ("role", "content", "tool_calls", "tool_call_id", "name")
    return {name: message[name] for name in kept if message.get(name) is not None}


def log_lines(log: Sequence[Record], done: AttemptResult) -> Iterator[str]:
    """Yields the lines of debug_gym.log."""
    for step in log:
        action = step["action"]
        yield f"step {step['step_id']}: {action['name'] or 'no call'} {json.dumps(action['arguments'])}"
        yield f"{step['content']}".rstrip()
        yield f"{step['obs']}".rstrip()
    why = f": {done.reason}" if done.reason else ""
    yield f"{done.instance_id}: {status_of(done)}, ended as {done.outcome}, graded {done.status}{why}"


def write_summary(runs: Path, problems: Sequence[str]) -> list[str]:
    """Writes summary.txt with the results of the finished problems, and returns the lines of the file. Raises
    InputError."""
    named: dict[str, list[str]] = {RESOLVED: [], UNRESOLVED: [], ERROR: []}
    for problem in sorted(problems):
        status = str(read_status(runs, problem).get("status", "")).removeprefix(SKIPPED)
        if status in named:
            named[status].append(problem)
    good, bad, lost = (len(each) for each in named.values())
    total = good + bad + lost
    lines = [f"{status}: {names}" for status, names in named.items()]
    lines += [f"num_{status}: {len(names)}" for status, names in named.items()]
    lines.append(f"acc: {good / total:.2%}" if total else "acc: N/A")
    for name, count in (("acc", total), ("acc_without_error", good + bad)):
        if count:
            low, high = wilson(good, count)
            lines.append(f"{name}_interval: {good / count:.2%} [{low:.2%}, {high:.2%}]")
    write_bytes(runs / "summary.txt", "".join(f"{each}\n" for each in lines).encode())
    return lines


def add_experiment(runs: Path, root: Path, config: Record, arguments: Record) -> None:
    """Appends a line about this run to experiment_info.jsonl. `config` and `arguments` must not contain an
    API key."""
    asked = ["git", "-C", str(root), "rev-parse", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    line = {
        "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "git_hash": done.stdout.strip(),
        "config": config,
        "args": arguments,
        "python_version": platform.python_version(),
    }
    runs.mkdir(parents=True, exist_ok=True)
    with open(runs / "experiment_info.jsonl", "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
