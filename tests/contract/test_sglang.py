"""The real server with a toy model: right answers, closed to others, ended with its owner."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from swelab.configs import recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.policy import Job
from swelab.models import ContextLimit, ServingError
from swelab.models.chat.served_models import ChatModel
from swelab.models.model_values import with_model_values
from swelab.models.serving import gate_process, server_watchdog
from swelab.models.serving.engine import open_engine
from swelab.models.serving.fleet import open_fleet, serve_fleet
from swelab.models.serving.server import Endpoint, free_port
from tests.contract.attacks import until, writers
from tests.toy_checkpoint import CONTEXT, SCAFFOLD, SIZES, VOCAB, make_adapter, make_checkpoint, merge_adapter

# isort: split
# imported after our modules, which stop it from printing a greeting and from writing to the home folder
from minisweagent.exceptions import FormatError

from tests.conftest import run_program

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sglang")
    toy = make_checkpoint(folder / "toy")
    advice = {"eos_token_id": VOCAB - 1, "repetition_penalty": 1.5}
    (toy / "generation_config.json").write_text(json.dumps(advice))
    make_adapter(folder / "adapter")
    (folder / "bare").mkdir()
    (folder / "bare" / "model.safetensors").write_bytes((toy / "model.safetensors").read_bytes())
    return folder


@pytest.fixture(scope="module")
def served(folder):
    """Weights without any other file, completed from the toy, and an adapter."""
    lent = {"base": folder / "toy", "adapters": {"tuned": str(folder / "adapter")}}
    log = folder / "server.log"
    settings = {"name": "toy", "job": Job(), "log": log, "startup_seconds": 1800, **lent, **SIZES}
    with pytest.MonkeyPatch.context() as patch:
        # a slow server has not ended, so no new one starts
        patch.setattr(server_watchdog, "MUTE_CHECKS", 1000)
        patch.setattr(gate_process, "READY_SECONDS", 1800)
        patch.setenv("CXX", "false")  # as on a machine without a compiler
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "compiled"))
        with open_fleet(folder / "bare", **settings) as (fleet, endpoint):
            yield fleet, endpoint
            assert endpoint.alive() and fleet.servers[0].starts == 1
    assert not endpoint.alive() and not writers(log)
    assert [path.name for path in (folder / "bare").iterdir()] == ["model.safetensors"]


@pytest.fixture(scope="module")
def endpoint(served):
    return served[1]


def ask(endpoint, content, **sampling):
    settings = {"temperature": 0, "top_p": 1, "max_tokens": 12, "seed": 0, **sampling}
    history = [{"role": "system", "content": "Fix the bug."}, {"role": "user", "content": content}]
    return ChatModel(endpoint, SCAFFOLD, settings).query(history)


def test_greedy_answers_are_those_of_transformers(endpoint, folder):
    check_against_transformers(endpoint, folder / "toy")


def test_an_adapter_answers_as_weights_that_it_is_merged_into(endpoint, folder, tmp_path):
    lent = dataclasses.replace(endpoint, model="toy:tuned")
    merged = merge_adapter(folder / "toy", folder / "adapter", tmp_path / "merged")
    check_against_transformers(lent, merged)
    assert ask(lent, "f1 must return 1.")["content"] != ask(endpoint, "f1 must return 1.")["content"]


def test_requests_may_name_another_model(endpoint):
    """A configuration for a vendor's model name works unchanged."""
    answer = ask(dataclasses.replace(endpoint, model="gpt-4o"), "f1 must return 1.")
    assert answer["content"] == ask(endpoint, "f1 must return 1.")["content"]


def check_against_transformers(endpoint, weights):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    model = transformers.AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    for number in range(4):
        content = f"f{number} must return {number}."
        history = [{"role": "system", "content": "Fix the bug."}, {"role": "user", "content": content}]
        ids = tokenizer.apply_chat_template(
            history, add_generation_prompt=True, return_tensors="pt", return_dict=False
        )
        out = model.generate(ids, max_new_tokens=12, do_sample=False, repetition_penalty=1.0)
        out = out[0, ids.shape[1] :]
        message = ask(endpoint, content)
        assert message["content"] == tokenizer.decode(out, skip_special_tokens=True)
        assert message["extra"]["usage"]["prompt_tokens"] == ids.shape[1]


