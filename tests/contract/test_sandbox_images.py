"""Sandboxes that start from an image: its repository, its variables, its files."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from swelab.sandbox import SCRIPTS, ImageMissing, Limits, SandboxError, open_backend
from swelab.sandbox.requirements import tool
from tests.contract.attacks import SHORT, text, until

pytestmark = pytest.mark.real
ENV = {"PATH": "/opt/own/bin:/opt/toolbox/bin:/usr/bin:/bin", "GREETING": "good day", "HOME": "/root"}
# bash cannot export these
ENV |= {"my-var": "1", "foo.bar": "1", "UID": "0"}
FILL = r"""
mkdir -p /testbed/sub /opt/own/bin /elsewhere /var/closed
echo one > /testbed/sub/f; ln -s f /testbed/sub/l; chmod 600 /testbed/sub/f
printf '#!/bin/sh\necho mine\n' > /opt/own/bin/mine; chmod 755 /opt/own/bin/mine
echo two > /elsewhere/g; ln -s /elsewhere /link; chmod 700 /var/closed
"""


@pytest.fixture(scope="module", params=["folder", "docker", pytest.param("remote", marks=pytest.mark.full)])
def own_image(request, image, backend, tmp_path_factory):
    """(backend, an image with its own repository and variables, made from the sandbox image)."""
    if request.param == "folder":
        folder = tmp_path_factory.mktemp("images") / "root"
        subprocess.run(["cp", "-a", image.folder, folder], check=True)
        subprocess.run([tool("chroot"), folder, "sh", "-c", FILL], check=True)
        config = {"config": {"Env": [f"{name}={value}" for name, value in ENV.items()]}}
        folder.with_name("root.json").write_text(json.dumps(config))
        yield backend, replace(image, folder=folder, name="own", digest="sha256:" + "1" * 64)
        return
    engine = request.getfixturevalue("engine")
    docker = open_backend("docker")
    docker._images.prepare(docker.engine, _loaded(docker))
    engine.docker(
        "run", "--name", f"filling-{request.param}", "--network=none", image.digest, "sh", "-c", FILL
    )
    changes = [f"--change=ENV {name}={json.dumps(value)}" for name, value in ENV.items()]
    made = engine.docker("commit", *changes, f"filling-{request.param}")
    engine.docker("rm", f"filling-{request.param}")
    if request.param == "remote":
        request.getfixturevalue("pool")
        yield open_backend("remote"), replace(image, name="own", digest=made)
        return
    yield docker, replace(image, name="own", digest=made)


def _loaded(docker):
    from swelab.sandbox import sandbox_image

    return sandbox_image.load_image(docker.engine)


def test_the_images_own_repository_is_copied_and_ours(own_image):
    backend, image = own_image
    for _ in range(2):
        with backend.start(None, image=image, limits=SHORT) as box:
            assert text(box.exec("cat sub/f sub/l; stat -c '%a %U' sub/f sub; readlink sub/l")) == (
                "one\none\n600 agent\n755 agent\nf\n"
            )
            assert text(box.exec("echo more >> sub/f && cat sub/f")) == "one\nmore\n"


def test_a_tree_takes_the_place_of_the_repository(own_image, tree):
    backend, image = own_image
    with backend.start(tree, image=image, limits=SHORT) as box:
        assert text(box.exec("ls")) == "a.txt\n"


def test_variables_of_the_image_hold_but_not_its_home(own_image):
    backend, image = own_image
    with backend.start(None, image=image, limits=SHORT) as box:
        assert text(box.exec("echo $GREETING; mine; echo $HOME; echo $PATH; cd; pwd")) == (
            f"good day\nmine\n/home/agent\n{ENV['PATH']}\n/home/agent\n"
        )
        assert text(box.exec("echo $GREETING", env={"GREETING": "hello"})) == "hello\n"


def test_files_of_the_image_are_readable_only(own_image):
    backend, image = own_image
    with backend.start(None, image=image, limits=SHORT) as box:
        shown = text(
            box.exec("cat /elsewhere/g; touch /elsewhere/x; ls /var/closed; id -un; git config user.name")
        )
    lines = shown.splitlines()
    assert lines[0] == "two" and lines[-2:] == ["agent", "agent"]
    assert "Read-only file system" in shown and "Permission denied" in shown


def test_another_workdir_and_none(own_image):
    backend, image = own_image
    with backend.start(None, image=replace(image, workdir="/link"), limits=SHORT) as box:
        assert text(box.exec("pwd; ls")) == "/testbed\ng\n"
    with pytest.raises(ImageMissing, match="no folder|no such folder"):
        backend.start(None, image=replace(image, workdir="/nowhere"), limits=Limits())


def test_folders_that_scripts_expect_are_there_if_asked_for(own_image):
    backend, image = own_image
    if backend.name == "remote":
        pytest.skip("refused before a sandbox starts")
    write = "mkdir -p $(readlink /logs)/verifier && echo 1 >/logs/verifier/reward.txt"
    with backend.start(None, image=replace(image, for_scripts=True), limits=SHORT) as box:
        box.put(f"{SCRIPTS}/tests/a", b"put\n")
        assert text(box.exec(f"cat /tests/a; {write}")) == "put\n"
        assert box.get(f"{SCRIPTS}/logs/verifier/reward.txt") == b"1\n"
    with backend.start(None, image=image, limits=SHORT) as box:
        assert text(box.exec("ls -d /tests /solution /logs 2>/dev/null")) == ""


def test_folders_that_are_no_images(backend, tree, image, tmp_path):
    for folder in (None, tmp_path / "nothing", tmp_path):
        with pytest.raises(ImageMissing, match="is not unpacked"):
            backend.start(tree, image=replace(image, folder=folder))


def test_links_of_an_image_lead_nowhere(backend, tree, image, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "f").write_text("of the host")
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", image.folder, root], check=True)
    for name in ("passwd", "hosts", "gitconfig"):
        (root / "etc" / name).unlink(missing_ok=True)
        (root / "etc" / name).symlink_to(secret / "f")
    (root / "srv").rmdir()
    (root / "srv").symlink_to(secret)
    (root / "testbed").rmdir()
    (root / "testbed").symlink_to(secret)
    hostile = replace(image, folder=root, digest="sha256:" + "2" * 64)
    with pytest.raises(ImageMissing):
        backend.start(None, image=hostile)
    with backend.start(tree, image=hostile, limits=SHORT) as box:
        shown = text(box.exec("cat /srv/f /etc/passwd /etc/hosts /etc/gitconfig"))
    assert "of the host" not in shown and "agent:x:" in shown
    assert (secret / "f").read_text() == "of the host"


def test_an_image_without_the_needed_programs_is_refused_in_one_line(engine, image, tree):
    docker = open_backend("docker")
    _loaded(docker)
    engine.docker("run", "--name", "poor", "--network=none", image.digest, "rm", "/usr/bin/setpriv")
    made = engine.docker("commit", "poor")
    engine.docker("rm", "poor")
    with pytest.raises(SandboxError, match="cannot hold a sandbox: the image has no program setpriv"):
        docker.start(tree, image=replace(image, name="poor", digest=made))
    assert Path(image.folder).exists() and until(lambda: engine.containers() == [])


def test_packages_of_the_sandbox_image_are_compiled(engine, image, tree):
    docker = open_backend("docker")
    _loaded(docker)
    with docker.start(tree, image=image, limits=SHORT) as box:
        said = text(box.exec("python -v -c 'import pytest' 2>&1 | grep 'code object from.*site-packages'"))
    assert "_pytest/config" in said and not [line for line in said.splitlines() if ".pyc" not in line]
