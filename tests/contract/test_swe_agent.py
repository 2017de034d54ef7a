"""SWE-agent's batches as a stage: resumed, retried, typed. The program is a stand-in, the engine is real."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swelab.agents.swe_agent import AgentFailed
from swelab.configs import recipes
from swelab.configs.kinds import POLICY, SCAFFOLD
from swelab.jobs.lost_instances import ShardLost
from swelab.models import BudgetSpent
from swelab.records import InputError, check, read_json, read_jsonl, write_json
from swelab.records.attempt_records import Trajectory
from swelab.rollouts.swe_agent_rollouts import roll_out_batch
from swelab.tasks.task_rows import read_tasks
from tests.conftest import ROOT, run_python
from tests.contract.attacks import processes_with, until
from tests.contract.hosted_service import PRICE, Service
from tests.contract.planned_model import KEY
from tests.unit.recorded_runs import PATCH

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
STANDIN = Path(__file__).with_name("sweagent_standin.py")
NAMES = ("o__r.1.x__1", "o__r.1.x__2", "o__r.1.x__3")


@pytest.fixture
def batch(engine, image, tmp_path, monkeypatch):
    """A shard of three tasks in an image of the engine, a policy, a scaffold, and the stand-in."""
    from swelab.sandbox.docker_engine import DockerEngine
    from swelab.sandbox.sandbox_image import load_image

    held = load_image(DockerEngine())
    row = {"repo": "o/r", "patch": PATCH, "problem_statement": "Mend it.", "image_name": held.name}
    row |= {"FAIL_TO_PASS": ["t.py::t"], "PASS_TO_PASS": []}
    write_json(tmp_path / "tasks.json", [row | {"instance_id": name} for name in NAMES])
    known = {"digest": held.digest, "bytes": 1, "folder": "", "workdir": "/testbed"}
    known |= {"pulled": "2025-01-01", "checked": 1, "leaks": []}
    write_json(tmp_path / "images.json", {"images": {held.name: known}, "failed": {}, "counts": {}})
    endpoint = (
        "{kind: checkpoint, scaffold: x, weights: w, endpoint: 'http://127.0.0.1:9/v1', api_key_env: K}"
    )
    (tmp_path / "student.yaml").write_text(endpoint)
    scaffold = {"agent": "swe-agent", "config": "configs/swe-agent/infer.yaml", "stall_seconds": 2}
    write_json(tmp_path / "scaffold.yaml", scaffold)
    program = tmp_path / "sweagent"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "patch").write_text(PATCH)
    for name, value in {
        "SWELAB_SWEAGENT": program,
        "STANDIN_PATCH": tmp_path / "patch",
        "STANDIN_TOLD": tmp_path / "told",
        "K": KEY,
    }.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def roll_out(batch, monkeypatch, mode="", max_lost=0, **settings):
    """Returns the shard's trajectories by name, from a stand-in that behaves as `mode` says."""
    monkeypatch.setenv("STANDIN", mode)
    scaffold = recipes.load(SCAFFOLD, batch / "scaffold.yaml")
    rows = roll_out_batch(
        list(read_tasks(batch / "tasks.json")),
        policy_name="student",
        policy=recipes.load(POLICY, batch / "student.yaml").model_copy(update={"max_lost": max_lost}),
        scaffold=scaffold.model_copy(update=settings),
        subset="s",
        shard="000of001",
        images_path=batch / "images.json",
        progress=batch / "progress" / "000of001.jsonl",
        workers=2,
    )
    found = {row["instance_id"]: row for row in rows}
    for row in found.values():
        check(row, Trajectory, "row")
    return found


def outcomes(rows):
    return [rows[name]["outcome"] for name in NAMES]


def starts(batch):
    """Returns the command line of each batch that the program ran."""
    told = batch / "told"
    return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def test_a_shard_is_one_batch_and_nothing_is_done_twice(batch, monkeypatch, engine):
    rows = roll_out(batch, monkeypatch)
    assert outcomes(rows) == ["submitted"] * 3
    first = rows[NAMES[0]]
    assert first["model_patch"] == PATCH and first["info"]["patch_from"] == "pred"
    assert first["policy"] == "student" and first["trajectory_format"] == "swe-agent"
    assert roll_out(batch, monkeypatch, "empty") == rows and len(starts(batch)) == 1
    (batch / "progress/000of001.jsonl").unlink()
    assert roll_out(batch, monkeypatch, "empty") == rows and len(starts(batch)) == 1
    changed = roll_out(batch, monkeypatch, call_limit=9)
    assert outcomes(changed) == ["submitted"] * 3 and len(starts(batch)) == 2
    assert changed[NAMES[0]]["key"] != first["key"]


