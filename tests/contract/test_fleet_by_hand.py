"""One address for servers on several hosts.

One server ends during requests, and the gate itself is killed.
"""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.contract.attacks import until
from tests.json_service import json_service

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
TOKEN = "fleet-token-0123456789"


def answer(seen, name):
    def reply(path, headers, body):
        if headers["Authorization"] != f"Bearer {TOKEN}":
            return 401, {}
        if body is None:
            return 200, {}
        seen.append(name)
        time.sleep(0.02)
        message = {"role": "assistant", "content": name}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return 200, {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
                     "usage": usage}  # fmt: skip

    return reply


def test_hosts_of_a_list_get_a_server_each_and_the_one_address_is_here(tmp_path):
    """Python and ssh are replaced by programs that write down their arguments: real engines start slowly."""
    seen, weights = [], tmp_path / "Toy-4B"
    weights.mkdir()
    ssh, python = tmp_path / "ssh", tmp_path / "python"
    ssh.write_text('#!/bin/bash\necho "$1" >>"$NOTES"\nexec bash -c "$2"\n')
    python.write_text(
        "#!/bin/bash\n"
        'echo "$@ key=$SWELAB_FLEET_KEY" >>"$NOTES"\n'
        'case "$2" in scripts.serve) echo "$$" >>"$NOTES.pids"; exec sleep 60 ;; esac\n'
    )
    for path in (ssh, python):
        path.chmod(0o755)
    with json_service(answer(seen, "one")) as one, json_service(answer(seen, "two")) as two:
        ports = [server.url.rpartition(":")[2] for server in (one, two)]
        told = {"HOSTS": " ".join(f"127.0.0.1:{port}" for port in ports), "MODEL_PATH": weights, "SSH": ssh}
        told |= {"PYTHON_BIN": python, "ENV_SWE": "/dev/null", "LOGS": tmp_path / "logs"}
        told |= {"SWELAB_FLEET_KEY": TOKEN, "NOTES": tmp_path / "notes", "ROUTER_PORT": 8123}
        done = subprocess.run(
            [ROOT / "swe-rl/scripts/deploy_sglang_cluster_4nodes.sh"],
            env=os.environ | {name: str(value) for name, value in told.items()},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes.count("127.0.0.1") == 2
    serves = [line for line in notes if line.startswith("-m scripts.serve ")]
    assert len(serves) == 2 and all(f"key={TOKEN}" in line and "--name toy-4b" in line for line in serves)
    assert [f"--port {port} " in " ".join(serves) for port in ports] == [True, True]
    front = next(line for line in notes if line.startswith("-m scripts.serve_fleet"))
    behind = " ".join(f"http://127.0.0.1:{port}" for port in ports)
    assert f"--behind {behind} --api-key-env SWELAB_FLEET_KEY --host 0.0.0.0 --port 8123" in front
    pids = [int(pid) for pid in (tmp_path / "notes.pids").read_text().split()]
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids)), "one outlived the script"
