"""The app that trains at Modal, on files in a volume: `modal run <this file>::train --name <sft>`.

Only Modal's client imports this module, on the user's machine and in a container at Modal. GPUs, hours and
the volume's name come from environment variables, because Modal needs them at import.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import modal

THERE = "/root/swelab"
VOLUME = "/volume"
GPU, GPUS = os.environ.get("MODAL_GPU", "H100"), os.environ.get("N_GPUS", "2")
HOURS = float(os.environ.get("N_HOURS", "10"))

image = modal.Image.debian_slim(python_version="3.11").apt_install("git", "build-essential")
if modal.is_local():
    root = Path(__file__).resolve().parents[3]
    image = image.pip_install_from_requirements(str(root / "envs/gpu-train.txt"))
    image = image.pip_install_from_requirements(str(root / "envs/cpu.txt"), extra_options="--no-deps")
    for folder in ("swelab", "scripts", "configs"):
        image = image.add_local_dir(str(root / folder), f"{THERE}/{folder}", ignore=["**/__pycache__"])

volume = modal.Volume.from_name(os.environ.get("SWELAB_MODAL_VOLUME", "swelab"), create_if_missing=True)
app = modal.App("swelab-train", image=image)
machine: dict[str, Any] = {"gpu": f"{GPU}:{GPUS}", "timeout": int(HOURS * 3600), "volumes": {VOLUME: volume}}


@app.function(**machine)
def train(name: str) -> None:
    """Runs the script of the rule train_sft in the volume's folder `name`. Resumes an interrupted run."""
    here = f"{VOLUME}/{name}"
    command = ["python", "-m", "scripts.train_sft", "--dataset", f"{here}/dataset.jsonl"]
    command += ["--base", f"{here}/base.json", "--recipe", f"{here}/recipe.yaml"]
    command += ["--progress", f"{here}/progress", "--checkpoint", f"{here}/checkpoint"]
    command += ["--manifest", f"{here}/checkpoint.json", "--loss", f"{here}/loss.jsonl"]
    try:
        subprocess.run(command, cwd=THERE, check=True)
    finally:
        volume.commit()


@app.function(**machine)
def tune(text: str, gpus: str) -> None:
    """Runs torchtune with an unchanged configuration. text: the configuration, with paths under /volume."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(text)
        file.flush()
        command = ["python", "-m", "scripts.run_torchtune", "--config", file.name, "--gpus", gpus]
        try:
            subprocess.run(command, cwd=THERE, check=True)
        finally:
            volume.commit()


@app.local_entrypoint()
def tune_file(config: str) -> None:
    """Runs `tune` with the local file `config`."""
    tune.remote(Path(config).read_text(encoding="utf-8"), GPUS)
