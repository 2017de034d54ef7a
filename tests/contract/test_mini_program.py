"""The real program mini-swe-agent: commands run in our sandboxes, slices are merged and graded."""

import json
import os
import re
import subprocess
import sys

import pytest

from swelab.records import read_json
from tests.conftest import ROOT, make_repos, make_task, run_python
from tests.contract.planned_model import KEY, as_block, planned_model

pytestmark = [pytest.mark.real, pytest.mark.full]
PLAN = [
    ("I look.", "bash", {"command": "cat calc/core.py; curl -sm 2 http://127.0.0.1 || echo no network"}),
    ("I repair it.", "bash", {"command": "sed -i 's/a - b/a + b/' calc/core.py && git diff > p.txt"}),
    ("I submit.", "bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat p.txt"}),
]
SCRIPT = ROOT / "swe-rl/scripts/run_minisweagent_eval.sh"


def test_slices_of_the_real_program_make_the_whole_and_are_resolved(tmp_path):
    make_repos(tmp_path)
    rows = [make_task() | {"instance_id": f"task-{n}"} for n in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = {name: value for name, value in os.environ.items() if not name.startswith("SWELAB_")}
    told |= {"OPENAI_API_KEY": KEY, "PYTHON_BIN": sys.executable, "ENV_SWE": "/dev/null"}
    given = ["--data", tmp_path / "rows.jsonl", "--repos-dir", tmp_path / "repos", "--model", "toy"]
    with planned_model(PLAN, as_block) as server:
        runs = [
            subprocess.Popen(
                [SCRIPT, "--sglang-url", server.url, "--workers", "2", "--slice", part, "--no-grade"]
                + [*map(str, given), "--output", str(tmp_path / part.replace(":", "-"))],
                env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for part in ("0:2", "2:")
        ]  # fmt: skip
        said = [run.communicate(timeout=240)[0] for run in runs]
        assert [run.returncode for run in runs] == [0, 0], said
        asked = len(server.requests)
    assert asked == 9 and "preds.json: 2 submitted" in said[0]
    seen = [json.dumps(request["messages"]) for request in server.requests]
    assert any("no network" in text for text in seen) and not any("test_add" in text for text in seen)
    slices, preds = [tmp_path / "0-2", tmp_path / "2-"], tmp_path / "preds.json"
    merge = ["-m", "scripts.run_mini_swe_agent", "--data", tmp_path / "rows.jsonl", "--output", preds]
    done = run_python(*merge, "--merge", *slices)
    assert done.returncode == 0, done.stderr
    assert list(read_json(preds)) == ["task-0", "task-1", "task-2"]
    twice = run_python(*merge, "--merge", *slices, slices[1])
    assert twice.returncode == 2 and "1 in two slices, such as task-2" in twice.stderr
    grade = ["-m", "scripts.run_evaluation", "-d", tmp_path / "rows.jsonl", "-p", preds, "--run_id", "mini"]
    done = run_python(*grade, "--logs", tmp_path / "graded", "--repos-dir", tmp_path / "repos")
    assert "3 of 3 resolved" in done.stderr, done.stderr


OPENED = """
import sys
from importlib.metadata import packages_distributions
from swelab.rollouts.program_environment import ProgramEnvironment
box = ProgramEnvironment(tasks=sys.argv[1], repos=sys.argv[2])
box.execute({"command": "swelab-open task-0"})
assert "def add" in box.execute({"command": "cat calc/core.py"})["output"]
box.cleanup()
known = packages_distributions()
print(*{name for each in sys.modules for name in known.get(each.partition(".")[0], [])})
"""


def test_the_programs_own_environment_has_all_that_our_sandboxes_need(tmp_path):
    repos = make_repos(tmp_path)
    (tmp_path / "tasks.json").write_text(json.dumps([make_task() | {"instance_id": "task-0"}]))
    told = {name: value for name, value in os.environ.items() if not name.startswith("SWELAB_")}
    done = run_python("-c", OPENED, tmp_path / "tasks.json", repos, env=told)
    assert done.returncode == 0, done.stderr
    lines = (ROOT / "envs/mini-swe-agent.txt").read_text().splitlines()
    plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()  # noqa: E731
    listed = {plain(line.partition("==")[0]) for line in lines if "==" in line}
    loaded = {plain(name) for name in done.stdout.split()} - {"swelab", "pip", "setuptools"}
    assert "fastjsonschema" in loaded and loaded <= listed, loaded - listed


FORGOTTEN = """
import sys
from swelab.rollouts.program_environment import ProgramEnvironment
box = ProgramEnvironment(tasks=sys.argv[1], repos=sys.argv[2])
box.itself = box
box.execute({"command": "swelab-open task-0"})
"""


def test_an_environment_that_the_program_forgets_is_closed_at_its_end(tmp_path):
    repos = make_repos(tmp_path)
    (tmp_path / "tasks.json").write_text(json.dumps([make_task() | {"instance_id": "task-0"}]))
    (tmp_path / "scratch").mkdir()
    told = os.environ | {"SWELAB_SCRATCH": str(tmp_path / "scratch")}
    done = run_python("-c", FORGOTTEN, tmp_path / "tasks.json", repos, env=told)
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "scratch").iterdir()) == []
