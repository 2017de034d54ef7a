"""Trajectories of other programs as a policy: every format, and every kind of bad recording."""

import json
import subprocess
import sys

import pytest

from swelab.records import InputError, check, read_json, read_jsonl, sha256_file
from swelab.records.attempt_records import Trajectory
from swelab.rollouts.recorded_trajectories import import_recordings, read_recording
from swelab.rollouts.trajectory_files import Broken, recordings
from tests.at_hand import ROOT, TRAJECTORIES, needs_trajectories
from tests.unit.recorded_runs import PATCH, mini, mini_text, trajectory, usual, write_mini, write_run


def read(folder):
    (path,) = [*folder.glob("*.traj"), *folder.glob("*.traj.json")]
    record = read_recording(path)
    check({**record, "policy": "p", "subset": "s"}, Trajectory, path)
    return record


@pytest.mark.parametrize("old", [False, True])
def test_swe_agent(tmp_path, old):
    record = read(write_run(tmp_path, "a", trajectory(old=old)))
    assert (record["instance_id"], record["outcome"], record["model_patch"]) == ("a", "submitted", PATCH)
    assert [m["role"] for m in record["messages"]] == [m["role"] for m in usual()]
    assert record["messages"][-1]["content"] == PATCH  # the answer to the final submit is there
    look = record["messages"][2]
    assert look["extra"]["actions"] == [{"command": "cat pkg/a.py"}]
    assert look["tool_calls"][0]["function"]["name"] == "bash" and look["thought"] == "Let me look."
    assert record["messages"][3] == {"role": "tool", "content": "a = 1\n", "tool_call_id": "call_1"}
    assert record["info"]["model"] == "expert/one" and record["info"]["exit_status"] == "submitted"
    assert record["trajectory_format"] == "swe-agent"


def test_mini(tmp_path):
    record = read(write_mini(tmp_path, "a", mini()))
    assert (record["outcome"], record["model_patch"]) == ("submitted", PATCH)
    assert record["messages"] == mini()["messages"] and record["trajectory_format"] == "mini-swe-agent-1.1"
    older = read(write_mini(tmp_path, "b", mini_text()))
    assert older["trajectory_format"] == "mini-swe-agent-1"
    assert older["messages"][-1] == {"role": "exit", "content": PATCH}  # version 1 has no such role
    named = mini(instance_id="c")
    assert read(write_mini(tmp_path, "c", named))["instance_id"] == "c"


@pytest.mark.parametrize(
    ("patch", "pred", "wanted", "source"),
    [
        ("of another", {"model_patch": PATCH, "instance_id": "a"}, PATCH, "pred"),
        ("of another", {"model_patch": None}, "", "pred"),
        ("b\r\n\xff", None, "b\r\n\xff", "patch"),
        (None, None, PATCH, "submission"),
    ],
)
def test_the_prediction_comes_before_the_patch(tmp_path, patch, pred, wanted, source):
    record = read(write_run(tmp_path, "a", trajectory(), patch, pred))
    assert (record["model_patch"], record["info"]["patch_from"]) == (wanted, source)


@pytest.mark.parametrize(
    ("status", "patch", "outcome"),
    [
        ("submitted", PATCH, "submitted"),
        ("submitted (exit_cost)", PATCH, "cost_limit"),
        ("submitted (exit_api)", PATCH, "submitted"),
        ("exit_cost", "", "cost_limit"),
        ("exit_context", "", "context_limit"),
        ("exit_format", "", "malformed"),
        ("exit_total_execution_time", "", "time_limit"),
        ("exit_command_timeout", "", "time_limit"),
        ("exit_api", "", "model_lost"),
        ("exit_environment_error", "", "sandbox_lost"),
        ("exit_forfeit", "", "submitted"),
    ],
)
def test_how_swe_agent_ended(tmp_path, status, patch, outcome):
    record = read(write_run(tmp_path, "a", trajectory(exit_status=status, patch=patch), patch=None))
    assert (record["outcome"], record["info"]["exit_status"]) == (outcome, status)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (
            "litellm.BadRequestError: Requested token count exceeds the model's maximum context length",
            "context_limit",
        ),
        ("litellm.BadRequestError: The input is longer than the model's context length", "context_limit"),
        ("litellm.InternalServerError: overloaded", "model_lost"),
        ("Error calculating cost: see model_prices_and_context_window.json", "sandbox_lost"),
        ("[Errno 28] No space left on device", "sandbox_lost"),
    ],
)
def test_what_an_unknown_error_of_swe_agent_was(tmp_path, said, outcome):
    last = {**usual()[2], "content": f"Exit due to unknown error: {said}", "tool_calls": None}
    content = trajectory([*usual()[:4], last], exit_status="exit_error", patch=None)
    assert read(write_run(tmp_path, "a", content, patch=None))["outcome"] == outcome
    content = trajectory([*usual()[:4], last], exit_status="submitted (exit_error)")
    wanted = "context_limit" if outcome == "context_limit" else "submitted"
    assert read(write_run(tmp_path, "b", content))["outcome"] == wanted


