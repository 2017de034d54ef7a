"""The set-up with the real Makefile and uv, from an HTTP index with packages of a few bytes."""

import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_program
from tests.contract.attacks import until

pytestmark = pytest.mark.full

UV = os.environ.get("UV") or shutil.which("uv") or ROOT / ".venv-uv/bin/uv"
MODULES = "torchtune transformers datasets snakemake litellm docker".split()
STARTS = """
STARTS = {{
    "cpu": {{"everything": Start("import {modules}")}},
    "sandbox": {{"pytest": Start("import pytest")}},
}}
"""
FOREIGN = {
    "PIP_TARGET": "/nonexistent/target",
    "PIP_PREFIX": "/nonexistent/prefix",
    "PIP_ROOT": "/nonexistent/root",
    "PIP_ONLY_BINARY": "everything",
    "PIP_CONSTRAINT": "/nonexistent/constraints.txt",
    "PIP_REQUIRE_VIRTUALENV": "1",
    "PIP_USER": "1",
    "PIP_QUIET": "3",
    "PIP_NO_DEPS": "1",
    "UV_CONSTRAINT": "/nonexistent/constraints.txt",
    "UV_SYSTEM_PYTHON": "1",
    "UV_CONFIG_FILE": "/nonexistent/uv.toml",
    "PYTHONHOME": "/nonexistent",
    "PYTHONPATH": "/nonexistent",
    "PYTHONWARNINGS": "error",
    "SNAKEMAKE_PROFILE": "none",
}


