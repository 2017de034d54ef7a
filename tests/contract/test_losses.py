"""Dead, refusing or late endpoints: the shard fails with one line, and a second run completes it."""

import json
import sys

import pytest

from scripts import rollout
from swelab import patience
from swelab.configs import recipes
from swelab.configs.kinds import POLICY as POLICY_KIND
from swelab.grading import grading_stage as grading
from swelab.jobs import thread_pool
from swelab.jobs.lost_instances import STREAK, ShardLost
from swelab.records import InputError, read_jsonl, write_json
from swelab.records.attempt_records import Prediction
from swelab.rollouts.rollout_stage import roll_out
from swelab.sandbox import SandboxLost, open_backend
from tests.contract.hosted_service import PRICE, Fault, Service
from tests.contract.test_rollout_and_grade import POLICY, SCAFFOLD

pytestmark = pytest.mark.real
NAMES = [f"o__r.00000000.func_pm_x__{number:08d}" for number in range(3)]


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Shortens the waits between attempts. The number of attempts stays."""
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    monkeypatch.setattr(thread_pool, "RETRY_SECONDS", (0.01, 0.01))
    monkeypatch.setenv("TOY_KEY", "secret")


def policy_of(kind, port, **changes):
    url = f"http://127.0.0.1:{port}/v1"
    sampling = {"temperature": 0, "top_p": 1, "max_tokens": 200, "seed": 0}
    shared = {"kind": kind, "scaffold": "x", "shards": 1, "sampling": sampling}
    if kind == "hosted":
        shared |= {"model": "openai/toy", "api_base": url, "price": PRICE, "api_key_env": "TOY_KEY"}
    shared |= {} if kind == "hosted" else {"weights": "w", "endpoint": url}
    return recipes.complete(POLICY_KIND, shared | changes, "it")


@pytest.fixture
def run(task, repos_dir, tmp_path):
    """Rolls out a shard of some tasks, always with the same journal."""

    def start(policy, count=3, workers=2):
        names = [f"{NAMES[0][:-8]}{number:08d}" for number in range(count)]
        tasks = [task | {"instance_id": name, "problem_statement": f"Mend {name}."} for name in names]
        places = {"repos_dir": repos_dir, "progress": tmp_path / "progress" / "j.jsonl"}
        named = {"policy_name": "student", "subset": "s", "shard": "000of001", "workers": workers}
        return list(roll_out(tasks, policy=policy, scaffold=SCAFFOLD, **places, **named))

    return start


def journal(tmp_path):
    return list(read_jsonl(tmp_path / "progress" / "j.jsonl"))


def asked_for(service, start=0):
    """Returns the tasks in a service's requests."""
    return {name for name in NAMES for each in service.requests[start:] if name in json.dumps(each["body"])}


@pytest.mark.parametrize("served, said", [("checkpoint", "Connection error"), ("hosted", "no connection: ")])
def test_a_dead_endpoint_fails_the_shard_and_heals_when_it_comes_alive(
    run, tmp_path, dead_port, served, said
):
    policy = policy_of(served, port := dead_port)
    line = (
        rf"^3 of 3 instances of this shard were lost to infrastructure; first o__r\S+: model_lost at"
        rf" .*http://127\.0\.0\.1:{port}/v1: no answer in 7 attempts: .*{said}.*policy student allows 0"
        r" \(max_lost\): mend this and run the same command; finished rollouts are kept$"
    )
    with pytest.raises(ShardLost, match=line):
        run(policy)
    assert [row["outcome"] for row in journal(tmp_path)] == ["model_lost"] * 3
    service = Service(port=port)
    try:
        rows = run(policy)
    finally:
        service.close()
    assert [(row["instance_id"], row["outcome"]) for row in rows] == [(name, "submitted") for name in NAMES]


@pytest.mark.parametrize("served", ["checkpoint", "hosted"])
def test_only_what_was_lost_is_done_again(run, tmp_path, served):
    down = Fault(500, "out of memory")
    service = Service(lambda number, request: down if NAMES[1] in json.dumps(request["body"]) else None)
    policy = policy_of(served, service.server.server_port)
    try:
        with pytest.raises(ShardLost, match=rf"^1 of 3 .*first {NAMES[1]}: model_lost .*out of memory"):
            run(policy)
        asked = len(service.requests)
        allowed = run(policy.model_copy(update={"max_lost": 1}))
        assert [row["outcome"] for row in allowed] == ["submitted", "model_lost", "submitted"]
        assert "out of memory" in allowed[1]["info"]["reason"]
        assert asked_for(service, asked) == {NAMES[1]}
        asked, service.plan = len(service.requests), lambda number, request: None
        healed = run(policy)
        assert asked_for(service, asked) == {NAMES[1]}
    finally:
        service.close()
    assert [row["outcome"] for row in healed] == ["submitted"] * 3
    assert [healed[0], healed[2]] == [allowed[0], allowed[2]]


