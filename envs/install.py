"""Makes a virtual environment with uv: `install.py FOLDER [--torch auto|cpu|cuda] FILE...`

Runs in the system's Python. FOLDER/.installed is written last and records what was installed. If it is up to
date, nothing is done. FOLDER.lock lets one process install at a time. If uv fails, the folder is removed and
the exit code is 2.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch_build
from get_python import get_python
from get_uv import Failed, get_uv, lock, output, replacing, run
from starts import STARTS, Start, fault


def main() -> None:
    """Exits with 0, or with 2 after an error line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+", help="pinned packages, including all dependencies")
    parser.add_argument("--torch", default="", help="also install envs/torch.txt, for auto, cpu or cuda")
    parser.add_argument("--torch-index", default=torch_build.CPU_INDEX, help="index of CPU builds of torch")
    parser.add_argument("--no-compile", action="store_true", help="do not compile bytecode now")
    parser.add_argument("--path", default="", help="folder added to the module path, if it exists")
    parser.add_argument("--editable", default="", help="checkout to install without its dependencies")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        install(args)
    except (Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("error: interrupted; the next `make` begins anew", file=sys.stderr)
        sys.exit(130)


def install(args: argparse.Namespace) -> None:
    """Makes the environment unless it exists and is up to date. Raises Failed, OSError."""
    if args.torch not in ("", "auto", "cpu", "cuda"):
        raise Failed(f"TORCH={args.torch}: expected auto, cpu or cuda")
    if is_whole(args):
        return
    if args.folder.is_symlink():
        raise Failed(f"{args.folder} is a link to what is not pinned here; remove the link")
    with lock(args.folder):
        if is_whole(args):
            return
        text = stamp_text(args)
        kind = json.loads(text)["torch"]
        if kind:
            torch_build.announce(args.folder, kind)
        began = time.monotonic()
        uv = get_uv()
        with replacing(args.folder):
            fill(args, uv, kind)
            (args.folder / ".installed").write_text(text)
        print(f"installed: {args.folder}, in {time.monotonic() - began:.0f} s", flush=True)


def is_whole(args: argparse.Namespace) -> bool:
    """Returns whether the environment is up to date and its Python still exists."""
    stamp = args.folder / ".installed"
    return stamp.is_file() and (args.folder / "bin/python").exists() and stamp.read_text() == stamp_text(args)


def stamp_text(args: argparse.Namespace) -> str:
    """Returns the text of FOLDER/.installed for these arguments."""
    files = [*([torch_build.PIN] if args.torch else []), *args.files]
    record = {
        "folder": str(args.folder.resolve()),
        "torch": torch_build.kind(args.folder / ".installed") if args.torch == "auto" else args.torch,
        "given": [args.editable, args.path],
        "files": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
    }
    return json.dumps(record, indent=1) + "\n"


def fill(args: argparse.Namespace, uv: str, kind: str) -> None:
    """Creates the environment and installs everything into it. Raises Failed."""
    python, broken = str(args.folder / "bin/python"), f"{args.folder} was removed, since uv failed"
    run([uv, "venv", "-q", "--python", get_python(uv), str(args.folder)], broken)
    install = [uv, "pip", "install", "-q", "--python", python]
    if "PIP_NO_INDEX" in os.environ:
        install.append("--no-index")
    packages = torch_build.choose(args, install, kind, broken) if kind else []
    packages += [word for file in args.files for word in ("-r", str(file))]
    run([*install, "--no-deps", *([] if args.no_compile else ["--compile-bytecode"]), *packages], broken)
    if args.editable:
        run([*install, "--no-deps", "--editable", args.editable], broken)
    site = next(args.folder.glob("lib/python3*/site-packages"))
    if args.path:
        (site / "swelab_task.pth").write_text(args.path + "\n")
    if kind:
        shutil.copy(Path(__file__).with_name("swelab_home.py"), site)
        (site / "swelab_home.pth").write_text("import swelab_home\n")
    starts = [item for file in args.files for item in STARTS.get(file.stem, {}).items()]
    with ThreadPoolExecutor() as pool:
        for started in [pool.submit(try_start, args.folder, *item) for item in starts]:
            started.result()
    if kind == "cuda" and not output([python, "-c", "import torch; print(torch.version.cuda or '')"]).strip():
        raise Failed("TORCH=cuda: the index gave a CPU build; set PIP_INDEX_URL to one with CUDA builds")


def try_start(folder: Path, name: str, start: Start) -> None:
    """Starts one thing in an environment. Raises Failed with the missing library if there is one."""
    offline = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HF_HUB_OFFLINE": "1",
    }  # an import must not wait for the network
    command = [str(folder / "bin/python"), "-c", start.code]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **offline, **start.variables},
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise Failed(f"{folder} does not work: {error}") from None
    if done.returncode:
        raise Failed(f"{folder} does not work: {name} does not start: {fault(done.stderr)[:600]}")


if __name__ == "__main__":
    main()