def test_what_the_program_is_told(batch, monkeypatch):
    roll_out(batch, monkeypatch)
    told = starts(batch)[0]
    assert told["key"] == KEY and KEY not in " ".join(told["argv"])
    holders = [path for path in (batch / "progress").rglob("*") if path.is_file()]
    assert len(holders) > 8 and not [path for path in holders if KEY.encode() in path.read_bytes()]
    config = read_json(told["argv"][3])
    model = config["agent"]["model"]
    assert model["name"] == "openai/student" and model["api_base"] == "http://127.0.0.1:9/v1"
    assert model["per_instance_cost_limit"] == model["total_cost_limit"] == 0
    assert model["per_instance_call_limit"] == 75 and model["max_input_tokens"] == 32768 - 1024
    prices = read_json(model["litellm_model_registry"])["openai/student"]
    assert prices["input_cost_per_token"] == prices["output_cost_per_token"] == 0
    assert config["agent"]["tools"]["parse_function"]["type"] == "xml_function_calling"
    assert config["agent"]["history_processors"] == [{"type": "last_n_observations", "n": 5}]
    task = read_json(config["instances"]["path"])[0]
    deployment = task["env"]["deployment"]
    assert deployment["python_standalone_dir"] == "" and deployment["pull"] == "never"
    assert deployment["image"].startswith("sha256:") and "--memory=10g" in deployment["docker_args"]
    assert task["env"]["repo"] == {"type": "preexisting", "repo_name": "testbed", "reset": False}


@pytest.mark.parametrize("mode", ["half", "killed", "stuck"])
def test_a_batch_that_ends_early_goes_on(batch, monkeypatch, mode):
    assert outcomes(roll_out(batch, monkeypatch, mode)) == ["submitted"] * 3
    assert len(starts(batch)) == 3  # one instance each


def test_what_has_no_prediction_yet_is_not_taken_while_the_batch_runs(batch, monkeypatch):
    rows = roll_out(batch, monkeypatch, "slow")  # the folder is checked every half second
    assert [rows[name]["info"]["patch_from"] for name in NAMES] == ["pred"] * 3


def test_lost_containers_are_tried_again_and_counted_apart(batch, monkeypatch):
    assert outcomes(roll_out(batch, monkeypatch, "once")) == ["submitted"] * 3
    assert len(starts(batch)) == 2
    with pytest.raises(ShardLost, match=f"^1 of 3 instances .*; first {NAMES[0]}: sandbox_lost: .*max_lost"):
        roll_out(batch, monkeypatch, "lost", call_limit=9)
    assert len(starts(batch)) == 5
    rows = roll_out(batch, monkeypatch, "lost", max_lost=1, call_limit=9)  # only the lost one is tried again
    assert outcomes(rows) == ["sandbox_lost", "submitted", "submitted"]
    assert rows[NAMES[0]]["model_patch"] == "" and len(starts(batch)) == 8
    assert outcomes(roll_out(batch, monkeypatch, call_limit=9)) == ["submitted"] * 3  # by a later run


def test_an_evaluation_goes_on_without_a_lost_rollout_and_repeats_the_chosen_ones(batch, monkeypatch):
    def evaluated(mode, *options):
        monkeypatch.setenv("STANDIN", mode)
        monkeypatch.setenv("SWELAB_BACKEND", "docker")
        given = {"model": "student.yaml", "data": "tasks.json", "images": "images.json"}
        given |= {"scaffold": "scaffold.yaml", "output-dir": "out"}
        words = [word for name, value in given.items() for word in (f"--{name}", batch / value)]
        done = run_python("-m", "scripts.evaluate", *words, "--no-checks", *options)
        assert "Traceback" not in done.stderr
        rows = {row["instance_id"]: row for row in read_jsonl(batch / "out/results.jsonl")}
        return done, [bool(rows[name]["infrastructure"]) for name in NAMES if name in rows]

    done, losses = evaluated("lost")
    assert done.returncode == 2 and "1 of 3 attempts were lost to infrastructure" in done.stderr, done.stderr
    assert losses == [True, False, False]
    before = len(starts(batch))
    done, losses = evaluated("lost", "--max-lost", "1")
    assert (done.returncode, losses) == (0, [True, False, False]), done.stderr
    assert len(starts(batch)) > before
    assert evaluated("")[1] == [False] * 3 and (before := len(starts(batch)))
    assert evaluated("")[1] == [False] * 3 and len(starts(batch)) == before
    done, _ = evaluated("", "--redo-existing", "--instance-ids", NAMES[1])
    assert done.returncode == 0 and len(starts(batch)) == before + 1, "made again"


@pytest.mark.parametrize("mode, reason", [("empty", "no reason given"), ("truncated", "not JSON")])
def test_what_is_not_there_is_lost_with_its_reason(batch, monkeypatch, mode, reason):
    rows = roll_out(batch, monkeypatch, mode, max_lost=3)
    assert outcomes(rows) == ["sandbox_lost"] * 3 and reason in rows[NAMES[0]]["info"]["reason"]
    assert outcomes(roll_out(batch, monkeypatch)) == ["submitted"] * 3


