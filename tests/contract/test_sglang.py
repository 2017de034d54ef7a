"""The real server on a toy model: right answers, closed to others, gone when we are."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swelab.models import ContextLimit, ServingError
from swelab.models.chat import ChatModel
from swelab.models.fleet import serve_fleet
from swelab.models.serving import serve
from swelab.records import InputError
from tests.contract.attacks import writers
from tests.toy_checkpoint import CONTEXT, make_checkpoint

ROOT = Path(__file__).resolve().parents[2]
SCAFFOLD = {
    "action_regex": r"(?s)(.+)",
    "format_error_template": "again",
    "observation_template": "{{output.output}}",
    "max_observation_chars": 1000,
}
SIZES = {"context_length": CONTEXT, "max_total_tokens": 8 * CONTEXT, "max_running_requests": 8}
PARENT = """
import sys, time
from pathlib import Path
from swelab import tether
from swelab.models.serving import serve
folder = Path(sys.argv[1])
if sys.argv[2] == "group":
    tether.has_namespaces = lambda: False
sizes = dict(context_length=512, max_total_tokens=4096, max_running_requests=8)
with serve(folder / "toy", name="toy", log=folder / "server.log", **sizes) as endpoint:
    (folder / "up").write_text(endpoint.url)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sglang")
    make_checkpoint(folder / "toy")
    return folder


@pytest.fixture(scope="module")
def endpoint(folder):
    with serve(folder / "toy", name="toy", log=folder / "server.log", **SIZES) as endpoint:
        yield endpoint
        assert endpoint.alive()
    assert not endpoint.alive() and not writers(folder / "server.log")


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert condition()


def ask(endpoint, content, **sampling):
    settings = {"temperature": 0, "top_p": 1, "max_tokens": 12, "seed": 0, **sampling}
    history = [{"role": "system", "content": "Fix the bug."}, {"role": "user", "content": content}]
    return ChatModel(endpoint, SCAFFOLD, settings).query(history)


def test_greedy_answers_are_those_of_transformers(endpoint, folder):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "toy")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "toy", dtype=torch.float32)
    for number in range(4):
        content = f"f{number} must return {number}."
        history = [{"role": "system", "content": "Fix the bug."}, {"role": "user", "content": content}]
        ids = tokenizer.apply_chat_template(
            history, add_generation_prompt=True, return_tensors="pt", return_dict=False
        )
        out = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
        message = ask(endpoint, content)
        assert message["content"] == tokenizer.decode(out, skip_special_tokens=True)
        assert message["extra"]["usage"]["prompt_tokens"] == ids.shape[1]


def test_answers_do_not_depend_on_what_runs_beside_them(endpoint):
    texts = [f"f{number} must return {'x ' * number}" for number in range(24)]
    alone = [ask(endpoint, text)["content"] for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: ask(endpoint, text)["content"], texts)) == alone


def test_a_model_spread_over_two_ranks_answers_the_same(endpoint, folder, tmp_path, monkeypatch):
    """As over two GPUs; here each rank has a core."""
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", f"{cores[0]}|{cores[-1]}")
    log = tmp_path / "server.log"
    job = {"nodes": 1, "servers": 1, "gpus": 2}
    with serve_fleet(folder / "toy", name="toy", job=job, log=log, **SIZES) as spread:
        assert len([text for text in writers(log).values() if "scheduler" in text]) == 2
        for number in range(4):
            text = f"f{number} must return {number}."
            assert ask(spread, text)["content"] == ask(endpoint, text)["content"]


def test_the_token_is_needed_and_not_in_any_command_line(endpoint, folder):
    body = json.dumps({"model": "toy", "prompt": "a", "max_tokens": 1}).encode()
    for header in ({}, {"Authorization": "Bearer wrong"}):
        request = urllib.request.Request(
            f"{endpoint.url}/completions", body, {"Content-Type": "application/json", **header}
        )
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request)
    running = writers(folder / "server.log")
    assert len(running) >= 3 and not any(endpoint.api_key in text for text in running.values())


def test_the_token_is_not_in_the_log_and_the_log_is_private(endpoint, folder):
    log = folder / "server.log"
    assert endpoint.api_key not in log.read_text() and log.stat().st_mode & 0o077 == 0


def test_a_conversation_beyond_the_context_is_the_context_limit(endpoint):
    with pytest.raises(ContextLimit):
        ask(endpoint, "x " * 2 * CONTEXT)
    with pytest.raises(ContextLimit):
        ask(endpoint, "x " * (CONTEXT // 2), max_tokens=CONTEXT // 2 + 100)


def test_a_refused_request_is_one_line(endpoint):
    with pytest.raises(InputError, match="refused"):
        ask(endpoint, "x", temperature=-1)


def test_a_killed_server_ends_the_run(folder, tmp_path):
    log = tmp_path / "log"
    with serve(folder / "toy", name="toy", log=log, **SIZES) as endpoint:
        (scheduler,) = [pid for pid, text in writers(log).items() if "scheduler" in text]
        os.kill(scheduler, signal.SIGKILL)
        with pytest.raises(ServingError, match="has ended"):
            ask(endpoint, "x")


@pytest.mark.parametrize("lid", ["namespace", "group"])
def test_no_server_outlives_a_killed_parent(folder, lid, tmp_path):
    (tmp_path / "toy").symlink_to(folder / "toy")
    log = tmp_path / "server.log"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), lid], cwd=ROOT, env=environment)
    wait_until(lambda: (tmp_path / "up").exists() or parent.poll() is not None, 120)
    assert len(writers(log)) >= 3
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not writers(log), 15)
    # A group's scratch folder outlives a kill; a namespace leaves nothing.
    assert bool(list(tmp_path.glob("swelab-*"))) == (lid == "group")
