"""A program with the command line of SWE-agent 1.1.0 and the files that it leaves; no container, no model.

Each instance submits the patch that $STANDIN_PATCH holds. $STANDIN says how it fails:

half         ends with status 1 after the first instance that it finishes
killed       the same, and leaves a second one begun
empty        ends well and leaves nothing
truncated    the first trajectory is cut off, as by a full disk, and ends with status 1
slow         takes its time between a trajectory's end and its prediction
stuck        finishes one instance, then does nothing
lost         the first instance loses its container, each time
once         loses a container in its first run only
unpriced     every instance ends as one whose model has no price
stopped      breaks the batch off
refused      every instance ends as a service's refusal ends it
broken       an environment without a module
version      is of another version
dumb         does not say a version
settings     refuses its configuration
asks         each instance asks the model twice, and ends in an error where it is refused
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

MODE = os.environ.get("STANDIN", "")
STATUS = {"lost": "exit_environment_error", "once": "exit_environment_error", "refused": "exit_error"}
STATUS |= {"broken": "exit_error", "unpriced": "exit_error", "asks": "exit_error"}
WORD = {"refused": "Exit due to unknown error: litellm.AuthenticationError: wrong key"}
WORD |= {"asks": "Exit due to unknown error: litellm.APIError: no room"}
WORD |= {"broken": "Exit due to unknown error: No module named 'mcp'"}
WORD |= {"unpriced": "Exit due to unknown error: Error calculating cost: This model isn't mapped yet."}
USUAL = "Exit due to environment error: the container is gone"


def trajectory(text, status, patch, word=""):
    history = [
        {"role": "system", "content": "s", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": text, "agent": "main", "message_type": "observation"},
        {
            "role": "assistant",
            "content": word or "I submit.\n\n<function=submit>\n</function>",
            "thought": word or "I submit.",
            "action": "" if word else "submit",
            "agent": "main",
            "message_type": "action",
        },
    ]
    info = {"swe_agent_version": "1.1.0", "exit_status": status, "submission": patch}
    info["model_stats"] = {"instance_cost": 0, "tokens_sent": 9, "tokens_received": 3, "api_calls": 1}
    step = {"action": "submit", "observation": "", "response": "", "thought": "", "query": history[:2]}
    return {
        "trajectory": [step],
        "history": history,
        "info": info,
        "replay_config": json.dumps({"agent": {"model": {"name": "openai/m"}}}),
        "environment": "main",
    }


def note(folder, line):
    with (folder / "run_batch.log").open("a") as stream:
        stream.write(f"2025-01-01 00:00:00,000 - INFO - swea-run - {line}\n")


def run(instance, folder, status, first):
    """Writes one instance's files unless a finished trajectory exists. Returns whether it did any work."""
    name = instance["problem_statement"]["id"]
    place = folder / name
    path = place / f"{name}.traj"
    if path.exists():
        return False
    note(folder, f"Running on instance {name}")
    place.mkdir(exist_ok=True)
    word = WORD.get(MODE, USUAL) if status != "submitted" else ""
    patch = Path(os.environ["STANDIN_PATCH"]).read_text() if not word else None
    text = json.dumps(trajectory(instance["problem_statement"]["text"], status, patch, word), indent=2)
    if MODE == "truncated" and first:
        path.write_text(text[: len(text) // 2])
        sys.exit(1)
    path.write_text(text)
    time.sleep(1.5 if MODE == "slow" else 0)
    pred = {"model_name_or_path": folder.name, "instance_id": name, "model_patch": patch}
    (place / f"{name}.pred").write_text(json.dumps(pred))
    if patch:
        (place / f"{name}.patch").write_text(patch)
    return True


def refused(model, text):
    """Returns whether the model's service refuses one of two calls."""
    key = os.environ[model["api_key"].removeprefix("$")]
    body = json.dumps(
        {"messages": [{"role": "user", "content": text}] * 2, "temperature": model["temperature"]}
    ).encode()
    for _ in range(2):
        call = urllib.request.Request(f"{model['api_base']}/chat/completions", body)
        call.add_header("Authorization", f"Bearer {key}")
        try:
            urllib.request.urlopen(call).read()
        except urllib.error.HTTPError:
            return True
    return False


def begin(instance, folder):
    """Writes a trajectory that has no steps yet."""
    name = instance["problem_statement"]["id"]
    (folder / name).mkdir()
    text = json.dumps(trajectory("", None, None), indent=2)
    (folder / name / f"{name}.traj").write_text(text)


def run_batch(config):
    instances = json.loads(Path(config["instances"]["path"]).read_text())
    folder = Path(config["output_dir"])
    (folder / "run_batch.config.yaml").write_text(json.dumps(config))
    if MODE == "settings":
        print(
            "│ agent.tools.bundles\n│   Input should be a valid list │\nRuntimeError: Invalid configuration."
        )
        sys.exit(1)
    if MODE == "stopped":
        note(folder, "❌ Exiting because TotalCostLimitExceededError was called")
    if MODE in ("empty", "stopped"):
        sys.exit(0)
    before = list(Path(folder).glob("*/*.trace.log"))
    for number, instance in enumerate(instances):
        losing = MODE in STATUS and (number == 0 or MODE in WORD) and not (MODE == "once" and before)
        name = instance["problem_statement"]["id"]
        if MODE == "asks":
            made = (folder / name / f"{name}.traj").exists()
            losing = not made and refused(config["agent"]["model"], name)
        run(instance, folder, STATUS[MODE] if losing else "submitted", number == 0)
        (folder / name / f"{name}.trace.log").write_text("")
        if MODE == "killed" and len(instances) > 1:
            begin(instances[1], folder)
        if MODE in ("half", "killed"):
            sys.exit(1)
        while MODE == "stuck":
            time.sleep(1)
    merged = {path.stem: json.loads(path.read_text()) for path in folder.glob("*/*.pred")}
    (folder / "preds.json").write_text(json.dumps(merged, indent=4))


def main():
    if MODE != "dumb":
        number = "1.0.1" if MODE == "version" else "1.1.0"
        print(f"👋 INFO     This is SWE-agent version {number} (hash='x') with SWE-ReX version 1.4.0 (...).")
    if sys.argv[1:] == ["--help"]:
        return
    assert sys.argv[1:3] == ["run-batch", "--config"] and len(sys.argv) == 4, sys.argv
    if told := os.environ.get("STANDIN_TOLD"):
        facts = {"argv": sys.argv, "key": os.environ.get("SWELAB_SWEAGENT_KEY"), "mode": MODE}
        facts["values"] = list(os.environ.values())
        with open(told, "a") as stream:
            stream.write(json.dumps(facts) + "\n")
    run_batch(json.loads(Path(sys.argv[3]).read_text()))


main()