@pytest.mark.parametrize(
    "mode, words",
    [
        ("stopped", "broke the batch off: TotalCostLimitExceededError"),
        ("unpriced", "LiteLLM knows no price for this model; expected cost_limit: 0"),
        ("refused", "the model service refused: .*AuthenticationError"),
        ("broken", "No module named 'mcp'; expected envs/swe-agent.txt"),
        ("version", "this is version 1.0.1; expected SWE-agent 1.1.0"),
        ("dumb", "does not tell its version: it printed nothing; expected SWE-agent 1.1.0"),
        ("settings", "exit status 1: Input should be a valid list"),
    ],
)
def test_what_no_further_try_can_mend_is_one_line(batch, monkeypatch, mode, words):
    with pytest.raises((InputError, AgentFailed), match=words) as caught:
        roll_out(batch, monkeypatch, mode)
    assert "\n" not in str(caught.value) and len(starts(batch)) <= 1


@pytest.fixture
def service():
    service = Service()
    yield service
    service.close()


def expert(batch, service, **settings):
    """A hosted policy. SWE-agent does not get its key."""
    policy = {"kind": "hosted", "scaffold": "x", "model": "openai/toy", "api_key_env": "K", "price": PRICE}
    sampling = {"max_tokens": 500, "temperature": 0.5}
    settings = {"api_base": f"{service.url}/v1", "sampling": sampling, **settings}
    write_json(batch / "student.yaml", policy | settings)


def test_a_hosted_model_stands_behind_a_gateway(batch, monkeypatch, service):
    expert(batch, service)
    rows = roll_out(batch, monkeypatch, "asks", cost_limit=2, stall_seconds=60)
    assert outcomes(rows) == ["submitted"] * 3 and len(service.requests) == 6
    told = starts(batch)[0]
    assert told["key"] and told["key"] != KEY and KEY not in told["values"]
    assert {request["key"] for request in service.requests} == {KEY}
    assert {request["body"]["temperature"] for request in service.requests} == {0.5}
    model = read_json(told["argv"][3])["agent"]["model"]
    assert model["name"] == "openai/student" and model["api_base"].startswith("http://127.0.0.1:")
    assert model["per_instance_cost_limit"] == 2
    price = read_json(model["litellm_model_registry"])["openai/student"]
    assert price["input_cost_per_token"] == PRICE["input"] / 1e6
    holders = [path for path in (batch / "progress").rglob("*") if path.is_file()]
    assert holders and not [path for path in holders if KEY.encode() in path.read_bytes()]


def test_a_budget_ends_a_batch_and_a_higher_one_goes_on(batch, monkeypatch, service):
    service.speak = lambda turn, history: "word " * 1000  # each response costs the maximum, 0.5 cents
    expert(batch, service, budget_dollars=0.018)
    with pytest.raises(
        BudgetSpent, match="2 of 3 rollouts of this shard are left: raise budget_dollars of p"
    ):
        roll_out(batch, monkeypatch, "asks", stall_seconds=60)
    assert len(service.requests) == 3 and 0.015 < service.charged <= 0.018
    expert(batch, service, budget_dollars=0.018)
    with pytest.raises(BudgetSpent, match="the budget of .* has no room"):
        roll_out(batch, monkeypatch, "asks", stall_seconds=60)
    assert len(service.requests) == 3
    expert(batch, service, budget_dollars=10)
    assert outcomes(roll_out(batch, monkeypatch, "asks", stall_seconds=60)) == ["submitted"] * 3
    assert len(service.requests) == 7  # finished instances are not requested again


def test_policies_and_tasks_that_swe_agent_cannot_take(batch, monkeypatch):
    write_json(batch / "student.yaml", {"kind": "scripted", "scaffold": "x"})
    with pytest.raises(InputError, match="a policy of kind scripted with a scaffold of SWE-agent"):
        roll_out(batch, monkeypatch)
    write_json(batch / "student.yaml", {"kind": "hosted", "scaffold": "x", "model": "openai/gpt-4o"})
    rows = read_json(batch / "tasks.json")
    write_json(batch / "tasks.json", [rows[0] | {"repo_recipe": "calc"}])
    with pytest.raises(InputError, match="this task has no image of its own; expected a task of a published"):
        roll_out(batch, monkeypatch)
    (batch / "mine.yaml").write_text("instances: {}\n")
    with pytest.raises(InputError, match="no section agent; expected a configuration of SWE-agent"):
        roll_out(batch, monkeypatch, config=str(batch / "mine.yaml"))


def test_a_killed_run_leaves_no_process_and_loses_nothing_that_was_finished(batch, monkeypatch):
    words = ["--tasks", batch / "tasks.json", "--repos-dir", batch, "--images", batch / "images.json"]
    words += ["--policy", batch / "student.yaml", "--scaffold", batch / "scaffold.yaml", "--subset", "s"]
    words += ["--progress", batch / "progress/000of001.jsonl", "--output", batch / "out.jsonl"]
    command = [sys.executable, "-m", "scripts.rollout", *map(str, words)]
    process = subprocess.Popen(command, env=os.environ | {"STANDIN": "stuck"}, cwd=ROOT)
    finished = batch / f"progress/000of001.swe-agent/{NAMES[0]}/{NAMES[0]}.pred"
    assert until(finished.exists, 60)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert until(lambda: not processes_with(str(STANDIN)), 10)
    made = finished.stat().st_mtime_ns
    assert outcomes(roll_out(batch, monkeypatch)) == ["submitted"] * 3
    assert finished.stat().st_mtime_ns == made and len(starts(batch)) == 2