def wheel(folder: Path, name: str, version: str, files: dict[str, str], needs: str = "") -> None:
    """Writes a wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = files | {
        f"{info}/METADATA": metadata + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)


def torch(folder: Path, build: str) -> None:
    cuda = "None" if build == "cpu" else "'13.0'"
    version = "2.13.0+cpu" if build == "cpu" else "2.13.0"
    files = {"torch/__init__.py": "from torch import version\n", "torch/version.py": f"cuda = {cuda}\n"}
    wheel(folder, "torch", version, files, "" if build == "cpu" else "nvidia-tiny")


class Index:
    """An index of wheels at `url`/<name of the index>/, with the paths that pip requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.held = folder, [], threading.Event()
        self.held.set()
        index = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                index.asked.append(self.path)
                index.held.wait(60)
                parts = self.path.strip("/").split("/")
                if len(parts) == 3 or not self.path.endswith("/"):
                    return super().do_GET()
                found = sorted((index.folder / parts[0]).glob(f"{parts[-1].replace('-', '_')}-*"))
                links = "".join(
                    f'<a href="/{parts[0]}/{path.name.replace("+", "%2B")}">{path.name}</a>' for path in found
                )
                self.send_response(200 if links or len(parts) == 1 else 404)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(links.encode())
                return None

            def log_message(self, *words):
                pass

        handler = functools.partial(Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def fill(self, name: str, *builds: str) -> str:
        """Fills an index with all packages; torch comes in these builds."""
        for build in builds:
            torch(self.folder / name, build)
        everything = {f"{module}.py": "" for module in MODULES}
        wheel(self.folder / name, "everything", "1.0", everything)
        wheel(self.folder / name, "nvidia_tiny", "1.0", {"nvidia_tiny.py": ""})
        wheel(self.folder / name, "runner", "1.0", {"pytest.py": ""})
        program = f"#!/bin/sh\nexec '{UV}' \"$@\"\n"
        wheel(self.folder / name, "uv", "0.13.9", {"uv-0.13.9.data/scripts/uv": program})
        return f"{self.url}/{name}"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    index = Index(tmp_path_factory.mktemp("index"))
    yield index
    index.server.shutdown()


@pytest.fixture(scope="module")
def installer(tmp_path_factory):
    """An environment like `.venv-uv`, but without uv. Its pip supplies the settings that are read."""
    folder = tmp_path_factory.mktemp("installer") / ".venv-uv"
    subprocess.run([sys._base_executable, "-m", "venv", folder], check=True)
    return folder


@pytest.fixture
def bare(tmp_path, installer):
    """The Makefile and envs/ in a folder with a difficult name. The pinned packages have a few bytes."""
    folder = tmp_path / "Zwei Wörter"
    shutil.copytree(ROOT / "envs", folder / "envs")
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copytree(installer, folder / ".venv-uv", symlinks=True)
    with (folder / "envs/starts.py").open("a") as stream:
        stream.write(STARTS.format(modules=", ".join(MODULES)))
    (folder / "configs").mkdir()
    (folder / "configs/config.yaml").write_text("backend: bubblewrap\n")
    for name, pinned in {
        "torch": "torch==2.13.0",
        "cpu": "everything==1.0",
        "sandbox": "runner==1.0",
        "uv": "uv==0.13.9",
    }.items():
        (folder / f"envs/{name}.txt").write_text(f"# pinned\n{pinned}\n")
    return folder


def surroundings(index: str, **variables: str) -> dict[str, str]:
    # MAKE: the test's own `make` must print like a user's top-level make
    foreign = ("PIP_", "UV", "TORCH", "MAKE", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    ours = {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": index,
        "no_proxy": "127.0.0.1",
        "UV_NO_CACHE": "1",
        "COLUMNS": "60",  # uv wraps its messages at this width unless told otherwise
    }
    return kept | ours | {"PATH": without_uv()} | variables


def without_uv() -> str:
    return os.pathsep.join(
        place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "uv").exists()
    )


def install(bare: Path, index: str, *words: str, cpu_index="http://127.0.0.1:9", folder=".venv", **variables):
    """Runs `install.py` for the environment with torch. Returns exit code and output."""
    command = [sys._base_executable, "envs/install.py", folder, "--torch", "auto", "--torch-index", cpu_index]
    done = run_program([*command, *words, "envs/cpu.txt"], cwd=bare, env=surroundings(index, **variables))
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def inside(bare: Path, code: str, env=None) -> str:
    command = [bare / ".venv/bin/python", "-c", code]
    return run_program(command, check=True, env=env).stdout.strip()


def build(bare: Path) -> str:
    return inside(bare, "import torch; print(torch.version.cuda or 'cpu')")


def test_make_installs_whatever_the_user_set_for_other_programs(bare, index):
    made = run_program(
        ["make", "setup"], cwd=bare, env=surroundings(index.fill("both", "cpu", "cuda"), **FOREIGN)
    )
    assert made.returncode == 0, made.stderr
    assert "torch for CPU (make TORCH=cpu or TORCH=cuda chooses), 3.0 GB" in made.stdout
    assert build(bare) == "cpu" and inside(bare, "import litellm") == ""
    assert (bare / ".venv-sandbox/.installed").is_file()
    assert not list(bare.glob(".venv-sandbox/**/swelab_home*"))  # the sandboxes' Python stays unchanged
    where = "import os; print(os.path.expanduser('~'))"
    homeless = {"HOME": "/nonexistent", "PATH": os.environ["PATH"]}
    assert inside(bare, where, env=homeless) == f"{bare}/.snakemake/home"
    asked = len(index.asked)
    again = run_program(["make", "setup"], cwd=bare, env=surroundings(""))
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "") and len(index.asked) == asked


