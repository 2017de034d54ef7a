"""The apptainer backend with a stand-in for the program: its command lines, and our code around it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from swelab.sandbox import BackendMissing, ImageMissing, SandboxLost, open_backend
from tests.conftest import ROOT
from tests.contract.attacks import SHORT, text

pytestmark = [pytest.mark.real, pytest.mark.full]


@pytest.fixture
def apptainer(tmp_path, monkeypatch, image_record):
    """The backend with the stand-in first in the path. `.log` contains the stand-in's command lines."""
    source = (ROOT / "tests/contract/apptainer_standin.py").read_text()
    standin = tmp_path / "bin" / "apptainer"
    standin.parent.mkdir()
    standin.write_text(source.replace("#!PYTHON", f"#!{sys.executable}", 1))
    standin.chmod(0o755)
    monkeypatch.setenv("PATH", f"{standin.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SWELAB_SANDBOX_IMAGE", str(image_record))
    backend = open_backend("apptainer")
    backend.log = standin.with_name("argv.jsonl")
    return backend


def lines(backend):
    return [json.loads(line) for line in backend.log.read_text().splitlines()]


def test_the_command_line(apptainer, tree, image):
    with apptainer.start(tree, image=image, limits=SHORT) as box:
        folder = box._scratch.path
        box.exec("echo hi")
    (argv,) = lines(apptainer)
    at = argv.index(str(image.folder))
    options, command = argv[:at], argv[at + 1 :]
    for flag in ("--containall", "--cleanenv", "--pid", "--ipc", "--net", "--no-eval"):
        assert flag in options
    assert options[options.index("--network") + 1] == "none" and "--writable" not in options
    binds = [options[i + 1] for i, word in enumerate(options) if word == "--bind"]
    assert binds[:3] == [
        f"{folder}/testbed:/testbed:rw",
        f"{folder}/tmp:/tmp:rw",
        f"{folder}/home:/home/agent:rw",
    ]
    assert all(bind.endswith(":ro") for bind in binds[3:])
    privileges = "--security=uid:" if os.geteuid() == 0 else "--userns"
    assert any(option.startswith(privileges) for option in options)
    assert command[:3] == ["/bin/bash", "--norc", "-c"] and command[5] == "echo hi"


def test_the_images_own_repository(apptainer, image, tmp_path):
    own = replace(image, folder=tmp_path / "root")
    subprocess.run(["cp", "-a", image.folder, own.folder], check=True)
    (own.folder / "testbed" / "f").write_text("own")
    with apptainer.start(None, image=own, limits=SHORT) as box:
        assert text(box.exec("cat f; echo more >> f; cat f")) == "ownownmore\n"
    assert (own.folder / "testbed" / "f").read_text() == "own"
    with pytest.raises(ImageMissing, match="no folder /none"):
        apptainer.start(None, image=replace(own, workdir="/none"))


def test_what_is_missing_is_said(apptainer, tree, image, monkeypatch, tmp_path):
    with pytest.raises(ImageMissing, match="is not at"):
        apptainer.start(tree, image=replace(image, folder=tmp_path / "x.sif"))
    broken = tmp_path / "broken.sif"
    broken.write_bytes(b"")
    with (
        apptainer.start(tree, image=replace(image, folder=broken)) as box,
        pytest.raises(SandboxLost) as caught,
    ):
        box.exec("true")
    assert "FATAL: could not open image" in str(caught.value)
    monkeypatch.setenv("PATH", str(Path(tmp_path / "empty")))
    with pytest.raises(BackendMissing, match="no program `apptainer`"):
        open_backend("apptainer")
