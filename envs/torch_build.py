"""Chooses the build of torch for an environment: for CPU or for CUDA."""

import argparse
import json
import shutil
from pathlib import Path

from get_uv import Failed, output, run
from pip_settings import index_fault

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SIZES = {"cpu": "3.0 GB, 1 to 3 minutes", "cuda": "7.2 GB, some minutes"}
PIN = Path(__file__).with_name("torch.txt")


def kind(stamp: Path) -> str:
    """Returns the build that was chosen earlier, or else the one for this machine: "cuda" or "cpu"."""
    try:
        return json.loads(stamp.read_text())["torch"]
    except (OSError, ValueError, KeyError, TypeError):
        return "cuda" if "GPU " in output(["nvidia-smi", "-L"]) else "cpu"


def announce(folder: Path, build: str) -> None:
    """Prints what will be downloaded. Raises Failed if the disk has too little space."""
    place, size = folder.absolute().parent, float(SIZES[build].split()[0])
    free = shutil.disk_usage(place).free / 1e9
    text = f"installing into {folder}: torch for {build.upper()} (make TORCH=cpu or TORCH=cuda chooses)"
    print(f"{text}, {SIZES[build]} ({free:.0f} GB are free)", flush=True)
    if free < size:
        raise Failed(f"{place}: {free:.1f} GB are free; expected {size} or more")


def choose(args: argparse.Namespace, install: list[str], build: str, fault: str) -> list[str]:
    """Returns the torch packages to install with the others, or [] if torch is installed already."""
    pinned = next(line for line in PIN.read_text().splitlines() if line.startswith("torch=="))
    exact = f"{pinned}+cpu"
    if build == "cpu":
        if has(install, exact, fault):
            return [exact]
        other = [*install, "--default-index", args.torch_index]
        if not index_fault(args.torch_index) and has(other, exact, fault):
            run([*other, "--no-deps", exact], fault)
            return []
        print(
            f"neither the package index nor {args.torch_index} has a CPU build: the CUDA build comes instead"
        )
        announce(args.folder, "cuda")
    limits = [word for file in args.files for word in ("--constraints", str(file))]
    run([*install, *limits, pinned, f"torch!={exact.removeprefix('torch==')}"], fault)
    return []


def has(install: list[str], package: str, fault: str) -> bool:
    """Returns whether an index has a package. Raises Failed if uv cannot tell."""
    try:
        run([*install, "--no-deps", "--dry-run", package], fault)
    except Failed as error:
        if "No solution found" not in str(error):
            raise
        return False
    return True
