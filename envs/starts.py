"""What must start in an environment before it counts as installed. Each start is a few lines of Python."""

import re
from typing import NamedTuple


class Start(NamedTuple):
    """Code that a Python of the environment runs in the clone, with these variables."""

    code: str
    variables: dict[str, str] = {}


STARTS = {
    "cpu": {
        "torchtune's recipe": Start(
            "import pathlib, runpy, torchtune, torchtune._cli.tune; "
            "site = pathlib.Path(torchtune.__file__).parents[1]; "
            "runpy.run_path(site / 'recipes/full_finetune_single_device.py')"
        ),
        "sglang's server": Start(
            "import sglang.launch_server, sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler; "
            "import sglang.srt.models.llama, sglang.srt.models.qwen2, sglang.srt.models.qwen3",
            {
                "PYTHONPATH": "swelab/models/serving/shims",
                "SGLANG_USE_CPU_ENGINE": "1",
                "CUDA_VISIBLE_DEVICES": "",
            },
        ),
        "TRL's trainer": Start(
            "from trl import DPOTrainer, SFTTrainer; "
            "from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"
        ),
        "snakemake": Start("import snakemake.cli, datasets, docker, litellm, minisweagent"),
    },
    "sandbox": {"pytest": Start("import pytest")},
    "verl": {"verl's trainer": Start("import transfer_queue, swebench; import verl.trainer.main_ppo")},
}
"""By the name of the file of pins and the name of what starts."""

DEBIAN = {
    "libGL.so.1": "libgl1",
    "libgcc_s.so.1": "libgcc-s1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgomp.so.1": "libgomp1",
    "libibverbs.so.1": "libibverbs1",
    "libnuma.so.1": "libnuma1",
    "libsndfile.so": "libsndfile1",
    "libssl.so.3": "libssl3",
    "libstdc++.so.6": "libstdc++6",
    "libz.so.1": "zlib1g",
}
"""Debian's package of a shared library that a wheel may want from the system."""


def fault(stderr: str) -> str:
    """Returns one line about a failed import: the package, and the shared library that the system lacks.

    stderr: what Python printed, with a traceback.
    """
    lines = [line.strip() for line in stderr.strip().splitlines()] or ["no message"]
    for number, line in enumerate(lines):
        missing = re.search(r"Error: .*?\b(lib[\w+.-]*?\.so[.\d]*)", line)
        if missing and ("cannot open" in line or "cannot load" in line):
            library = missing[1]
            advice = (
                f"Debian's package {DEBIAN[library]}" if library in DEBIAN else f"apt-file search {library}"
            )
            return f"{_package(lines[:number])} needs the shared library {library} ({advice} has it)"
    return lines[-1]


def _package(frames: list[str]) -> str:
    places = [re.search(r"site-packages/(\w+)", line) for line in frames if line.startswith("File ")]
    return next((place[1] for place in reversed(places) if place), "a package")