def test_a_refusal_names_the_endpoint_and_is_healed(run):
    service = Service(lambda number, request: Fault(401, "no such token"))
    policy = policy_of("checkpoint", port := service.server.server_port)
    try:
        told = rf"^http://127.0.0.1:{port}/v1: .* refused: no such token; another try does not help$"
        with pytest.raises(InputError, match=told):
            run(policy)
        service.plan = lambda number, request: None
        assert [row["outcome"] for row in run(policy)] == ["submitted"] * 3
        service.plan = lambda number, request: Fault(401, "no such token")
        paid = policy_of("hosted", port)
        with pytest.raises(
            InputError, match=rf"^openai/toy at .*:{port}/v1: no key is left: TOY_KEY was ref"
        ):
            run(paid)
    finally:
        service.close()


def test_a_dead_endpoint_is_not_asked_for_every_instance(run, tmp_path, dead_port):
    with pytest.raises(ShardLost, match=r"of 40 instances"):
        run(policy_of("checkpoint", dead_port), count=40)
    assert STREAK <= len(journal(tmp_path)) < 40
    with pytest.raises(ShardLost, match=r"^40 of 40 instances .* allows 39"):
        run(policy_of("checkpoint", dead_port, max_lost=39), count=40, workers=8)


def test_lost_sandboxes_fail_the_shard_and_are_taken_up_again(run, tmp_path, monkeypatch):
    class Dying:
        def start(self, *_, **__):
            raise SandboxLost("no room in /dev/shm")

    monkeypatch.setattr("swelab.rollouts.rollout_stage.open_backend", Dying)
    with pytest.raises(ShardLost, match=r"^3 of 3 .*: sandbox_lost: no room in /dev/shm; policy student"):
        run(POLICY)
    monkeypatch.setattr("swelab.rollouts.rollout_stage.open_backend", open_backend)
    assert [row["outcome"] for row in run(POLICY)] == ["submitted"] * 3


def test_the_script_writes_nothing_and_says_one_line(task, repos_dir, tmp_path, monkeypatch, dead_port):
    write_json(tmp_path / "tasks.json", [task])
    write_json(tmp_path / "student.yaml", policy_of("checkpoint", dead_port).plain())
    write_json(tmp_path / "scaffold.yaml", {**SCAFFOLD.plain(), "agent": "mini"})
    output = tmp_path / "out" / "trajectories.jsonl"
    words = ["--tasks", tmp_path / "tasks.json", "--repos-dir", repos_dir, "--subset", "s"]
    words += ["--policy", tmp_path / "student.yaml", "--scaffold", tmp_path / "scaffold.yaml"]
    words += ["--progress", tmp_path / "journal.jsonl", "--output", output]
    monkeypatch.setattr(sys, "argv", ["rollout", *map(str, words)])
    with pytest.raises(ShardLost, match="^1 of 1 instances"):
        rollout.main()
    assert not output.parent.exists() and len(list(read_jsonl(tmp_path / "journal.jsonl"))) == 1


def test_lost_gradings_fail_the_shard_and_are_taken_up_again(task, repos_dir, tmp_path, monkeypatch):
    tasks = [task | {"instance_id": name} for name in NAMES]
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    predictions = {name: Prediction.of({"instance_id": name, "model_patch": patch}) for name in NAMES}
    predictions[NAMES[2]] |= {"model_patch": "", "outcome": "model_lost"}

    def grades(**settings):
        named = {"policy": "student", "subset": "s", "shard": "000of001", "workers": 2, **settings}
        places = {"repos_dir": repos_dir, "progress": tmp_path / "grades.jsonl"}
        return [row["status"] for row in grading.grade_shard(tasks, predictions, **places, **named)]

    class Dying:
        name = "dying"

        def start(self, *_, **__):
            raise SandboxLost("the engine is gone")

    monkeypatch.setattr(grading, "open_backend", Dying)
    with pytest.raises(
        ShardLost, match=r"^2 of 3 .*: SandboxLost: the engine is gone; policy student allows 0"
    ):
        grades()
    assert grades(max_lost=2) == ["infra_error"] * 3
    monkeypatch.setattr(grading, "open_backend", open_backend)
    assert grades() == ["apply_failed", "apply_failed", "infra_error"]  # the lost rollout is not graded
