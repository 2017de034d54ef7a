"""Trajectories in ATIF: nothing is lost in either direction."""

import json
import subprocess
import sys

import pytest
from atif import Trajectory as Document

from swelab.evaluation.trajectory_browser import entries, pages
from swelab.records import check, read_json, write_json, write_jsonl
from swelab.records.attempt_records import Rollout, Trajectory
from swelab.rollouts.atif import from_atif, to_atif
from swelab.rollouts.recorded_trajectories import read_recording
from swelab.rollouts.trajectory_files import Broken, recordings
from swelab.sft.rows.styles import Style, write_conversation
from tests.at_hand import ROOT, TRAJECTORIES, needs_trajectories
from tests.unit.recorded_runs import PATCH, write_run


def through_json(document):
    Document.model_validate(document)
    return json.loads(json.dumps(document))


def call(arguments, name="bash", **rest):
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}, **rest}


OWN = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "bug"}]},
    {"role": "assistant", "content": "no block", "extra": {"cost": 0.25}},
    {"role": "user", "content": "one block", "extra": {"interrupt_type": "FormatError"}},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [call('{"command": "ls"}')],
    },
    {"role": "tool", "content": "a.py", "tool_call_id": "c1", "extra": {"returncode": 0}},
    {"role": "assistant", "content": "", "tool_calls": [call("{broken"), call('{"a":1}', "f", index=1)]},
    {"role": "tool", "content": "bad", "tool_call_id": "another"},
    {"role": "assistant", "content": "x", "extra": {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}},
    {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
]


def own(messages, **rest):
    fields = {
        "instance_id": "a-1",
        "outcome": "submitted",
        "model_patch": PATCH,
        "policy": "p",
        "subset": "s",
    }
    return Trajectory.of(
        {**fields, "info": {"exit_status": "Submitted"}, "trajectory_format": "mini-swe-agent-1.1"}
        | {"messages": messages, "sample": 3, "seconds": 1.5}
        | rest
    )


def test_own_trajectory_there_and_back():
    document = through_json(to_atif(own(OWN)))
    assert from_atif("a-1", document) == own(OWN)
    agent = [step for step in document["steps"] if step["source"] == "agent"]
    assert [len(step.get("observation", {"results": []})["results"]) for step in agent] == [1, 1, 1, 0]
    assert agent[1]["reasoning_content"] == "hm"
    assert agent[1]["tool_calls"][0]["arguments"] == {"command": "ls"}
    assert agent[1]["observation"]["results"][0]["source_call_id"] == "c1"
    assert agent[3]["metrics"] == {"prompt_tokens": 5, "completion_tokens": 2}
    assert document["final_metrics"] == {"total_cost_usd": 0.25, "total_steps": 7}


FOREIGN = {
    "schema_version": "ATIF-v1.7",
    "session_id": "run",
    "agent": {
        "name": "terminus",
        "version": "2",
        "model_name": "m",
        "tool_definitions": [
            {
                "type": "function",
                "function": {
                    "name": "bash",
                    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
                },
            }
        ],
    },
    "steps": [
        {"step_id": 1, "source": "system", "message": "s"},
        {"step_id": 2, "source": "user", "message": "Fix it.", "timestamp": "2026-01-01T00:00:00Z"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "An example.",
            "is_copied_context": True,
            "tool_calls": [{"tool_call_id": "c0", "function_name": "bash", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"source_call_id": "c0", "content": "a.py"}]},
        },
        {
            "step_id": 4,
            "source": "agent",
            "message": "I look.",
            "model_name": "m2",
            "reasoning_effort": "high",
            "reasoning_content": "hm",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "cat ä"}},
                {"tool_call_id": "c2", "function_name": "bash", "arguments": {}, "extra": {"timeout": 3}},
            ],
            "observation": {
                "results": [
                    {"source_call_id": "c1", "content": "text", "extra": {"score": 1}},
                    {
                        "source_call_id": "c2",
                        "subagent_trajectory_ref": [{"trajectory_id": "t"}],
                        "content": "",
                    },
                    {"content": "a note"},
                ]
            },
            "metrics": {"prompt_tokens": 9, "completion_tokens": 4, "cost_usd": 0.5, "logprobs": [-0.1]},
            "extra": {"mine": 1},
        },
        {"step_id": 5, "source": "user", "message": "Go on."},
        {
            "step_id": 6,
            "source": "system",
            "message": "",
            "observation": {"results": [{"content": "cleaned"}]},
        },
        {"step_id": 7, "source": "agent", "message": "Done."},
    ],
    "notes": "n",
    "final_metrics": {"total_steps": 7},
    "extra": {"job": "j"},
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.7",
            "trajectory_id": "t",
            "agent": {"name": "x", "version": "1"},
            "steps": [],
        }
    ],
}


