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