def test_the_weights_file_changes_no_request_that_does_not_ask_for_it(endpoint, folder):
    """`test_greedy_answers_are_those_of_transformers` compares with transformers without the penalty."""
    told = {"kind": "checkpoint", "scaffold": "x", "weights": str(folder / "toy")}
    own = recipes.complete(POLICY, {**told, "sampling": {"defaults": "model", "temperature": 0}}, "p")
    values = with_model_values(own).sampling.values
    assert values["repetition_penalty"] == 1.5
    texts = ["f1 must return 1.", "f2 must return 2.", "f3 must return 3."]
    answers = [ask(endpoint, text)["content"] for text in texts]
    assert [ask(endpoint, text, repetition_penalty=1.0)["content"] for text in texts] == answers
    assert [ask(endpoint, text, **values | {"max_tokens": 12})["content"] for text in texts] != answers


def test_a_server_says_which_weights_it_serves(served, folder):
    """The weights' version is shown to us, not to clients."""
    fleet, endpoint = served
    bare = fleet.servers[0].endpoint
    engine, address = open_engine(bare.engine), bare.url.removesuffix("/v1")
    found = engine.weights(address, bare.api_key)
    assert found.version == "default" and (found.folder / "config.json").is_file()
    assert (found.folder / "model.safetensors").samefile(folder / "bare" / "model.safetensors")
    for at, key in ((address, "wrong"), (address, endpoint.api_key), (endpoint.url, endpoint.api_key)):
        with pytest.raises(ServingError, match="does not say which weights it serves: .*40[14]"):
            engine.weights(at, key)


TEXT = [{"role": "user", "content": "Mend it."}]
AT_THE_EDGE = [
    ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 20, "n": 64}),
    ("/v1/chat/completions", {"logit_bias": {"0": 100, str(VOCAB - 1): -100}, "min_p": 1, "top_k": 1 << 30}),
    ("/v1/chat/completions", {"temperature": 1e-300, "top_p": 1e-300, "seed": -(1 << 63)}),
    ("/v1/chat/completions", {"temperature": 100, "stop": ["x" * 1024] * 16, "stop_token_ids": [*range(64)]}),
    ("/v1/chat/completions", {"min_tokens": (1 << 31) - 1}),
    ("/v1/chat/completions", {"max_tokens": (1 << 31) - 1}),
    ("/v1/chat/completions", {"max_tokens": 0}),
    ("/v1/chat/completions", {"model": "toy:../../etc"}),
    ("/v1/chat/completions", {"stream": True, "stream_options": {"include_usage": True}, "n": 3}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": None}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 1_000_000}]}),
    ("/v1/completions", {"prompt": [[1]] * 64, "logprobs": 20, "n": 3}),
    ("/v1/completions", {"prompt": ["a\0", " "], "echo": True}),
    ("/v1/completions", {"prompt": [VOCAB - 1] * (CONTEXT - 1), "max_tokens": 1}),
    ("/generate", {"input_ids": [[1, 2], [3]], "return_logprob": True, "top_logprobs_num": 20}),
    ("/generate", {"input_ids": [1], "sampling_params": {"max_new_tokens": 0}, "return_logprob": True}),
    ("/generate", {"text": "a", "sampling_params": {"min_new_tokens": 9, "max_new_tokens": 3}}),
]
"""Requests that pass our checks of shape with the most extreme values."""
FATAL = [("/v1/completions", {"prompt": [99999999]}), ("/generate", {"text": ""})]
FATAL += [("/v1/chat/completions", {"messages": TEXT, "logprobs": True, "top_logprobs": 100_000})]


def test_no_request_ends_the_engine(served):
    fleet, endpoint = served
    before, address = ask(endpoint, "f1 must return 1."), endpoint.url.removesuffix("/v1")
    with httpx.Client(headers={"Authorization": f"Bearer {endpoint.api_key}"}, timeout=600) as client:
        for path, body in FATAL:
            assert client.post(address + path, json=body).status_code == 400
        for path, body in AT_THE_EDGE:
            common = {"messages": TEXT, "max_tokens": 3} if "chat" in path else {}
            answer = client.post(address + path, json={**common, **body})
            assert answer.status_code in (200, 400), (path, body, answer.text)
        assert until(lambda: client.get(f"{address}/health").json() == {"servers": 1, "generating": 1})
    assert ask(endpoint, "f1 must return 1.")["content"] == before["content"]
    assert fleet.servers[0].starts == 1 and fleet.servers[0].up()


def test_answers_do_not_depend_on_what_runs_beside_them(endpoint):
    texts = [f"f{number} must return {'x ' * number}" for number in range(24)]
    alone = [ask(endpoint, text)["content"] for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: ask(endpoint, text)["content"], texts)) == alone


