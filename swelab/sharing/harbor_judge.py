"""The verifier of an exported task. It runs in the task's container without swelab, and writes the reward.

In the container this file is /tests/judge.py. The file judge.json in the same folder says what to run. The
files files.tar and parser.py exist if the task needs them. /logs/verifier gets the outputs: reward.txt (1 or
0), report.json and test.log.
"""

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOGS = Path("/logs/verifier")
STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
GOOD = {"FAIL_TO_PASS": {"PASSED"}, "PASS_TO_PASS": {"PASSED", "XFAIL"}}
START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
MOST_BYTES = 64 << 20
TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]+[0-~]|\x1b[=>78]"
)
"""The pattern of `swelab.files.text_lines`, for older versions of Python too."""


def put_back(tree: Path, names: list[str], tests: list[str]) -> None:
    """Restores the tests and the test runner's files. Deletes runner files that the attempt added.

    names: file names that configure the test runner. tests: paths of runner files that existed before the
    attempt.
    """
    for folder, inner, files in os.walk(tree):
        inner[:] = [each for each in inner if each not in (".git", ".swelab")]
        for name in files:
            path = Path(folder, name)
            if name in names and path.relative_to(tree).as_posix() not in tests:
                path.unlink()
    with tarfile.open(HERE / "files.tar") as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is None:
                continue
            path = tree
            for part in Path(member.name).parts[:-1]:
                path = path / part
                if path.is_symlink() or (path.exists() and not path.is_dir()):
                    path.unlink()
                path.mkdir(exist_ok=True)
            path = path / Path(member.name).name
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)
            path.write_bytes(stream.read())
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def run(command: str, tree: Path, seconds: float) -> str:
    """Runs the test command for at most `seconds`, and returns its output."""
    log = LOGS / "test.log"
    with open(log, "wb") as stream, subprocess.Popen(
        ["bash", "-c", command], cwd=tree, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    with open(log, "rb") as found:
        return found.read(MOST_BYTES).decode("utf-8", "replace")


def pytest_statuses(log: str) -> dict[str, str]:
    """Maps each test to its status, from the summary lines of `pytest -rA`."""
    statuses = {}
    for line in log.split("\n"):
        if line.startswith(STATUSES):
            words = (line.replace(" - ", " ") if line.startswith("FAILED") else line).split(None, 2)
            if len(words) > 1 and not (words[0] == "SKIPPED" and re.fullmatch(r"\[\d+\]", words[1])):
                statuses[words[1]] = words[0]
    return statuses


def statuses(log: str, parser: str) -> dict[str, str]:
    """Maps each test to its status, without colours and other codes for a terminal. Uses the task's own log
    parser if `parser` names one."""
    log = TERMINAL.sub("", log)
    if not parser:
        return pytest_statuses(log)
    found: dict[str, str] = runpy.run_path(str(HERE / "parser.py"))[parser](log, None)
    return found


def of(test: str, status: dict[str, str]) -> set[str]:
    """Returns the statuses of a listed test. Its id may be truncated at a space, in the log or in the list.
    Then several tests may match."""
    if test in status:
        return {status[test]}
    cut = test.partition(" ")[0]
    if cut in status and cut.count("[") > cut.count("]"):
        return {status[cut]}
    if test.count("[") <= test.count("]"):
        return set()
    return {found for name, found in status.items() if name.startswith(test)}


def judge(settings: dict[str, Any]) -> dict[str, Any]:
    """Runs the tests. Returns the reward (1 or 0), and the passed and failed tests of each group."""
    tree = Path(settings["workdir"])
    if settings["put_back"]:
        put_back(tree, settings["runner_files"], settings["known"])
    log = run(settings["command"], tree, settings["seconds"])
    if settings["marked"]:
        _, begun, rest = log.partition(START)
        log, ended, _ = rest.rpartition(END)
        log = log if begun and ended else ""
    status = statuses(log, settings["parser"])
    tests: dict[str, dict[str, list[str]]] = {}
    for group, good in GOOD.items():
        passed = [test for test in settings[group] if (found := of(test, status)) and found <= good]
        failed = [test for test in settings[group] if test not in set(passed)]
        tests[group] = {"success": passed, "failure": failed}
    return {"reward": int(not any(each["failure"] for each in tests.values())), "tests": tests}


def main() -> None:
    """Runs the tests, and writes report.json and then reward.txt."""
    LOGS.mkdir(parents=True, exist_ok=True)
    found = judge(json.loads((HERE / "judge.json").read_text(encoding="utf-8")))
    (LOGS / "report.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (LOGS / "reward.txt").write_text(f"{found['reward']}\n")
    print(f"reward {found['reward']}", file=sys.stderr)


if __name__ == "__main__":
    main()