def test_the_limit_that_was_met_is_told_from_the_figures(tmp_path):
    """Files of a run contain its figures and limits. Both programs have one word for both limits."""
    content = mini(exit_status="LimitsExceeded")
    for number, (limits, outcome) in enumerate(
        [
            ({"step_limit": 2, "cost_limit": 3}, "step_limit"),
            ({"step_limit": 9, "cost_limit": 0.1}, "cost_limit"),
        ]
    ):
        content["info"]["config"]["agent"] = limits
        assert read(write_mini(tmp_path, f"mini{number}", content))["outcome"] == outcome
    model = {"name": "expert/one", "per_instance_call_limit": 2, "per_instance_cost_limit": 0}
    for replay in ({"agent": {"model": model}}, json.dumps({"agent": {"model": model}})):
        name = type(replay).__name__
        run = trajectory(exit_status="submitted (exit_cost)", replay_config=replay)
        record = read(write_run(tmp_path, name, run))
        assert (record["outcome"], record["info"]["model"]) == ("step_limit", "expert/one")


def test_the_programs_own_words_are_not_the_models(tmp_path):
    said = [{**usual()[2], "content": "Exit due to cost limit", "tool_calls": None}]
    record = read(write_run(tmp_path, "a", trajectory([*usual(), *said])))
    assert record["messages"][-1] == {"role": "exit", "content": "Exit due to cost limit"}


RAW = json.dumps(trajectory())
BAD = {
    "empty": ("", "not JSON"),
    "cut": (RAW[:-30], "not JSON"),
    "list": ("[]", "a list, not an object"),
    "not_utf8": (RAW.encode().replace(b"swe_main", b"\xff"), "cannot be read"),
    "no_history": (json.dumps({"info": {"exit_status": "submitted"}}), "no history"),
    "null_history": (json.dumps(trajectory(history=None) | {"history": None}), "of another shape"),
    "strange_role": (json.dumps(trajectory([{"role": "oracle"}])), "message 0 has the role oracle"),
    "unfinished": (json.dumps(trajectory(exit_status=None)), "unfinished: exit status None"),
    "early": (json.dumps(trajectory(exit_status="early_exit")), "unfinished"),
    "patch_number": (json.dumps(trajectory(patch=3)), "its patch is a int"),
    "info_list": (json.dumps(trajectory() | {"info": [1]}), "of another shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_recording_is_refused_on_one_line(tmp_path, name):
    content, reason = BAD[name]
    folder = write_run(tmp_path, name, content, patch=None)
    with pytest.raises(Broken, match=reason) as fault:
        read_recording(folder / f"{name}.traj")
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (mini(trajectory_format="mini-swe-agent-9"), "trajectory format 'mini-swe-agent-9'"),
        (mini(instance_id="b"), "it is of b"),
        (mini() | {"info": {}}, "unfinished"),
        ({"info": {}}, "another shape: KeyError 'messages'"),
    ],
)
def test_a_bad_recording_of_mini(tmp_path, content, reason):
    folder = write_mini(tmp_path, "a", content)
    with pytest.raises(Broken, match=reason):
        read_recording(folder / "a.traj.json")


def test_python_alone_reads_some(tmp_path):
    text = RAW.replace("Let me look.", "\\ud800").replace('"execution_time": 0.1', '"execution_time": NaN')
    assert read(write_run(tmp_path, "a", text))["messages"][2]["thought"] == "\ud800"


@pytest.mark.parametrize("end", [1 << 4, 1 << 9, 1 << 18])
def test_the_end_of_a_file_says_the_same_as_the_whole(tmp_path, monkeypatch, end):
    monkeypatch.setattr("swelab.rollouts.trajectory_files.END", end)
    words = '\n  "history": [{"role": "user"}],\n  "info": {}'
    for number, content in enumerate([
        trajectory(),
        trajectory(last={"response": words}),
        trajectory([{**turn, "content": words} for turn in usual()]),
        trajectory() | {"deeper": {"history": [1], "info": 2, "replay_config": 3}},
        {name: trajectory()[name] for name in ("info", "replay_config", "history", "trajectory")},
        {name: trajectory()[name] for name in ("trajectory", "history", "info")},
    ]):  # fmt: skip
        ways = [
            read(write_run(tmp_path / f"{indent}-{number}", "a", content, indent=indent))
            for indent in (2, None, 1, 4)
        ]
        assert all(way == ways[0] for way in ways)


