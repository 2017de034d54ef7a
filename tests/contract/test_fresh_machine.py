"""The set-up and the chain on fresh machines: Debian 13, and Debian 12 without root."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="a minimal machine needs root"),
]
CACHE = Path(os.environ.get("SWELAB_CI_CACHE") or Path.home() / ".cache/swelab-ci")
CHAIN = ".venv/bin/python -m pytest -q tests/e2e/test_chain.py"
ARCHIVE = r"""
set -e
mkdir -p python/bin python/lib
cp /usr/bin/python3.11 python/bin/
ln -s python3.11 python/bin/python3
cp -r /usr/lib/python3.11 python/lib/
rm python/lib/python3.11/sitecustomize.py # a link to /etc
tar -czf python.tar.gz python
"""
READ_ONLY = r"""
from pathlib import Path
from swelab.sandbox import open_backend

write = "python -c 'import sys; print(sys.base_prefix); open(sys.base_prefix + \"/lib/new\", \"w\")'"
with open_backend().start(Path("docs")) as box:
    output = box.exec(write).output.decode()
assert "/.python/" in output and "Read-only file system" in output, output
"""


def machine(suite, *words):
    """Runs a command on a minimal machine. Returns (exit code, output)."""
    settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))]
    command = [ROOT / ".ci/root", suite, *settings, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


@pytest.fixture
def clone():
    """A clone of HEAD in the folder that the machines share with this one."""
    CACHE.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=CACHE, prefix="clone-"))
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, place / "main"], check=True)
    yield place / "main"
    shutil.rmtree(place)


@pytest.fixture
def downloads(clone):
    """Writes a list of one build of Python, as uv reads it: Debian 12's. Returns a function of its hash."""
    place = clone.parent
    code, text = machine("bookworm", "bash", "-c", f"cd {place} && {ARCHIVE}")
    assert code == 0, text
    archive = place / "python.tar.gz"
    build = {
        "name": "cpython",
        "arch": {"family": platform.machine(), "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": 3,
        "minor": 11,
        "patch": 2,
        "prerelease": "",
        "url": archive.as_uri(),
        "variant": None,
        "build": "1",
    }

    def listing(digest=None):
        build["sha256"] = digest or hashlib.sha256(archive.read_bytes()).hexdigest()
        path = place / "downloads.json"
        path.write_text(json.dumps({f"cpython-3.11.2-linux-{platform.machine()}-gnu": build}))
        return f"UV_PYTHON_DOWNLOADS_JSON_URL={path}"

    return listing


def test_debian_13_gets_python_311_of_uv(clone, downloads):
    code, text = machine(
        "trixie", "UV_PYTHON_INSTALL_MIRROR=http://127.0.0.1:9", "make", "-C", clone, "setup"
    )
    (line,) = (line for line in text.splitlines() if line.startswith("error: "))
    start = "error: no Python 3.11 here (/usr/bin/python3 is 3.13), and uv gets none (set PYTHON="
    assert code == 2 and line.startswith(start) and "127.0.0.1:9" in line, text
    assert not (clone / ".venv").exists()
    code, text = machine("trixie", downloads("0" * 64), "make", "-C", clone, "setup")
    assert code == 2 and "Hash mismatch" in text and not (clone / ".venv").exists()
    (clone / "read_only.py").write_text(READ_ONLY)
    steps = f"cd {clone} && make setup && PYTHONPATH=. .venv/bin/python read_only.py && {CHAIN} && make setup"
    code, text = machine("trixie", downloads(), "bash", "-ec", steps)
    assert code == 0, text
    assert (clone / ".python").is_dir() and "fetching Python 3.11 into " in text
    assert text.count("installed: .venv, ") == 1


def test_debian_12_without_root(clone):
    home = "/home/$name"  # written out, it would be a path of this machine, which is never published
    user = f"runuser -u $name -- env --unset=PIP_CACHE_DIR HOME={home}"
    steps = f"""
        name=researcher
        useradd --create-home $name && cp -r {clone} {home}/main && chown -R $name: {home}/main
        cd {home}/main
        ! {user} make setup
        apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap patch python3.11-venv
        {user} bash -ec 'make setup && {CHAIN}'
    """
    code, text = machine("bookworm", "bash", "-ec", steps)
    request = "ask the administrator to run: apt-get install python3.11-venv patch bubblewrap"
    assert code == 0 and request in text, text
