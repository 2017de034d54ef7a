"""Makes a virtual environment whole, or removes it: `install.py FOLDER [--torch auto|cpu|cuda] FILE...`

Runs in the system's Python. FOLDER/.installed, written last of all, says what was installed; where that still
holds, nothing is done. One process installs at a time: it holds FOLDER.lock. Exit code 2: it failed.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
ANSWERS_SECONDS = 8
SIZES_GB = {"cpu": 3.9, "cuda": 7.2}
MINUTES = {"cpu": "3 minutes", "cuda": "6 to 15 minutes"}
PLACES = ("target", "prefix", "root", "python", "requirement", "no-deps", "dry-run", "editable")
"""What a pip.conf may not set: packages would go elsewhere, or others would come."""
KEPT = set(  # variables PIP_... that say where packages come from; all others are left out
    "INDEX_URL EXTRA_INDEX_URL FIND_LINKS NO_INDEX PROXY CERT CLIENT_CERT TRUSTED_HOST CACHE_DIR "
    "NO_CACHE_DIR DEFAULT_TIMEOUT TIMEOUT RETRIES KEYRING_PROVIDER CONFIG_FILE "
    "DISABLE_PIP_VERSION_CHECK".split()
)


class Failed(Exception):
    """Why there is no environment, in one line."""


def main() -> None:
    """Exits with 0, or with 2 after a line that says what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+", help="pinned packages with all that they need")
    parser.add_argument("--torch", default="", help="auto, cpu or cuda: also install envs/torch.txt")
    parser.add_argument("--torch-index", default=CPU_INDEX, help="where CPU builds of torch are")
    parser.add_argument("--imports", default="", help="modules to try, separated by commas")
    parser.add_argument("--no-compile", action="store_true", help="for programs that run seldom")
    parser.add_argument("--path", default="", help="a folder whose modules are seen too, if it is there")
    parser.add_argument("--bare", action="store_true", help="leave nothing in it that installs packages")
    parser.add_argument("--editable", default="", help="a checkout to install without what it needs")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.torch not in ("", "auto", "cpu", "cuda"):
            raise Failed(f"TORCH={args.torch}: expected auto, cpu or cuda")
        install(args)
    except (Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("error: interrupted; the next `make` begins anew", file=sys.stderr)
        sys.exit(130)


def install(args: argparse.Namespace) -> None:
    """Makes the environment unless it is there. Raises Failed, OSError."""
    stamp = args.folder / ".installed"
    if is_whole(args):
        return
    if args.folder.is_symlink():
        raise Failed(f"{args.folder} is a link to what is not pinned here; remove the link")
    with open(f"{args.folder}.lock", "a+") as holder:
        take(holder, args.folder)
        if is_whole(args):
            return
        text, old = wanted(args), read(stamp)
        new = json.loads(text)
        if not starts(args.folder) or any(old.get(key, new[key]) != new[key] for key in ("folder", "torch")):
            shutil.rmtree(args.folder, ignore_errors=not args.folder.exists())
            if args.torch:
                announce(args.folder, new["torch"])
        try:
            stamp.unlink(missing_ok=True)
            fill(args, new["torch"])
            stamp.write_text(text)
        except BaseException as error:
            free = shutil.disk_usage(args.folder.absolute().parent).free
            shutil.rmtree(args.folder, ignore_errors=True)  # what is not whole heals no other way
            if isinstance(error, Failed) and free < 4 << 20:
                raise Failed(
                    f"No space left on device for {args.folder}; free some, then `make` anew"
                ) from None
            raise


def starts(folder: Path) -> bool:
    """Whether an environment was stamped and the Python that it was made from is still there."""
    return (folder / ".installed").is_file() and (folder / "bin" / "python").exists()


def is_whole(args: argparse.Namespace) -> bool:
    """Whether what is wanted was installed."""
    return starts(args.folder) and (args.folder / ".installed").read_text() == wanted(args)


def wanted(args: argparse.Namespace) -> str:
    """What the stamp of this environment says."""
    files = [*([torch_file(args)] if args.torch else []), *args.files]
    record = {
        "folder": str(args.folder.resolve()),
        "torch": torch_kind(args) if args.torch else "",
        "given": [args.editable, args.path, *(["bare"] if args.bare else [])],
        "files": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
    }
    return json.dumps(record, indent=1) + "\n"


def read(stamp: Path) -> dict:
    """What a stamp says; {} where there is none that can be read."""
    try:
        return dict(json.loads(stamp.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def torch_file(args: argparse.Namespace) -> Path:
    """The file that pins torch, beside the others."""
    return args.files[0].parent / "torch.txt"


def torch_kind(args: argparse.Namespace) -> str:
    """The build to install: as told, else the one that was chosen before, else by the machine's GPUs."""
    kept = read(args.folder / ".installed").get("torch")
    return args.torch if args.torch != "auto" else kept or ("cuda" if has_gpu() else "cpu")


def has_gpu() -> bool:
    """Whether NVIDIA's driver lists a GPU."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "GPU " in done.stdout


def take(holder, folder: Path) -> None:
    """Waits until no other process installs here, and says who does."""
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder.seek(0)
        who = holder.read().strip() or "another process"
        print(f"waiting: {who} installs {folder}; Ctrl-C ends the waiting", file=sys.stderr, flush=True)
        fcntl.flock(holder, fcntl.LOCK_EX)
    holder.truncate(0)
    here = f"process {os.getpid()} of user {os.getuid()} on {os.uname().nodename}"
    holder.write(f"{here}, since {time.strftime('%H:%M')},")
    holder.flush()


def announce(folder: Path, torch: str) -> None:
    """Says what is about to be fetched. Raises Failed where there is no room for it."""
    size, place = SIZES_GB[torch], folder.absolute().parent
    free = shutil.disk_usage(place).free / 1e9
    text = f"installing into {folder}: torch for {torch.upper()} (make TORCH=cpu or TORCH=cuda chooses)"
    print(f"{text}, {size} GB, about {MINUTES[torch]} ({free:.0f} GB are free)", flush=True)
    if free < size:
        raise Failed(f"{place}: {free:.1f} GB are free; expected {size} or more")


def fill(args: argparse.Namespace, torch: str) -> None:
    """All that goes into the environment. Raises Failed."""
    run([sys.executable, "-m", "venv", str(args.folder)], f"no virtual environment at {args.folder}")
    pip = Pip(args.folder)
    if torch:
        install_torch(pip, torch_file(args), torch, args.torch_index)
    for file in args.files:
        pip.install("--no-deps", "-r", str(file), *(["--no-compile"] if args.no_compile else []))
    if args.editable:
        pip.install("--no-deps", "--editable", args.editable)
    packages = next(args.folder.glob("lib/python3*/site-packages"))
    if args.path:
        (packages / "swelab_task.pth").write_text(args.path + "\n")
    if torch:
        shutil.copy(Path(__file__).with_name("swelab_home.py"), packages)
        (packages / "swelab_home.pth").write_text("import swelab_home\n")
    if args.bare:
        run([*pip.command, "uninstall", "-qy", "setuptools", "wheel", "pip"], "pip stays", pip.surroundings)
    try_imports(args)


class Pip:
    """pip of an environment, with the user's settings of where packages come from and no others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = [str(folder / "bin" / "python"), "-m", "pip"]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PIP_") or name.removeprefix("PIP_") in KEPT
        }
        none = os.devnull  # versions are pinned: a constraint of pip.conf could only contradict them
        self.surroundings = {**kept, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_CONSTRAINT": none}
        listed = run([*self.command, "config", "list"], "pip does not start", self.surroundings)
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            if key.rpartition(".")[2] in PLACES:
                raise Failed(
                    f"pip's settings hold {key}={value}: packages would not come to {folder} as pinned; "
                    "take it out, or set PIP_CONFIG_FILE=/dev/null"
                )

    def install(self, *arguments: str, quiet: bool = False) -> str:
        """Installs packages. Returns "" or, if quiet, why the index has none. Raises Failed."""
        whole = ["install", "-q", "--only-binary=:none:", "--no-binary=:none:"]
        done = subprocess.run(
            [*self.command, *whole, *arguments],
            env=self.surroundings,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        if quiet and "No matching distribution found" in done.stderr:
            return done.stderr
        sys.stderr.write(done.stderr)
        if done.returncode:
            why = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), "")
            raise Failed(
                f"{self.folder} was removed, since pip ended with {done.returncode}"
                f"{': ' if why else ''}{why.removeprefix('ERROR: ')}; the next `make` begins anew"
            )
        return ""


def install_torch(pip: Pip, file: Path, kind: str, index: str) -> None:
    """torch of the kind, with what it needs. Raises Failed."""
    pinned = next(line for line in file.read_text().splitlines() if line.startswith("torch=="))
    if kind == "cuda":
        pip.install("-r", str(file), "torch!=" + pinned.removeprefix("torch==") + "+cpu")
    else:
        exact = f"{pinned}+cpu"
        missing = pip.install("--no-deps", exact, quiet=True)
        if missing and answers(f"{index}/torch/"):
            missing = pip.install("--no-deps", "--index-url", index, exact, quiet=True)
        if missing:
            print(f"neither pip's index nor {index} has a CPU build: the CUDA build comes instead")
            announce(pip.folder, "cuda")
        pip.install("-r", str(file))
    code = "import torch; print(torch.version.cuda or '')"
    if kind == "cuda" and not run([f"{pip.folder}/bin/python", "-c", code], "no torch").strip():
        raise Failed("TORCH=cuda: pip's index gave a CPU build; set PIP_INDEX_URL to one with CUDA builds")


def answers(url: str) -> bool:
    """Whether an address answers within seconds, the looking up of its name included."""
    found: list[bool] = []

    def ask() -> None:
        context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
        try:
            with urllib.request.urlopen(url, timeout=ANSWERS_SECONDS, context=context) as answer:
                found.append(answer.status == 200)
        except (OSError, ValueError):
            found.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWERS_SECONDS)
    return found == [True]


def try_imports(args: argparse.Namespace) -> None:
    """Whether every package has its pinned version, and the modules start. Raises Failed."""
    pins: dict[str, str] = {}
    for file in args.files:
        lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
        pins |= dict(line.split("==") for line in lines if "==" in line)
    code = (
        "import sys, json; from importlib.metadata import version\n"
        "pins = json.loads(sys.argv[1])\n"
        "wrong = [f'{name} {version(name)}' for name in pins if version(name) != pins[name]]\n"
        "wrong and sys.exit(f'expected other versions of: {wrong}')\n"
        "for name in filter(None, sys.argv[2].split(',')): __import__(name)\n"
    )
    command = [str(args.folder / "bin/python"), "-c", code, json.dumps(pins), args.imports]
    run(command, f"{args.folder} does not work")


def run(command: list[str], fault: str, surroundings: dict[str, str] | None = None) -> str:
    """What a command prints. Raises Failed with the last line that it says when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=surroundings)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise Failed(f"{fault}: {said[-1]}")
    return done.stdout


if __name__ == "__main__":
    main()
