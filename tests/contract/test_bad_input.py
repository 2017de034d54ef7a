"""Bad input at the command line gives one clear line and a non-zero exit code.

Nothing is lost or half-written.
"""

import json
import os
import shutil
import subprocess

import pytest

from tests.conftest import run_python

TRAJECTORY = {
    "policy": "p",
    "subset": "s",
    "outcome": "submitted",
    "model_patch": "",
    "messages": [],
    "info": {},
    "trajectory_format": "mini-swe-agent-1.1",
}


@pytest.fixture
def files(tmp_path, task):
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"instance_id": task["instance_id"], **TRAJECTORY}) + "\n"
    )
    prediction = {"instance_id": task["instance_id"], "model_name_or_path": "p", "model_patch": ""}
    (tmp_path / "preds.json").write_text(json.dumps([prediction]))
    return tmp_path


def refused(done, *words):
    assert done.returncode not in (0, 1), done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


def collect(files, output="out.json", **options):
    return run_python(
        "-m", "scripts.collect_predictions", "--tasks", files / "tasks.json",
        "--trajectories", files / "rows.jsonl", "--output", files / output, **options,
    )  # fmt: skip


def grade(files, repos_dir, **options):
    return run_python(
        "-m", "scripts.grade", "--tasks", files / "tasks.json", "--predictions", files / "preds.json",
        "--repos-dir", repos_dir, "--policy", "p", "--subset", "s", "--progress", files / "journal.jsonl",
        "--output", files / "grades.jsonl", **options,
    )  # fmt: skip


def test_collecting_predictions(files):
    assert collect(files).returncode == 0
    assert list(json.loads((files / "out.json").read_text()).values())[0]["outcome"] == "submitted"


def test_truncated_line(files):
    path = files / "rows.jsonl"
    path.write_text(path.read_text() + '{"instance_id": "x", "mess')
    refused(collect(files), "rows.jsonl, line 2", "cut short")
    assert not (files / "out.json").exists()


def test_wrong_field_missing_and_double_trajectories(files):
    path = files / "rows.jsonl"
    good = path.read_text()
    path.write_text(good.replace('"submitted"', '"won"'))
    refused(collect(files), "outcome", "rows.jsonl")
    path.write_text("")
    refused(collect(files), "1 tasks without a trajectory")
    path.write_text(good * 2)
    refused(collect(files), "two trajectories")


ABSENT = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
"""A patch of a file that is not there."""


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda rows: rows * 2, ["row 1", "the same instance_id as row 0"]),
        (lambda rows: [{k: v for k, v in rows[0].items() if k != "FAIL_TO_PASS"}], ["row 0", "FAIL_TO_PASS"]),
        (lambda rows: [rows[0] | {"FAIL_TO_PASS": []}], ["FAIL_TO_PASS"]),
        (lambda rows: {"a": 1}, ["JSON list"]),
        (lambda rows: [rows[0] | {"repo_recipe": "nothing"}], ["nothing.tar", "no such repository archive"]),
        (lambda rows: [{k: v for k, v in rows[0].items() if k != "test_cmd"}], ["test_cmd"]),
        (lambda rows: [rows[0] | {"patch": ABSENT}], ["does not apply"]),
    ],
)
def test_broken_tasks(files, repos_dir, change, words):
    path = files / "tasks.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps(change(rows)))
    patch = json.dumps(ABSENT)
    text = (files / "preds.json").read_text().replace('"model_patch": ""', f'"model_patch": {patch}')
    (files / "preds.json").write_text(text)
    refused(grade(files, repos_dir), *words)
    assert not (files / "grades.jsonl").exists()


PS = ["--policy", "p", "--subset", "s"]


@pytest.mark.parametrize("script", ["collect_predictions", "report_grades", "check_disjoint", "grade"])
@pytest.mark.parametrize("lacks", ["tasks", "rows"])
def test_nothing_comes_of_nothing(files, script, lacks):
    """Each of these commands used to write an empty file and exit with 0."""
    tasks = files / "none.json" if lacks == "tasks" else files / "tasks.json"
    (files / "none.json").write_text("[]")
    (files / "none.jsonl").write_text("")
    options = {
        "collect_predictions": ["--tasks", tasks, "--trajectories", files / "none.jsonl"],
        "report_grades": ["--tasks", tasks, "--grades", files / "none.jsonl", *PS],
        "check_disjoint": ["--train", tasks, "--heldout", files / "none.json"],
        "grade": ["--tasks", tasks, "--predictions", files / "none.json", *PS, "--repos-dir", files]
        + ["--progress", files / "journal.jsonl"],
    }
    done = run_python("-m", f"scripts.{script}", *options[script], "--output", files / "out.json")
    refused(done, "without a trajectory" if (script, lacks) == ("collect_predictions", "rows") else "no")
    assert not (files / "out.json").exists()


def test_prediction_of_no_task(files, repos_dir):
    text = (files / "preds.json").read_text().replace("swelab__calc", "swelab__calk")
    (files / "preds.json").write_text(text)
    refused(grade(files, repos_dir), "predictions match no task")


@pytest.mark.real
def test_no_bwrap(files, repos_dir, tmp_path):
    bare = tmp_path / "bin"
    bare.mkdir()
    for program in ("git", "sh", "bash", "cp"):
        (bare / program).symlink_to(shutil.which(program))
    refused(grade(files, repos_dir, env=os.environ | {"PATH": str(bare)}), "bwrap", "bubblewrap")


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_disk_full(files):
    small = files / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        row = json.loads((files / "rows.jsonl").read_text()) | {"model_patch": "x" * 200_000}
        (files / "rows.jsonl").write_text(json.dumps(row) + "\n")
        (small / "out.json").write_text("{}\n")
        refused(collect(files, "small/out.json"), "disk full")
        assert (small / "out.json").read_text() == "{}\n"
        assert [path.name for path in small.iterdir()] == ["out.json"]
    finally:
        subprocess.run(["umount", small], check=True)
