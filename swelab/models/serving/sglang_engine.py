"""Runs sglang as an inference engine.

Responses at temperature 0 are reproducible. sglang uses the seed of a request only with
`--enable-deterministic-inference`, which needs a GPU.
"""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from swelab.files.model_config import ModelConfig
from swelab.models import ModelLost, ServingError
from swelab.models.serving.engine import CPU_CACHE, Program, ServerSettings, Weights
from swelab.models.serving.lora import check_adapters
from swelab.models.serving.sglang_shapes import SHAPES
from swelab.models.token_turn import TokenTurn
from swelab.records import Record, shorten
from swelab.sampling_settings import generate_fields

SHIMS = Path(__file__).resolve().parent / "shims"
CPU_FLAGS = ("--device", "cpu", "--attention-backend", "torch_native")
SETTINGS = {"random-seed": 0, "skip-server-warmup": True, "log-level": "warning", "sleep-on-idle": True}
SETTINGS |= {"sampling-defaults": "openai"}
"""`openai` keeps sglang from filling in a chat request, but not one to /generate, with the values of the
weights' generation_config.json. A policy requests them by `sampling: model`."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_ASK_SECONDS = 30.0
_REPLACE_SECONDS = 600.0


class Sglang:
    """See `engine.Engine`."""

    listens = "/health"
    generates = "/health_generate"
    refused_options = ("--api-key", "--admin-api-key", "--config", "--host", "--port")
    shapes = SHAPES

    def program(self, settings: ServerSettings, port: int) -> Program:
        """See `Engine.program`."""
        flags = [
            *device_flags(settings.on_cpu, settings.dtype),
            *adapter_flags(settings),
            *(["--reasoning-parser", settings.reasoning_parser] if settings.reasoning_parser else []),
            *settings.extra_args,
        ]
        module = [settings.python, "-m", "sglang.launch_server", "--config"]
        recipe = {**_settings(settings), "port": port}
        return Program(
            lambda folder: [*module, f"{folder}/server.yaml", *flags],
            environment(settings.on_cpu, settings.config, settings.python),
            {"server.yaml": json.dumps(recipe).encode()},
        )

    def gpu_options(self, count: int, first: int) -> tuple[str, ...]:
        """See `Engine.gpu_options`."""
        return ("--tp-size", str(count), "--base-gpu-id", str(first))

    def adapter_model(self, name: str, adapter: str) -> str:
        """See `Engine.adapter_model`."""
        return f"{name}:{adapter}"

    def weights(self, url: str, key: str) -> Weights:
        """See `Engine.weights`."""
        headers = {"Authorization": f"Bearer {key}"}
        try:
            answer = httpx.get(f"{url}/model_info", headers=headers, timeout=_ASK_SECONDS)
            answer.raise_for_status()
            said = answer.json()
            return Weights(Path(said["model_path"]), said["weight_version"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ServingError(f"{url} does not say which weights it serves: {what}") from None

    def token_request(self, prompt: Sequence[int], sampling: Record) -> tuple[str, Record]:
        """See `Engine.token_request`."""
        body = {"input_ids": list(prompt), "return_logprob": True}
        return "/generate", {**body, "sampling_params": {**generate_fields(sampling), "no_stop_trim": True}}

    def read_tokens(self, prompt: Sequence[int], answer: Any) -> TokenTurn:
        """See `Engine.read_tokens`."""
        try:
            facts = answer["meta_info"]
            whole = [{"start": 0, "version": facts.get("weight_version", "")}]  # of releases before spans
            scored = facts["output_token_logprobs"]
            return TokenTurn(
                prompt=tuple(prompt),
                sampled=tuple(each[1] for each in scored),
                logprobs=tuple(each[0] for each in scored),
                finish=facts["finish_reason"]["type"],
                versions=tuple(
                    (span["start"], span["version"]) for span in facts.get("weight_versions", whole)
                ),
            )
        except (LookupError, TypeError) as error:
            text = f"{type(error).__name__} {error} in {shorten(str(answer))}"
            raise ModelLost(f"an answer in another form: {text}") from None

    def replace_weights(self, url: str, admin_key: str, weights: Weights, in_turns: bool = False) -> None:
        """See `Engine.replace_weights`."""
        request = {"model_path": str(weights.folder.absolute()), "weight_version": weights.version}
        headers = {"Authorization": f"Bearer {admin_key}"}

        def post(path: str, body: Record) -> httpx.Response:
            return httpx.post(url + path, headers=headers, json=body, timeout=_REPLACE_SECONDS)

        try:
            if in_turns:  # drops the cache of running turns, so that the new weights read them again
                post("/pause_generation", {"mode": "retract"}).raise_for_status()
            try:
                answer = post("/update_weights_from_disk", request)
            finally:
                if in_turns:
                    post("/continue_generation", {}).raise_for_status()
            said = answer.json() if answer.is_success else {}
            if not said.get("success"):
                raise ServingError(f"{url} does not take weights: {shorten(answer.text)}")
        except (httpx.HTTPError, ValueError) as error:
            raise ServingError(f"{url} does not take weights: {type(error).__name__}: {error}") from None


def _settings(settings: ServerSettings) -> Record:
    sizes = {"context-length": settings.context_length, "max-running-requests": settings.max_running_requests}
    on_cpu = max(CPU_CACHE, settings.context_length) if settings.on_cpu else None
    bound = settings.max_total_tokens or on_cpu
    sizes |= {"max-total-tokens": bound} if bound else {}
    names = {"host": settings.host, "model-path": str(settings.folder), "served-model-name": settings.name}
    return SETTINGS | names | {"api-key": settings.key, "admin-api-key": settings.admin_key} | sizes


def device_flags(on_cpu: bool, dtype: str) -> list[str]:
    """Returns options for the device and the dtype of the weights: auto, float32, bfloat16 or float16."""
    if on_cpu:
        return [*CPU_FLAGS, "--dtype", "float32" if dtype == "auto" else dtype]
    return ["--dtype", dtype]


def adapter_flags(settings: ServerSettings) -> list[str]:
    """Returns options for LoRA adapters. Raises InputError if an adapter is incomplete."""
    if not settings.adapters:
        return []
    check_adapters(settings.adapters)
    paths = [f"{name}={Path(folder).absolute()}" for name, folder in settings.adapters.items()]
    backend = ["--lora-backend", "torch_native"] if settings.on_cpu else []
    return ["--lora-paths", *paths, *backend]


def environment(on_cpu: bool, config: ModelConfig, python: str) -> dict[str, str]:
    """Returns the server's environment variables. Raises ServingError if sglang is not installed for
    `python`."""
    variables = {**os.environ, **OFFLINE, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
    if on_cpu:
        path = [str(SHIMS), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        variables |= {
            "SGLANG_USE_CPU_ENGINE": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",  # a second thread spins, and takes its core from the sandboxes
            "TORCH_COMPILE_DISABLE": "1",  # a penalty would be compiled, and end a server without a compiler
            "PYTHONPATH": os.pathsep.join(path),
        }
    if skipped := other_architectures(config, python):
        variables |= {"SGLANG_DISABLED_MODEL_ARCHS": ",".join(skipped)}
    return variables


def other_architectures(config: ModelConfig, python: str) -> list[str]:
    """Returns sglang's model modules that do not define the checkpoint's architecture, so that sglang skips
    them.

    Returns [] if no module defines the architecture by name. Then sglang imports all modules. Raises
    ServingError if sglang is not installed for `python`.
    """
    probe = "from importlib.util import find_spec; print(find_spec('sglang').submodule_search_locations[0])"
    found = subprocess.run([python, "-c", probe], capture_output=True, text=True)
    if found.returncode:
        raise ServingError(f"sglang is not installed for {python}; expected the requirements in envs/")
    modules = sorted(Path(found.stdout.strip(), "srt", "models").glob("*.py"))
    wanted = re.compile(rf"^class ({'|'.join(map(re.escape, config.architectures))})\b", re.MULTILINE)
    keep = {path.stem for path in modules if wanted.search(path.read_text(encoding="utf-8"))}
    return [path.stem for path in modules if path.stem not in keep] if keep else []
