"""The real sb-cli with a stand-in of its service: submits, waits, is refused, resumes."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swelab.grading.swebench_report import build_report
from swelab.patience import Pauses
from swelab.records import read_jsonl
from swelab.records.attempt_records import Grade, Prediction
from swelab.scores.score import score as scored
from swelab.service import ServiceError, SubmissionRefused, submission
from swelab.service.submission import SbCli, ServiceBenchmark, Waiting, judge_by_service, sendable
from swelab.tasks.task_rows import read_tasks
from tests.conftest import run_python
from tests.contract.sb_service import KEY, Service, serving

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SWELAB_SB_CLI") or ROOT / ".venv-sb-cli/bin/sb-cli")
pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.skipif(
        not PROGRAM.exists(), reason="sb-cli is not installed: `make sb-cli`, or $SWELAB_SB_CLI"
    ),
]
AT = ServiceBenchmark("swe-bench_verified", "test")
IDS = [f"a__b-{number}" for number in range(4)]
PREDICTIONS = {
    name: {"instance_id": name, "model_name_or_path": "p", "model_patch": f"diff {name}" if number else None}
    for number, name in enumerate(IDS)
}


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """Returns a function that grades PREDICTIONS at a service. `attempt.log` contains its messages."""
    monkeypatch.setenv("SWEBENCH_API_KEY", KEY)
    monkeypatch.setattr(submission, "SUBMISSIONS", Pauses(attempts=2))
    monkeypatch.setattr(submission, "SETTLING", 1)

    def judged(service, predictions=PREDICTIONS, total=60):
        with serving(service) as address:
            monkeypatch.setenv("SWEBENCH_API_URL", address)
            judged.log = io.StringIO()
            program = SbCli(PROGRAM, 60, judged.log)
            service.stalled = lambda: setattr(program, "seconds", 0.5)
            typed = {name: Prediction.of(row) for name, row in predictions.items()}
            rows = sendable(typed, IDS, "p")
            return judge_by_service(rows, AT, "p", tmp_path, program, Waiting(0.05, total))

    return judged


def test_predictions_are_submitted_awaited_and_judged_once(attempt, tmp_path):
    service = Service(resolved=[IDS[1]], looks=2)
    record = attempt(service)
    assert {name: each["verdict"] for name, each in record["instances"].items()} == {
        IDS[0]: "unresolved", IDS[1]: "resolved", IDS[2]: "unresolved", IDS[3]: "unresolved",
    }  # fmt: skip
    assert sorted(service.posts) == IDS and service.asked == 3
    assert service.runs[(AT.subset, AT.split, record["run_id"])][IDS[0]]["model_patch"] == ""
    assert KEY not in attempt.log.getvalue() and "new predictions uploaded" in attempt.log.getvalue()
    again = attempt(service)
    assert again == record and sorted(service.posts) == IDS  # nothing is sent again
    (tmp_path / "state.json").write_text(json.dumps({"run_id": record["run_id"], "submitted": IDS[:1]}))
    service.quota = 0  # the started run goes on; the service already has it and says so
    assert attempt(service) == record and sorted(service.posts) == sorted(IDS + IDS[1:])
    service.quota, service.posts = 1, []
    changed = {**PREDICTIONS, IDS[3]: {**PREDICTIONS[IDS[3]], "model_patch": "another"}}
    other = attempt(service, changed)
    assert other["run_id"] != record["run_id"] and sorted(service.posts) == IDS


def test_what_was_not_taken_is_sent_again_and_nothing_else(attempt):
    service = Service(resolved=IDS[1:2])
    service.refuse = {IDS[2]: [(500, "Internal server error")], IDS[3]: [(429, "Too many requests")]}
    assert attempt(service)["instances"][IDS[1]]["verdict"] == "resolved"
    assert sorted(service.posts) == IDS


@pytest.mark.parametrize(
    ("service", "fault", "words"),
    [
        (
            {"statuses": {"/get-quotas": [(401, {"message": "Invalid API key"})]}},
            SubmissionRefused,
            "refused the key",
        ),
        ({"quota": 0}, SubmissionRefused, "no runs left on swe-bench_verified test"),
        ({"refuse": {name: [(402, "quota")] * 9 for name in IDS}}, SubmissionRefused, "quota is used up"),
        ({"refuse": {IDS[2]: [(429, "slow down")] * 9}}, ServiceError, "1 of 4 predictions were not taken"),
        ({"statuses": {"/submit": [(500, "<html>")]}}, ServiceError, "4 of 4 predictions were not taken"),
        ({"statuses": {"/get-report": [(500, {"message": "boom"})]}}, ServiceError, "status code 500: boom"),
        ({"stall": {"/get-report"}}, ServiceError, "4 of 4 pending; last fault: .*did not end in 0.5 s"),
        ({"looks": 10**6}, ServiceError, "2 of 4 pending; the same command goes on waiting"),
        ({"change": lambda report: {}}, ServiceError, "sb-cli get-report: KeyError"),
        ({"change": lambda r: other_ids(r)}, ServiceError, "instances that were not submitted: 4, such as x"),
    ],
    ids=lambda value: None if isinstance(value, type | dict) else value[:20],
)
def test_faults_of_the_service_are_one_line(attempt, service, fault, words):
    failing = Service(resolved=IDS[1:2], quota=service.pop("quota", 3), looks=service.pop("looks", 1))
    for name, value in service.items():
        setattr(failing, name, value)
    slow = failing.stall or failing.looks > 9
    with pytest.raises(fault, match=words) as error:
        attempt(failing, total=0 if slow else 60)
    assert "\n" not in str(error.value) and KEY not in str(error.value)
    assert KEY not in attempt.log.getvalue()


def other_ids(report):
    return json.loads(json.dumps(report).replace("a__b", "x__b"))


def script(folder, address, tasks="tasks.json", **environment):
    command = ["-m", "scripts.submit_predictions", "--tasks", folder / tasks, "--policy", "p"]
    command += ["--predictions", folder / "preds.json", "--recipe", folder / "verified.yaml"]
    command += ["--sb-cli", PROGRAM, "--progress", folder / "work", "--output", folder / "run.json"]
    told = {**os.environ, "SWEBENCH_API_KEY": KEY, "SWEBENCH_API_URL": address, **environment}
    return subprocess.Popen(
        [sys.executable, *map(str, [*command, "--poll-seconds", "0.1"])],
        cwd=ROOT, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def files(tmp_path, task):
    tasks = [task | {"instance_id": name} for name in IDS]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    (tmp_path / "preds.json").write_text(json.dumps(PREDICTIONS))
    recipe = {"source": "dataset", "dataset": "SWE-bench/SWE-bench_Verified", "split": "test"}
    recipe |= {"revision": "0" * 40, "scorer": "sb-cli"}
    (tmp_path / "verified.yaml").write_text(json.dumps(recipe))
    return tmp_path


def graded(files, tasks="tasks.json"):
    """Returns the grades that `scripts.grade` makes from the record of a run."""
    names = ["--tasks", files / tasks, "--policy", "p", "--subset", "s"]
    command = ["-m", "scripts.grade", *names, "--predictions", files / "preds.json", "--service"]
    command += [files / "run.json", "--repos-dir", files, "--progress", files / "journal.jsonl"]
    made = run_python(*command, "--output", files / "grades.jsonl")
    assert made.returncode == 0, made.stderr
    return [Grade.of(row) for row in read_jsonl(files / "grades.jsonl")]


def test_a_killed_run_is_taken_up_and_scored(files):
    """The command is killed while it waits.

    The same command then finishes, and its record gives grades and a score.
    """
    service = Service(resolved=IDS[1:3], looks=10**6)
    with serving(service) as address:
        killed = script(files, address)
        while service.asked < 1:
            assert killed.poll() is None, killed.stderr.read()
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert not (files / "run.json").exists() and sorted(service.posts) == IDS
        service.looks = service.asked
        done = script(files, address)
        said = done.communicate(timeout=60)
    assert done.returncode == 0, said
    assert "2/4 resolved" in said[0] and sorted(service.posts) == IDS
    tasks = list(read_tasks(files / "tasks.json"))
    report = build_report(tasks, graded(files), "p", "s")
    score = scored(tasks, report, "p", "s")
    assert (score["resolved"], score["total"]) == (2, 4) and score["statuses"]["empty_patch"] == 1