@pytest.mark.parametrize(
    "builds, cpu_builds, gpu, found",
    [(["cuda"], ["cpu"], False, "cpu"), (["cuda"], [], False, "13.0"), (["cpu", "cuda"], [], True, "13.0")],
    ids=["torch's own index", "no CPU build", "a GPU"],
)
def test_torch_is_the_build_that_the_machine_needs(bare, index, tmp_path, builds, cpu_builds, gpu, found):
    name = "-".join(builds)
    cpu_index = index.fill("torch-cpu", *cpu_builds) if cpu_builds else "http://127.0.0.1:9"
    lists = tmp_path / "nvidia-smi"  # stands in for the program that lists GPUs; no driver is needed here
    lists.write_text(f"#!/bin/sh\n{'echo GPU 0: H100' if gpu else 'exit 9'}\n")
    lists.chmod(0o755)
    code, text = install(
        bare, index.fill(name, *builds), cpu_index=cpu_index, PATH=f"{tmp_path}:{without_uv()}"
    )
    assert code == 0 and build(bare) == found, text
    assert ("has a CPU build: the CUDA build comes instead" in text) == (found != "cpu" and not gpu)
    assert json.loads((bare / ".venv/.installed").read_text())["torch"] == ("cuda" if gpu else "cpu")


def test_another_build_is_installed_only_when_told(bare, index):
    url = index.fill("both", "cpu", "cuda")
    assert install(bare, url, "--torch", "cuda")[0] == 0 and build(bare) == "13.0"
    assert install(bare, url) == (0, "") and build(bare) == "13.0"
    assert install(bare, url, "--torch", "cpu")[0] == 0 and build(bare) == "cpu"
    code, text = install(bare, url, "--torch", "gpu")
    assert code == 2 and text == "error: TORCH=gpu: expected auto, cpu or cuda\n"


def test_what_is_not_whole_or_does_not_start_is_made_anew(bare, index):
    url = index.fill("both", "cpu", "cuda")
    (bare / ".venv/lib/python3.11/site-packages/torch").mkdir(parents=True)  # as a kill leaves it
    assert install(bare, url)[0] == 0 and build(bare) == "cpu"
    moved = bare.rename(bare.with_name("moved"))
    assert install(moved, url)[0] == 0 and inside(moved, "import sys; print(sys.prefix)") == f"{moved}/.venv"
    (moved / "envs/cpu.txt").write_text("# again\neverything==1.0\n")
    with (moved / "envs/starts.py").open("a") as stream:
        stream.write("STARTS['cpu']['the server'] = Start('import absent')\n")
    code, text = install(moved, url)
    fault = "the server does not start: ModuleNotFoundError: No module named 'absent'"
    assert code == 2 and text.splitlines()[-1] == f"error: .venv does not work: {fault}", text
    assert not (moved / ".venv").exists()


def test_an_index_that_does_not_answer_is_named_in_one_line(bare):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and stays silent
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        for address, fault in {url: "", "http://127.0.0.1:9/simple": "Connection refused"}.items():
            code, text = install(bare, address.replace("//", "//me:secret@"))
            line = text.splitlines()[-1]
            assert line.startswith(f"error: the package index {address} does not answer: ") and fault in line
            assert code == 2 and len(text.splitlines()) == 2 and not (bare / ".venv").exists()


def test_uv_is_fetched_once_and_the_users_own_is_taken(bare, index):
    url = index.fill("both", "cpu", "cuda")
    for path in (index.folder / "both").glob("uv-*"):
        shutil.copytree(path.parent, index.folder / "none", ignore=shutil.ignore_patterns("uv-*"))
    code, text = install(bare, f"{index.url}/none")
    assert code == 2 and text.splitlines()[-1].startswith(
        "error: the index gave no uv==0.13.9 (set UV=/path/to/uv): "
    )
    assert install(bare, f"{index.url}/none", UV=str(UV))[0] == 0 and not (bare / ".venv-uv/bin/uv").exists()
    assert install(bare, url, "--torch", "cuda")[0] == 0 and (bare / ".venv-uv/bin/uv").exists()
    assert install(bare, f"{index.url}/none", "--torch", "cpu")[0] == 0
    code, text = install(bare, url, "--torch", "cuda", UV="/nonexistent/uv")
    assert code == 2 and text.splitlines()[-1].startswith("error: UV=/nonexistent/uv does not start: ")


