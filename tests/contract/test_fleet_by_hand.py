"""One address for servers on several hosts.

One server ends during requests, and the gate itself is killed.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_program
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


def ask(url, text, token=TOKEN):
    body = {"model": "toy", "messages": [{"role": "user", "content": text}], "max_tokens": 5}
    head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), head)
    for _ in range(30):
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return json.load(reply)["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            if error.code != 503:
                return error.code
        except OSError:
            pass
        time.sleep(0.3)
    return "no answer"


def gate_of(parent):
    """Returns the gate's process below a parent process."""
    todo = [parent]
    while todo:
        pid = todo.pop()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        todo += map(int, children)
        if b"gate_server" in Path(f"/proc/{pid}/cmdline").read_bytes() and not children:
            return pid
    raise AssertionError("no gate")


def test_a_server_that_ends_and_a_killed_gate_lose_no_request(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 100, "max_position_embeddings": 512}')
    seen = []
    with ExitStack() as stack, ExitStack() as first:
        one = first.enter_context(json_service(answer(seen, "one")))
        two = stack.enter_context(json_service(answer(seen, "two")))
        command = ["-m", "scripts.serve_fleet", "--weights", tmp_path, "--name", "toy", "--port", 0]
        command += ["--behind", one.url, f"{two.url}/v1", "--api-key-env", "FLEET_KEY"]
        command += ["--token", tmp_path / "token", "--log", tmp_path / "log"]
        command[command.index(0)] = free_port()
        process = subprocess.Popen(
            [sys.executable, *map(str, command)], cwd=ROOT, env=os.environ | {"FLEET_KEY": TOKEN},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        stack.callback(process.wait, 30)
        stack.callback(process.send_signal, signal.SIGTERM)
        url = process.stdout.readline().split()[0]
        assert (tmp_path / "token").read_text() == f"{TOKEN}\n"
        assert ask(url, "hello", "another") == 401
        with ThreadPoolExecutor(4) as pool:
            said = list(pool.map(lambda n: ask(url, f"before {n}"), range(12)))
            assert set(said) == {"one", "two"}
            later = [pool.submit(ask, url, f"amid {n}") for n in range(20)]
            first.close()
            assert {each.result() for each in later} <= {"one", "two"}
            os.kill(gate_of(process.pid), signal.SIGKILL)
            assert set(pool.map(lambda n: ask(url, f"after {n}"), range(4))) == {"two"}


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def test_what_is_missing_is_said_in_a_line(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 100, "max_position_embeddings": 512}')
    command = [sys.executable, "-m", "scripts.serve_fleet", "--weights", str(tmp_path), "--behind", "h:1"]
    command += ["--log", str(tmp_path / "log"), "--token", str(tmp_path / "token")]
    for variables, told in (({}, "is not set"), ({"K": TOKEN}, "expected addresses such as")):
        given = [*command, "--api-key-env", "K"]
        done = run_program(given, cwd=ROOT, env=os.environ | variables)
        assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


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
        done = run_program(
            [ROOT / "swe-rl/scripts/deploy_sglang_cluster_4nodes.sh"],
            env=os.environ | {name: str(value) for name, value in told.items()},
            timeout=60,
        )
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
