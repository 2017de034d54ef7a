"""A pull that is killed halfway, and a pull without the program that it needs."""

import hashlib
import json
import os
import random
import signal
import stat
import subprocess
import sys

import pytest

from swelab.images.errors import EngineFailed, ImageUnknown, ProgramMissing
from swelab.images.image_names import parse_image_name
from swelab.images.pull import ApptainerPuller, file_record
from swelab.images.registry import Registry
from swelab.records import write_json
from tests.conftest import ROOT
from tests.contract.attacks import until
from tests.contract.image_files import folder_layer, programs_layer
from tests.contract.registry import entry, faulty_proxy, files, has_registry, layer, running_registry
from tests.contract.test_history import CLEAN, commit, git
from tests.contract.test_images_tasks import row

pytestmark = [
    pytest.mark.alone,
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.skipif(not has_registry(), reason="Debian's docker-registry is not installed"),
]


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A registry with `lab/big`, whose last layer is slow."""
    tree = tmp_path_factory.mktemp("tree")
    git(tree, "init", "-q")
    commit(tree, pkg__calc=CLEAN, test_calc="def test_add(): pass\n")
    with running_registry(tmp_path_factory.mktemp("registry")) as opened:
        noise = layer((entry("usr/noise"), random.Random(3).randbytes(4 << 20)))
        opened.noise = hashlib.sha256(noise).hexdigest()
        opened.image("lab/big", [programs_layer(), folder_layer(tree, "testbed"), noise])
        yield opened


def test_a_killed_pull_is_resumed_by_the_same_command(registry, tmp_path):
    slow = [True]

    def stall(answer):
        if slow[0] and "/blobs/" in answer.path and len(fetched(proxy)) == 3:
            answer.relay_slowly()
            return True
        return False

    with faulty_proxy(registry.host, stall) as proxy:
        write_json(tmp_path / "tasks.json", [row(f"{proxy.host}/lab/big")])
        command = [sys.executable, "-m", "scripts.pull_images", "--tasks", tmp_path / "tasks.json"]
        command += ["--store", tmp_path / "images", "--progress", tmp_path / "p.jsonl"]
        command += ["--output", tmp_path / "images/s.json"]
        first = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        blobs, part = tmp_path / "images/blobs", tmp_path / "images/blobs" / registry.noise
        assert until(lambda: part.exists() and part.stat().st_size > 1 << 20) and first.poll() is None
        first.send_signal(signal.SIGKILL)
        first.wait()
        slow[0] = False
        assert not (tmp_path / "images/s.json").exists()
        before = len(proxy.requests)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        later = proxy.requests[before:]
    assert [headers["Range"] for _, headers in later if "Range" in headers]
    # the rest of that layer, then the config
    assert len([path for path, _ in later if "/blobs/" in path]) == 2
    record = json.loads((tmp_path / "images/s.json").read_text())
    assert record["counts"] == {"kept": 0, "leaking": 0, "named": 1, "pulled": 1}
    assert not list(blobs.iterdir())


def fetched(proxy):
    return [path for path, _ in proxy.requests if "/blobs/" in path]


def stand_in(folder, body):
    """Writes a stand-in for the program apptainer."""
    program = folder / "apptainer"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_an_apptainer_file_is_made_by_its_program(registry, tmp_path, monkeypatch):
    digest = registry.image("lab/small", [files(a="1")])
    name = parse_image_name(f"{registry.host}/lab/small")
    sifs = ApptainerPuller(tmp_path, Registry())
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(ProgramMissing, match=f"apptainer pull --arch amd64 .*docker://{name.base}@{digest}"):
        sifs.pull(name, name)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    stand_in(tmp_path, "echo no such thing >&2; exit 255")
    with pytest.raises(EngineFailed, match="apptainer: no such thing"):
        sifs.pull(name, name)
    stand_in(tmp_path, 'echo "$@" > "$4"')
    record = sifs.pull(name, name)
    made = tmp_path / record["folder"]
    assert record["digest"] == digest and made.name == f"{digest[7:]}.sif"
    assert made.read_text().split()[:3] == ["pull", "--arch", "amd64"]
    stand_in(tmp_path, "exit 1")
    assert sifs.pull(name, name) == record  # there already


def test_an_apptainer_file_that_a_row_names(tmp_path):
    with pytest.raises(ImageUnknown, match=r"no such file; make it with: apptainer pull .*x.sif"):
        file_record(str(tmp_path / "x.sif"))
    (tmp_path / "x.sif").write_bytes(b"sif")
    assert file_record(str(tmp_path / "x.sif"))["folder"] == str(tmp_path / "x.sif")
