"""Copies of answers that the agent could read are found. Their tasks are refused, or named in the lock."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from swelab.records import read_json
from swelab.records.task_records import Task
from swelab.sandbox import open_backend
from swelab.tasks.answer_leaks import answer_of, find_leaks
from swelab.tasks.checkout import RepoStore
from tests.conftest import make_repos

pytestmark = pytest.mark.real
CORE = (
    "def mean(values):\n    total = sum(values)\n    count = len(values)\n    return total / count\n\n\n"
    "def last(items):\n    return items[-1]\n"
)
BUG = (
    "--- a/calc/core.py\n+++ b/calc/core.py\n@@ -1,5 +1,5 @@\n def mean(values):\n     total = sum(values)\n"
    "     count = len(values)\n-    return total / count\n+    return total // count\n \n"
)
TEST = "from calc.core import mean\n\n\ndef test_mean():\n    assert mean([1, 2]) == 1.5\n"


@pytest.fixture
def bent(task):
    return Task.of(
        task
        | {"patch": BUG, "FAIL_TO_PASS": ["tests/test_mean.py::test_mean"], "PASS_TO_PASS": []}
        | {"test_files": ["tests/test_mean.py"]}
    )


def archive(repos_dir, **more):
    files = {"calc/__init__.py": "", "calc/core.py": CORE, "tests/test_mean.py": TEST, **more}
    make_repos(repos_dir.parent, files)


def leaks(task, repos_dir, tmp_path, backend):
    found = find_leaks([task], RepoStore(repos_dir, tmp_path / "trees"), backend, {})
    return [(leak.instance_id == task.instance_id, leak.what) for leak in found]


def test_an_answer_is_what_the_fixed_files_alone_hold(bent):
    told = {line for window in answer_of(bent).windows for line in window}
    assert "return total / count" in told and "return total // count" not in told
    as_fix = Task.of(bent | {"test_patch": "x"})
    assert any("return total // count" in window for window in answer_of(as_fix).windows)


def test_a_copy_in_the_toolbox_is_found(bent, repos_dir, tmp_path, backend):
    archive(repos_dir)
    assert leaks(bent, repos_dir, tmp_path, backend) == []
    toolbox = tmp_path / "toolbox"
    shutil.copytree(backend.toolbox.path, toolbox, symlinks=True)
    packages = next((toolbox / "lib").glob("python*/site-packages"))
    (packages / "average.py").write_text(f"class A:\n\n{CORE}".replace("\n", "\n    "))
    found = leaks(bent, repos_dir, tmp_path, open_backend("bubblewrap", toolbox=toolbox))
    where = f"/opt/toolbox/{packages.relative_to(toolbox)}/average.py"
    assert found == [(True, f"{where} holds lines of the answer")]


def test_a_copy_of_a_hidden_test_is_found(bent, repos_dir, tmp_path, backend):
    told = "def test_means():\n    values = [1, 2]\n    assert mean(values) == 1.5\n"
    archive(repos_dir, **{"tests/test_mean.py": TEST + told, "docs/usage.txt": f"Such as:\n\n{told}"})
    row = Task.of(bent | {"FAIL_TO_PASS": ["tests/test_mean.py::test_means"]})
    assert leaks(row, repos_dir, tmp_path, backend) == []
    found = leaks(Task.of(row | {"hidden_tests": True}), repos_dir, tmp_path, backend)
    assert found == [(True, "docs/usage.txt holds lines of a hidden test")]


def test_a_copy_in_the_repository_is_refused_unless_allowed(bent, repos_dir, tmp_path):
    archive(repos_dir, **{"build/lib/calc/core.py": CORE})
    (tmp_path / "tasks.json").write_text(json.dumps([bent]))
    what = "build/lib/calc/core.py holds lines of the answer"
    told = [{"instance_id": bent.instance_id, "what": what}]
    code, said = validate(tmp_path, allow="false")
    assert code == 2 and f"{bent.instance_id}: its answer can be read: {what}" in said
    assert validate(tmp_path, allow="true")[0] == 0
    lock = read_json(tmp_path / "lock.json")
    assert lock["leaks"] == told and [row["instance_id"] for row in lock["kept"]] == [bent.instance_id]


def validate(folder, allow):
    recipe = folder / "subset.yaml"
    recipe.write_text(
        "source: forge\nrepos: [calc]\nside: heldout\nheldout_share: 0.5\nlimit: 1\n"
        f"validate: {{gold_runs: 1, allow_leaks: {allow}}}\n"
    )
    words = {"tasks": "tasks.json", "recipe": recipe.name, "repos-dir": "repos", "progress": "journal.jsonl"}
    words |= {"output": "lock.json", "kept": "kept.json"}
    options = [part for name, path in words.items() for part in (f"--{name}", str(folder / path))]
    command = [sys.executable, "-m", "scripts.validate_tasks", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"SWELAB_BACKEND": ""})
    return done.returncode, done.stderr
