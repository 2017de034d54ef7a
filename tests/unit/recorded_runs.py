"""Small folders of trajectories in the forms of SWE-agent and mini-swe-agent, written by us."""

import json
from pathlib import Path

PATCH = "diff --git a/pkg/a.py b/pkg/a.py\n--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
REPLAY = json.dumps({"agent": {"model": {"name": "expert/one"}}, "env": {}})
SYSTEM = "You solve tasks with tools."


def call(name, arguments, number=1):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}}


def system(text=SYSTEM):
    return {"role": "system", "content": text, "agent": "main", "message_type": "system_prompt"}


def asked(text="Fix pkg/a.py.", listed=True):
    content = [{"type": "text", "text": text}] if listed else text
    return {"role": "user", "content": content, "agent": "main", "message_type": "observation"}


def acted(thought, name, arguments, action=None, number=1):
    return {
        "role": "assistant",
        "content": thought,
        "thought": thought,
        "action": action if action is not None else f"{name} {arguments}",
        "agent": "main",
        "tool_calls": [call(name, arguments, number)],
        "message_type": "action",
    }


def seen(text, number=1, listed=True):
    return {**asked(text, listed), "role": "tool", "tool_call_ids": [f"call_{number}"]}


def usual():
    """Returns a short solved run: look, edit, submit."""
    edit = {"command": "str_replace", "path": "/testbed/pkg/a.py", "old_str": "a = 1", "new_str": "a = 2\n"}
    return [
        system(),
        asked(),
        acted("Let me look.", "bash", {"command": "cat pkg/a.py"}, "cat pkg/a.py", 1),
        seen("a = 1\n", 1),
        acted("  Now the edit.\n", "str_replace_editor", edit, "str_replace_editor str_replace ...", 2),
        seen("edited", 2),
        acted("Done.", "submit", {}, "submit", 3),
        seen(PATCH, 3),
    ]


def steps(history, old=False, **last):
    """Returns steps whose `query` (before 1.1.0: `messages`) is the conversation up to them."""
    found = []
    for number, message in enumerate(history):
        if message.get("role") != "assistant":
            continue
        step = {name: message.get(name, "") for name in ("action", "thought")}
        step |= {"observation": "", "response": message.get("content"), "execution_time": 0.1, "state": {}}
        if old:
            step["messages"] = history[: number + 2]
        else:
            step |= {"query": history[:number], "extra_info": {}}
        found.append(step)
    if last:
        found.append({"action": "", "observation": "", "thought": "", "query": [{}], **last})
    return found


def trajectory(history=None, exit_status="submitted", patch=PATCH, old=False, last=None, **changes):
    history = usual() if history is None else history
    return {
        "trajectory": steps(history, old, **(last or {})),
        "history": history,
        "info": {
            "swe_agent_version": "1.0.1" if old else "1.1.0",
            "exit_status": exit_status,
            "submission": patch,
            "model_stats": {"instance_cost": 0.5, "tokens_sent": 9, "tokens_received": 3, "api_calls": 3},
        },
        "replay_config": REPLAY,
        "environment": "swe_main",
        **changes,
    }


def write_run(runs: Path, name: str, content, patch=PATCH, pred=None, indent=2):
    """Writes one instance's folder. content: a trajectory, or text or bytes that are written unchanged."""
    folder = runs / name
    folder.mkdir(parents=True)
    if isinstance(content, dict | list):
        content = json.dumps(content, indent=indent)
    data = content.encode() if isinstance(content, str) else content
    (folder / f"{name}.traj").write_bytes(data)
    if patch is not None:
        (folder / f"{name}.patch").write_bytes(patch.encode())
    if pred is not None:
        (folder / f"{name}.pred").write_text(json.dumps(pred))
    return folder


def write_report(reports: Path, name: str, report=None):
    folder = reports / name
    folder.mkdir(parents=True)
    report = {"patch_exists": True, "resolved": True} if report is None else report
    (folder / "report.json").write_text(report if isinstance(report, str) else json.dumps(report))


def mini(messages=None, exit_status="Submitted", version="mini-swe-agent-1.1", **changes):
    """Returns a mini-swe-agent trajectory with tool calls (version 2)."""
    ran = call("bash", {"command": "sed -i s/1/2/ pkg/a.py"}, 1)
    sent = call("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"}, 2)
    stamp = {"timestamp": 1.0}
    default = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Fix pkg/a.py."},
        {
            "role": "assistant",
            "content": "I edit it.",
            "tool_calls": [ran],
            "extra": {"actions": [{"command": "sed -i s/1/2/ pkg/a.py", "tool_call_id": "call_1"}], **stamp},
        },
        {"role": "tool", "content": "<returncode>0</returncode>", "tool_call_id": "call_1", "extra": stamp},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [sent],
            "extra": {"actions": [{"command": "echo ...", "tool_call_id": "call_2"}], **stamp},
        },
        {"role": "exit", "content": PATCH, "extra": {"exit_status": exit_status, "submission": PATCH}},
    ]
    return {
        "info": {
            "model_stats": {"instance_cost": 0.1, "api_calls": 2},
            "config": {"model": {"model_name": "expert/two"}},
            "mini_version": "2.4.6",
            "exit_status": exit_status,
            "submission": PATCH,
        },
        "messages": default if messages is None else messages,
        "trajectory_format": version,
        **changes,
    }


def mini_text():
    """Returns a mini-swe-agent trajectory of version 1: one bash block per turn, no parsed actions."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Fix pkg/a.py."},
        {"role": "assistant", "content": "I edit it.\n\n```bash\nsed -i s/1/2/ pkg/a.py\n```"},
        {"role": "user", "content": "<returncode>0</returncode>"},
        {"role": "assistant", "content": "Done.\n\n```bash\necho MINI_SWE_AGENT_FINAL_OUTPUT\n```"},
        {"role": "user", "content": PATCH},
    ]
    return mini(messages, version="mini-swe-agent-1")


def write_mini(runs: Path, name: str, content):
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / f"{name}.traj.json").write_text(json.dumps(content, indent=2))
    return folder