def test_other_bytes_than_were_pinned_are_refused(bare, index):
    url = index.fill("both", "cpu", "cuda")
    (bare / "envs/cpu.txt").write_text(f"everything==1.0 --hash=sha256:{0:064}\n")
    code, text = install(bare, url)
    line = text.splitlines()[-1]
    assert code == 2 and "everything" in line and "hash" in line.lower(), text
    assert not (bare / ".venv").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("room", [8, 60], ids=["no room for uv", "no room for packages"])
def test_a_full_disk_leaves_nothing_and_heals(bare, index, room):
    url = index.fill("large", "cpu", "cuda")
    large = {f"{module}.py": "" for module in MODULES} | {"everything.py": "#" * (40 << 20)}
    wheel(index.folder / "large", "everything", "1.0", large)
    disk = bare.with_name("disk")
    shutil.rmtree(bare / ".venv-uv")
    bare.rename(disk)
    subprocess.run(["cp", "-r", str(disk), f"{disk}.kept"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}m", "none", str(disk)], check=True)
    try:
        subprocess.run(["cp", "-r", f"{disk}.kept/.", str(disk)], check=True)
        # without torch no disk space is required up front, and the disk fills while packages are written
        words = [sys._base_executable, "envs/install.py", ".venv", "envs/cpu.txt"]
        run = functools.partial(
            subprocess.run, words, cwd=disk, env=surroundings(url), capture_output=True, text=True
        )
        full = run()
        assert full.returncode == 2 and "No space left on device" in full.stderr, full.stderr
        assert full.stderr.splitlines()[-1].startswith("error: ") and "Traceback" not in full.stderr
        assert not (disk / ".venv").exists()
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        assert run().returncode == 0 and (disk / ".venv/.installed").is_file()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_the_second_of_two_says_who_is_at_work_and_does_nothing(bare, index):
    url = index.fill("both", "cpu", "cuda")
    command = [sys._base_executable, "envs/install.py", ".venv", "--torch", "auto", "envs/cpu.txt"]
    run = functools.partial(
        subprocess.Popen,
        command,
        cwd=bare,
        env=surroundings(url),
        stdout=subprocess.PIPE,
        stderr=-2,
        text=True,
    )
    index.held.clear()
    first = run()
    asked = len(index.asked)
    until(lambda: len(index.asked) > asked)
    second = run()
    line = second.stdout.readline()
    assert line.startswith(f"waiting: process {first.pid} of ") and "installs .venv" in line, line
    index.held.set()
    assert first.wait(120) == 0 and second.wait(120) == 0 and second.stdout.read() == ""
    first.stdout.close()
    second.stdout.close()


@pytest.mark.parametrize(
    "program, words",
    [
        ("python3", ["no python3 found: expected Python 3.11", "PYTHON=/path/to/python3.11"]),
        ("bwrap", ["bubblewrap does not work here: bwrap: no user namespaces", "backend: docker"]),
    ],
)
def test_what_the_machine_lacks_is_said_before_anything_is_fetched(bare, index, tmp_path, program, words):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "make", "sed", "id", "cat", "tr", "git", "patch"):
        (tools / name).symlink_to(shutil.which(name))
    if program == "bwrap":
        (tools / "python3.11").symlink_to(sys._base_executable)
        (tools / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no user namespaces' >&2; exit 1\n")
        (tools / "bwrap").chmod(0o755)
    asked = len(index.asked)
    made = run_program([tools / "make", "setup"], cwd=bare, env=surroundings(index.url, PATH=str(tools)))
    assert made.returncode == 2 and all(word in made.stderr for word in words), made.stderr
    assert len(index.asked) == asked and not (bare / ".venv").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_snakemake_starts_where_the_home_folder_cannot_be_written(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(tmp_path)], check=True)
    try:
        kept = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
        code = "from snakemake.cli import main; main(['-n', 'results/repos/drill.tar'])"
        done = run_program(
            [sys.executable, "-c", f"import swelab_home\n{code}"],
            env=kept | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "envs")},
        )
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
