"""The sandbox image compared with the venv from which it would be made now."""

import pytest

from swelab.records import write_json
from swelab.sandbox import sandbox_image
from swelab.sandbox.sandbox_image import PACKAGES


@pytest.fixture
def made(tmp_path, monkeypatch):
    """An image with a toolbox, and its venv. Both are folders that contain only a pytest."""
    for venv in ("image/root/opt/toolbox", "venv"):
        (tmp_path / venv / "lib/python3.11/site-packages/pytest-9.2.0.dist-info").mkdir(parents=True)
    (tmp_path / "venv/lib/python3.11/site-packages/pip-26.0.dist-info").mkdir()
    packages = dict.fromkeys((*PACKAGES, "libc6:amd64"), "1")
    record = {"name": "n", "digest": "sha256:1", "folder": "root", "bytes": 1, "packages": packages}
    write_json(tmp_path / "image/image.json", record)
    monkeypatch.setenv("SWELAB_SANDBOX_IMAGE", str(tmp_path / "image/image.json"))
    monkeypatch.setenv("SWELAB_TOOLBOX", str(tmp_path / "venv"))
    sandbox_image._tell_difference.cache_clear()
    return tmp_path


def test_an_image_of_the_same_packages_is_used_in_silence(made, capsys):
    assert sandbox_image.recorded_image().digest == "sha256:1"
    assert capsys.readouterr().err == ""


def test_an_image_of_other_packages_is_used_and_said_once(made, capsys):
    packages = made / "venv/lib/python3.11/site-packages"
    (packages / "pytest-9.2.0.dist-info").rename(packages / "pytest-9.3.0.dist-info")
    assert sandbox_image.recorded_image() == sandbox_image.recorded_image()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"warning: {made}/image/image.json: the sandbox image was made from other packages"
    )
    assert "it has pytest-9.2.0 and it lacks pytest-9.3.0; it is used as it is" in line
    assert line.endswith(f"delete {made}/image and run the rule build_sandbox_image")


def test_debian_packages_that_the_image_lacks_are_named(made):
    told = sandbox_image.difference(made / "image/root", frozenset({"git", "patch"}), made / "venv")
    assert told == "it lacks procps, python3"


def test_a_host_without_the_toolbox_compares_nothing(made):
    root = made / "image/root"
    assert sandbox_image.difference(root, frozenset(PACKAGES), made / "none") == ""
