"""The variables that an image declares, as both backends read them."""

import subprocess
from types import SimpleNamespace

from swelab.records import write_json
from swelab.sandbox import docker_images
from swelab.sandbox.docker_images import EngineImages
from swelab.sandbox.image_root import declared_environment
from swelab.sandbox.protocol import Image

DECLARED = ["PATH=/bin", "my-var=1", "foo.bar=1", "UID=0", "SHELLOPTS=x", "1x=1", "EMPTY=", "A=b=c"]
USABLE = {"PATH": "/bin", "EMPTY": "", "A": "b=c"}


def test_variables_that_bash_cannot_export_are_left_out_of_an_unpacked_image(tmp_path):
    write_json(tmp_path / "root.json", {"config": {"Env": DECLARED}})
    assert declared_environment(tmp_path / "root") == USABLE
    pairs = [f"{name}={value}" for name, value in USABLE.items()]
    done = subprocess.run(["/bin/bash", "-c", 'export -- "$@"', "bash", *pairs], capture_output=True)
    assert done.returncode == 0 and done.stderr == b""


def test_variables_that_bash_cannot_export_are_left_out_of_an_engine_s_image(monkeypatch):
    described = {"Id": "id", "Config": {"Env": DECLARED}}
    monkeypatch.setattr(docker_images, "find_image", lambda *_: described)
    monkeypatch.setattr(docker_images, "_prepare", lambda *_: "prepared")
    monkeypatch.setattr(docker_images, "_hosts_of", lambda *_: "")
    image = Image("lab/calc", f"sha256:{7:064}", None, "/testbed")
    assert EngineImages().prepare(SimpleNamespace(), image).environment == USABLE