def test_where_recordings_are_found(tmp_path):
    write_run(tmp_path / "user" / "run", "a", trajectory())
    write_mini(tmp_path / "user" / "other", "b", mini())
    (tmp_path / "user" / "run" / "preds.json").write_text("{}")
    found = recordings(tmp_path)
    assert {name: [path.name for path in paths] for name, paths in found.items()} == {
        "a": ["a.traj"],
        "b": ["b.traj.json"],
    }
    for folder, fault in ((tmp_path / "none", "no such folder"), (ROOT / "envs", "holds no trajectory")):
        with pytest.raises(InputError, match=fault):
            recordings(folder)


def test_a_task_recorded_twice(tmp_path):
    for run in ("one", "two"):
        write_run(tmp_path / run, "same", trajectory())
        write_run(tmp_path / run, "differs", trajectory(patch=run))
    tasks = ["same", "differs", "none"]
    found = {
        record["instance_id"]: (record, line)
        for record, line in import_recordings(tasks, recordings(tmp_path))
    }
    assert found["same"][0]["outcome"] == "submitted" and found["same"][1] == ""
    assert found["differs"][0]["outcome"] == "not_recorded" and "recorded 2 times" in found["differs"][1]
    assert found["none"][0]["info"]["reason"] == "not recorded" and found["none"][1] == ""


def rollout(tmp_path, tasks, folder, shard="000of001"):
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    (tmp_path / "expert.yaml").write_text(f"kind: recorded\nfolder: {folder}\n")
    command = [sys.executable, "-m", "scripts.rollout", "--tasks", tmp_path / "tasks.json", "--images"]
    command += ["--repos-dir", tmp_path, "--policy", tmp_path / "expert.yaml", "--scaffold", "--subset", "s"]
    command += [
        "--shard",
        shard,
        "--progress",
        tmp_path / "progress.jsonl",
        "--output",
        tmp_path / f"{shard}.jsonl",
    ]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_rollout_stage_takes_recordings(tmp_path, task):
    runs = tmp_path / "runs"
    names = ["solved", "mini", "cut", "missing"]
    tasks = [{**task, "instance_id": name} for name in names]
    write_run(runs, "solved", trajectory())
    write_run(runs, "cut", RAW[:-30])
    write_run(runs, "other", trajectory())
    write_mini(runs, "mini", mini())
    done = rollout(tmp_path, tasks, runs)
    assert done.returncode == 0, done.stderr
    rows = {row["instance_id"]: row for row in read_jsonl(tmp_path / "000of001.jsonl")}
    assert list(rows) == names and {row["policy"] for row in rows.values()} == {"expert"}
    ends = [rows[name]["outcome"] for name in names]
    assert ends == ["submitted", "submitted", "not_recorded", "not_recorded"]
    assert rows["solved"]["key"] == sha256_file(runs / "solved" / "solved.traj")
    assert done.stderr.splitlines() == [
        f"refused: {runs}/cut/cut.traj: {rows['cut']['info']['reason']}",
        f"{runs}: of 4 tasks 1 not recorded, 1 refused, 2 taken"
        "; 1 recordings of no task of the subset, such as other",
    ]
    command = [sys.executable, "-m", "scripts.collect_predictions", "--tasks", tmp_path / "tasks.json"]
    command += ["--trajectories", tmp_path / "000of001.jsonl", "--output", tmp_path / "preds.json"]
    assert subprocess.run(command).returncode == 0
    assert {n: p["outcome"] for n, p in read_json(tmp_path / "preds.json").items()} == dict(zip(names, ends))


@needs_trajectories
def test_real_trajectories(tmp_path):
    taken, refused = [], []
    for number, path in enumerate(sorted(TRAJECTORIES.glob("*.traj"))):
        folder = write_run(tmp_path, f"real-{number}", path.read_bytes(), patch=None)
        try:
            taken.append(read(folder))
        except Broken as fault:
            refused.append(str(fault))
    assert len(taken) == 8 and refused == [
        "unfinished: exit status None"
    ]  # the other is only a demonstration
    assert all(record["outcome"] == "submitted" and record["model_patch"] for record in taken)
    last = [[turn for turn in record["messages"] if turn["role"] == "assistant"][-1] for record in taken]
    assert {turn["action"].strip() for turn in last} == {"submit"}