def test_document_of_another_program_there_and_back():
    rollout = from_atif("a-1", FOREIGN)
    check({**rollout, "policy": "p", "subset": "s"}, Trajectory, "a-1")
    assert through_json(to_atif(Rollout.of(json.loads(json.dumps(rollout))))) == FOREIGN


def test_rows_of_a_document_of_another_program():
    steps = [step | {"step_id": n} for n, step in enumerate(FOREIGN["steps"][:5] + FOREIGN["steps"][6:], 1)]
    row = write_conversation(from_atif("a-1", {**FOREIGN, "steps": steps}), Style("tool", "mask"))
    said = [(m["content"], m.get("weight", 1)) for m in row.messages if m["role"] == "assistant"]
    assert said == [("An example.", 0), ("I look.", 1)]
    assert [tool["function"]["name"] for tool in row.tools] == ["bash"]
    assert [m["role"] for m in row.messages] == ["system", "user", "assistant", "tool", "assistant"]


@needs_trajectories
def test_real_trajectories_there_and_back(tmp_path):
    count = 0
    for number, path in enumerate(sorted(TRAJECTORIES.glob("*.traj"))):
        folder = write_run(tmp_path, f"real-{number}", path.read_bytes(), patch=None)
        try:
            record = read_recording(next(folder.glob("*.traj")))
        except Broken:
            continue
        assert from_atif(record.instance_id, through_json(to_atif(record))) == record
        count += 1
    assert count == 8


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema_version": "ATIF-v2.0"}, "unknown format: schema_version 'ATIF-v2.0'"),
        ({"steps": [{"step_id": 2, "source": "user", "message": ""}]}, "of another shape: the document: "),
        ({"steps": [{"step_id": 1, "source": "robot", "message": ""}]}, "of another shape: steps.0.source: "),
        ({"agent": None}, "of another shape: agent: "),
        ({"continued_trajectory_ref": "b.json"}, "unfinished: continues in b.json"),
        ({"extra": {"swelab": {"instance_id": "b"}}}, "of another instance: it is of b"),
    ],
)
def test_bad_document_is_refused_in_one_line(tmp_path, change, reason):
    path = tmp_path / "a-1.atif.json"
    write_json(path, {**FOREIGN, **change})
    with pytest.raises(Broken) as fault:
        read_recording(path)
    assert str(fault.value).startswith(reason) and "\n" not in str(fault.value)


def test_trial_of_harbor_is_a_recording(tmp_path):
    trial = tmp_path / "job" / "a-1__x7"
    write_json(trial / "agent" / "trajectory.json", FOREIGN)
    write_json(trial / "other" / "trajectory.json", FOREIGN)
    write_json(trial / "result.json", {"task_name": "a-1"})
    (trial / "agent" / "a-1.patch").write_text(PATCH)
    ((name, (path,)),) = recordings(tmp_path).items()
    record = read_recording(path)
    assert (name, record.instance_id, record.model_patch, record.info["patch_from"]) == (
        ("a-1", "a-1", PATCH, "patch")
    )


def test_browser_shows_a_document_with_its_thoughts(tmp_path):
    write_json(tmp_path / "a-1.atif.json", FOREIGN)
    (entry,) = entries(tmp_path)
    shown = pages(entry)
    assert entry.name == "a-1" and len(shown) == 13
    assert shown[5] == "[5/12] assistant\n\nthoughts:\n| hm\n\nI look.\n" + '{"command": "cat ä"}\n{}'


def test_export_of_a_rollout_can_be_recorded(tmp_path):
    write_jsonl(tmp_path / "in" / "000of001.jsonl", [own(OWN), own(OWN, sample=0)])
    command = [sys.executable, "-m", "scripts.export_atif", tmp_path / "in", "--output", tmp_path / "out"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"2 documents in {tmp_path / 'out'}\n"
    assert sorted(recordings(tmp_path / "out")["a-1"]) == [
        tmp_path / "out" / number / "a-1" / "a-1.atif.json" for number in "03"
    ]
    Document.model_validate(read_json(tmp_path / "out" / "0" / "a-1" / "a-1.atif.json"))
    empty = subprocess.run(
        [*command[:3], tmp_path / "out", *command[4:]], cwd=ROOT, capture_output=True, text=True
    )
    assert empty.returncode and empty.stderr.count("\n") == 1 and "holds no trajectories" in empty.stderr