@pytest.mark.full
def test_a_model_spread_over_two_ranks_answers_the_same(endpoint, folder, tmp_path, monkeypatch):
    """Two ranks as on two GPUs; here each rank has one core."""
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", f"{cores[0]}|{cores[-1]}")
    log = tmp_path / "server.log"
    job = Job(gpus=2)
    with serve_fleet(folder / "toy", name="toy", job=job, log=log, **SIZES) as spread:
        assert len([text for text in writers(log).values() if "scheduler" in text]) == 2
        for number in range(4):
            text = f"f{number} must return {number}."
            assert ask(spread, text)["content"] == ask(endpoint, text)["content"]


@pytest.mark.full
def test_a_parser_separates_the_thoughts_of_a_served_model(folder):
    settings = {"name": "toy", "job": Job(), "log": folder / "thinks.log", "startup_seconds": 1800, **SIZES}
    with (
        serve_fleet(folder / "toy", reasoning_parser="deepseek-r1", **settings) as endpoint,
        pytest.raises(FormatError) as refused,  # the toy never ends its thoughts
    ):
        ask(endpoint, "Think.")
    message = refused.value.messages[0]
    assert message["reasoning_content"] and message["content"] == ""
    assert message["extra"]["usage"]["reasoning_tokens"] == message["extra"]["usage"]["completion_tokens"] > 0


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


@pytest.mark.full
def test_a_server_by_hand_comes_back_after_a_kill_and_ends_when_it_is_told(folder, tmp_path):
    """The server is started with SWE-smith's name and variables.

    It returns at the same address with the same token.
    """
    log, token = tmp_path / "server.log", tmp_path / "server.token"
    told = {
        "MODEL_PATH": "bare",
        "TOKENIZER_PATH": "toy",
        "SERVED_MODEL_NAME": "mine",
        "API_KEY": "hush-hush",
    }
    for name in ("bare", "toy"):
        (tmp_path / name).symlink_to(folder / name)
    by_hand = subprocess.Popen(
        [ROOT / "scripts/train.serve_sglang.local.sh"],
        cwd=tmp_path,
        env={
            **os.environ,
            **told,
            "PORT": str(free_port()),
            "CONTEXT_LENGTH": "512",
            "PYTHON_BIN": sys.executable,
            **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), f"http://127.0.0.1:{free_port()}"),
            "no_proxy": "",
            "NO_PROXY": "",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    told_url = r"(http://127\.0\.0\.1:\d+/v1) serves mine; its token is in server\.token\n"
    url = re.fullmatch(told_url, by_hand.stdout.readline())[1]
    assert token.read_text() == "hush-hush\n" and token.stat().st_mode & 0o077 == 0
    endpoint = Endpoint(url, "hush-hush", "mine", alive=lambda: by_hand.poll() is None)
    assert ask(endpoint, "x")["extra"]["usage"]["completion_tokens"]
    assert not any("hush" in text for text in writers(log).values())
    second = run_program(
        [sys.executable, "-m", "scripts.serve", "--weights", "toy", "--context-length", "512"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert second.returncode == 2 and second.stderr == (
        "error: server.token: a running server uses this file;"
        " expected --token and --log with other files for a second server\n"
    )
    assert token.read_text() == "hush-hush\n" and ask(endpoint, "x")["extra"]["usage"]["completion_tokens"]
    (scheduler,) = [pid for pid, text in writers(log).items() if "scheduler" in text]
    os.kill(scheduler, signal.SIGKILL)
    health = {
        "timeout": 60,
        "url": url.replace("/v1", "/health"),
        "headers": {"Authorization": "Bearer hush-hush"},
    }
    assert until(lambda: httpx.get(**health).status_code == 503)
    assert until(lambda: httpx.get(**health).status_code == 200, 600)
    assert ask(endpoint, "x")["extra"]["usage"]["completion_tokens"]
    by_hand.send_signal(signal.SIGTERM)
    shown, told_us = by_hand.communicate(timeout=60)
    said = told_us.splitlines()
    assert said[0].startswith("train.serve_sglang.local.sh stands for the rule rollout: ")
    assert said[1].startswith("bare lacks chat_template.jinja, config.json")
    assert any(line.startswith("model server 0: the model server has ended") for line in said), said
    assert by_hand.returncode == 0 and shown == "stopped\n"
    assert not token.exists() and not writers(log) and "Traceback" not in "".join(said)
