"""Refusals before a server starts, and the messages of a server that fails to start."""

import itertools
import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from swelab.files.model_config import ModelConfig
from swelab.jobs.child_process import torch_environment
from swelab.models import ServingError
from swelab.models.serving import server
from swelab.models.serving.server import Endpoint, serve
from swelab.models.serving.sglang_engine import SHIMS, environment, other_architectures
from swelab.records import InputError
from tests.conftest import run_program
from tests.contract.attacks import PATIENCE, processes_with, until
from tests.toy_checkpoint import make_checkpoint

SIZES = {"context_length": 256, "max_total_tokens": 1024, "max_running_requests": 4}


@pytest.fixture
def weights(tmp_path):
    return make_checkpoint(tmp_path / "toy")


def start(weights, tmp_path, **settings):
    with serve(weights, name="toy", log=tmp_path / "server.log", **{**SIZES, **settings}):
        raise AssertionError("it started")


def fake_python(tmp_path, text):
    path = tmp_path / "python"
    real = f"[{sys.executable!r}, *sys.argv[1:]]"
    probe = f"import subprocess, sys\nif sys.argv[1] == '-c': sys.exit(subprocess.call({real}))"
    path.write_text(f"#!{sys.executable}\n{probe}\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: no such file"),
        (lambda f: (f / "config.json").write_text("{"), "config.json, line 1: not JSON"),
        (lambda f: (f / "config.json").write_text("{}"), "names no architecture"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: no such file"),
        (lambda f: (f / "model.safetensors").unlink(), "no weights"),
        (lambda f: os.truncate(f / "model.safetensors", 200_000), "a whole safetensors file"),
        (lambda f: os.truncate(f / "model.safetensors", 4), "not a safetensors file"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 1000), "not a safetensors file"),
    ],
)
def test_unreadable_checkpoints_are_refused_on_one_line(weights, tmp_path, harm, message):
    harm(weights)
    with pytest.raises(InputError, match=message) as error:
        start(weights, tmp_path)
    assert "\n" not in str(error.value) and not (tmp_path / "server.log").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context_length": 4096, "max_total_tokens": 8192}, "context_length 4096; expected at most 512"),
        ({"max_total_tokens": 128}, "max_total_tokens 128; expected at least 256"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(weights, tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        start(weights, tmp_path, **settings)


def test_a_taken_port_is_refused_at_once(weights, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ServingError, match="is in use"):
            start(weights, tmp_path, port=other.getsockname()[1])


def test_a_server_that_dies_is_one_line_with_its_fault_and_log(weights, tmp_path):
    python = fake_python(tmp_path, "print('loading'); raise MemoryError('no room')")
    with pytest.raises(
        ServingError, match=r"ended with 1: MemoryError: no room; log: .*server\.log"
    ) as error:
        start(weights, tmp_path, python=python, device="cpu")
    assert "\n" not in str(error.value)


def test_a_server_that_never_answers_is_ended(weights, tmp_path, monkeypatch):
    """Its timeout starts with its first output."""
    log, seconds = tmp_path / "server.log", itertools.count()
    clock = SimpleNamespace(
        monotonic=lambda: next(seconds) if "waiting" in log.read_text() else 0, sleep=time.sleep
    )
    monkeypatch.setattr(server, "time", clock)
    python = fake_python(tmp_path, "import time; print('waiting', flush=True); time.sleep(600)")
    with pytest.raises(ServingError, match=r"no model server in 2 s: waiting"):
        start(weights, tmp_path, python=python, device="cpu", startup_seconds=2)
    assert until(lambda: not processes_with(python), PATIENCE)


def test_a_port_taken_in_between_is_tried_again_elsewhere(weights, tmp_path):
    python = fake_python(
        tmp_path,
        "import sys, json\n"
        "port = json.load(open(sys.argv[sys.argv.index('--config') + 1]))['port']\n"
        f"open({str(tmp_path / 'ports')!r}, 'a').write(f'{{port}}\\n')\n"
        "sys.exit('OSError: [Errno 98] address already in use')",
    )
    with pytest.raises(ServingError, match="address already in use"):
        start(weights, tmp_path, python=python, device="cpu")
    ports = (tmp_path / "ports").read_text().split()
    assert len(ports) == 3 and len(set(ports)) > 1


def test_only_the_checkpoints_own_model_code_is_imported():
    skipped = other_architectures(ModelConfig(architectures=["Qwen2ForCausalLM"]), sys.executable)
    assert len(skipped) > 50 and "qwen2" not in skipped and "llama" in skipped
    assert other_architectures(ModelConfig(architectures=["NoSuchModel"]), sys.executable) == []


def test_an_interpreter_without_sglang_is_named(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("SWELAB_SERVE_PYTHON", "/usr/bin/false")
    with pytest.raises(ServingError, match="sglang is not installed for /usr/bin/false"):
        start(weights, tmp_path, device="cpu")


def test_the_token_is_not_shown():
    assert "hush" not in repr(Endpoint("http://127.0.0.1:1/v1", "hush", "toy"))


def in_shims(code, *words):
    environment = {**os.environ, "PYTHONPATH": str(SHIMS)}
    return run_program([sys.executable, "-c", code, *words], env=environment, check=True)


def test_children_are_forked_only_while_there_is_one_thread():
    code = (
        "import gc, multiprocessing, threading\n"
        "assert not gc.isenabled()\n"
        "if {threads}: threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "multiprocessing.set_start_method('spawn', force=True)\n"
        "print(multiprocessing.get_start_method(), gc.isenabled())\n"
    )
    server = "sglang.launch_server"
    assert in_shims(code.format(threads=0), server).stdout.split() == ["fork", "True"]
    assert in_shims(code.format(threads=1), server).stdout.split() == ["spawn", "True"]


ATTENTION = """
from types import SimpleNamespace as Names
import torch
from cpu_attention import CpuAttention
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.plugins import load_plugins

load_plugins()
print(ATTENTION_BACKENDS["torch_native"] is CpuAttention)
torch.manual_seed(0)
keys, values = torch.randn(2, 64, 2, 8)
table = torch.stack([torch.randperm(64) for _ in range(3)])
cache = Names(set_kv_buffer=lambda *_: None, get_key_buffer=lambda _: keys, get_value_buffer=lambda _: values)
runner = Names(device="cpu", req_to_token_pool=Names(req_to_token=table), token_to_kv_pool=cache)
layer = Names(qk_head_dim=8, v_head_dim=8, tp_q_head_num=6, tp_k_head_num=2, layer_id=0, scaling=0.3)
layer.is_cross_attention, layer.attn_type, layer.sliding_window_size = False, AttentionType.DECODER, -1
lengths, prefixes = torch.tensor([5, 20, 9]), torch.tensor([0, 17, 8])
batch = Names(seq_lens=lengths, extend_prefix_lens=prefixes, extend_seq_lens=lengths - prefixes)
batch.req_pool_indices, batch.encoder_lens, batch.out_cache_loc = torch.tensor([2, 0, 1]), None, None
for tokens, name in ((int((lengths - prefixes).sum()), "forward_extend"), (3, "forward_decode")):
    query, outputs = torch.randn(tokens, 48), []
    for backend in (CpuAttention(runner), TorchNativeAttnBackend(runner)):
        backend.init_forward_metadata(batch)
        outputs.append(getattr(backend, name)(query, query, query, layer, batch))
    print(torch.allclose(*outputs, atol=1e-6), outputs[0].abs().max() > 0.1)
"""


def test_attention_on_a_cpu_is_that_of_sglang():
    assert in_shims(ATTENTION).stdout.split()[-5:] == ["True", *["True", "tensor(True)"] * 2]


def test_a_server_on_a_cpu_computes_in_one_thread_however_many_cores_its_job_has(monkeypatch):
    config = ModelConfig(architectures=["Qwen2ForCausalLM"])
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")  # as Snakemake does
        assert environment(True, config, sys.executable)[name] == "1"
        assert torch_environment(3)[name] == "3"


def test_stand_ins_are_only_for_machines_without_a_gpu():
    config = ModelConfig(architectures=["Qwen2ForCausalLM"])
    assert str(SHIMS) in environment(True, config, sys.executable)["PYTHONPATH"]
    assert str(SHIMS) not in environment(False, config, sys.executable).get("PYTHONPATH", "")
    assert not (Path(SHIMS) / "triton").exists()
