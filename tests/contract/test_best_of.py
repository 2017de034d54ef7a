"""Best-of-n chooses an attempt by tests that the agent could see, never by hidden tests."""

import json
import sys
import threading

import pytest

from scripts import evaluate
from swelab.console.terminal import run_script
from swelab.records import read_json, read_jsonl
from tests.conftest import FILES, make_repos, make_task
from tests.contract.hosted_service import Service, text_of

pytestmark = pytest.mark.real
SEEN = "from calc.core import add, last\n\n\ndef test_zero():\n    assert add(0, 0) == 0\n\n\n"
SEEN += "def test_seen():\n    assert last([1, 2]) == 2\n"
EDITS = {
    0: "s/a - b/a + b/; s/items\\[-1\\]/items[0]/",  # fails a test that the agent sees
    1: "s/a - b/b - a/",  # only hidden tests show that it is wrong
    2: "s/a - b/a + b/",
    3: "s/a - b/a + b/",
}
"""Edits of task-0, by sample. For task-1 the second sample is right."""


class Seeds(Service):
    """A service whose responses depend on the seed in the request."""

    now = threading.local()

    def reply(self, openai, body):
        self.now.seed = body["seed"]
        return super().reply(openai, body)


def speak(turn, history):
    seed = Seeds.now.seed
    edit = EDITS[seed]
    if "task-1" in "".join(map(text_of, history)):
        edit = EDITS[{1: 2, 2: 1}.get(seed, 0)]
    command = f"sed -i '{edit}' calc/core.py; touch tests/test_core.py"
    return f"```bash\n{'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT' if turn else command}\n```"


@pytest.fixture
def world(tmp_path):
    make_repos(tmp_path, FILES | {"tests/test_seen.py": SEEN})
    kept = {"PASS_TO_PASS": ["tests/test_core.py::test_last", "tests/test_seen.py::test_seen"]}
    kept |= {"test_files": ["tests/test_core.py", "tests/test_seen.py"]}
    names = (("task-0", {"hidden_tests": True}), ("task-1", {}))
    rows = [
        make_task() | kept | more | {"instance_id": name, "problem_statement": name} for name, more in names
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_best_of_four_is_chosen_by_visible_tests(world, monkeypatch, capfd):
    service, out = Seeds(speak=speak), world / "out"
    given = ["--model", "openai/toy/model", "--api-base", f"{service.url}/v1", "--no-checks", "--samples", 4]
    given += ["--data", world / "rows.jsonl", "--repos-dir", world / "repos", "--output-dir", out]
    given += ["--scaffold", "configs/scaffolds/demo.yaml", "--max-tokens", "200"]
    monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, given)])
    with pytest.raises(SystemExit) as end:
        run_script(evaluate.main)
    service.close()
    told = capfd.readouterr()
    assert end.value.code == 0, told.err
    rows = {
        (row["instance_id"], row.get("sample", 0)): row["resolved"]
        for row in read_jsonl(out / "results.jsonl")
    }
    assert [rows["task-0", n] for n in range(4)] == [False, False, True, True]
    assert [rows["task-1", n] for n in range(4)] == [False, True, False, False]

    found = read_json(out / "summary.json")
    best = found["best_of"]
    assert best["of"] == 4 and best["resolved"] == best["total"] == 2 and len(best["interval"]) == 2
    assert best["chosen"] == {"task-0": 2, "task-1": 1}, (
        "two left the right patch; one passes more visible tests"
    )
    assert best["decided"] == {"tie": 1, "visible_tests": 1} and best["repair_tests_seen"] == 1
    seen = [row for row in read_jsonl(out / "progress/visible.jsonl") if row["instance_id"] == "task-0"]
    assert sorted(row["passed"] for row in seen) == [1, 2, 2], "test_core.py is hidden: none of its tests ran"
    assert not any(row["repairs"] for row in seen)
    assert [run["resolved"] for run in found["runs"]] == [0, 1, 1, 1]
    low, high = found["run_to_run"]["interval"]
    assert low < found["pass_at"]["1"]["rate"] == 3 / 8 < high
    assert (
        "| best of 4 by visible tests | 100.0% [" in told.out
        and "| pass^2 | " in told.out
        and "| pass@1 from run to run | [" in told.out
    )
