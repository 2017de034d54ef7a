"""Two indexes with different files of one version: real uv with the variables that the set-up gives it."""

import hashlib
import os
import subprocess
import sys
import zipfile

import pytest

from tests.conftest import run_program
from tests.contract.test_install import UV
from tests.unit.test_pip_settings import pip_settings

WHOLE, POOR = "py3-none-manylinux_2_17_x86_64.manylinux_2_17_aarch64", "py3-none-any"


def wheel(folder, tag):
    """Writes a wheel of `sound` 1.0 and an index that has it. Returns (hash, address of the index)."""
    place = folder / "simple/sound"
    place.mkdir(parents=True)
    path, facts = folder / f"sound-1.0-{tag}.whl", "sound-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sound.py", f"tag = '{tag}'\n")
        archive.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: sound\nVersion: 1.0\n")
        tags = "".join(f"Tag: py3-none-{name}\n" for name in tag.split("-")[2].split("."))
        archive.writestr(f"{facts}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n{tags}")
        archive.writestr(f"{facts}/RECORD", "")
    (place / "index.html").write_text(f'<a href="{path.as_uri()}">{path.name}</a>')
    return hashlib.sha256(path.read_bytes()).hexdigest(), (folder / "simple").as_uri()


@pytest.fixture
def install(tmp_path):
    """Installs the pinned package with pip's settings. Returns the completed process."""
    python = tmp_path / "venv/bin/python"
    subprocess.run([UV, "venv", "-q", "--python", sys._base_executable, tmp_path / "venv"], check=True)
    (tmp_path / "pins.txt").write_text("")

    def run(digest, **settings):
        (tmp_path / "pins.txt").write_text(f"sound==1.0 --hash=sha256:{digest}\n")
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        variables = pip_settings.surroundings(named, dict(os.environ)) | {"UV_NO_CACHE": "1"}
        command = [UV, "pip", "install", "-q", "--no-deps", "--python", python, "-r", tmp_path / "pins.txt"]
        return run_program(command, env=variables)

    run.tag = lambda: run_program([python, "-c", "import sound; print(sound.tag)"], check=True).stdout.strip()
    return run


def test_the_default_index_is_asked_first(install, tmp_path):
    (digest, whole), (_, poor) = wheel(tmp_path / "whole", WHOLE), wheel(tmp_path / "poor", POOR)
    done = install(digest, index_url=whole, extra_index_url=poor)
    assert done.returncode == 0 and install.tag() == WHOLE, done.stderr


def test_a_poorer_file_in_a_folder_of_wheels_is_passed_over(install, tmp_path):
    (digest, whole), _ = wheel(tmp_path / "whole", WHOLE), wheel(tmp_path / "poor", POOR)
    done = install(digest, index_url=whole, find_links=str(tmp_path / "poor"))
    assert done.returncode == 0 and install.tag() == WHOLE, done.stderr


def test_a_folder_of_wheels_replaces_a_poorer_file_of_the_index(install, tmp_path):
    (digest, _), (_, poor) = wheel(tmp_path / "whole", WHOLE), wheel(tmp_path / "poor", POOR)
    done = install(digest, index_url=poor, find_links=str(tmp_path / "whole"))
    assert done.returncode == 0 and install.tag() == WHOLE, done.stderr


@pytest.mark.parametrize("further", [False, True], ids=["alone", "before a whole one"])
def test_a_poorer_file_in_the_default_index_is_refused(install, tmp_path, further):
    (digest, whole), (_, poor) = wheel(tmp_path / "whole", WHOLE), wheel(tmp_path / "poor", POOR)
    done = install(digest, index_url=poor, **({"extra_index_url": whole} if further else {}))
    assert done.returncode == 1 and "Hash mismatch for `sound==1.0`" in done.stderr
    assert not list(tmp_path.glob("venv/lib/*/site-packages/sound*"))
