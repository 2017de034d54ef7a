"""Install steps in roots of hostile images, on full disks, and in containers that do not end."""

import errno
import os
import time
from types import SimpleNamespace

import pytest
from requests.exceptions import ConnectionError, ReadTimeout

from swelab.images import install_layer
from swelab.images.errors import EngineFailed, ImageError, NoRoom
from swelab.images.image_store import ImageStore
from swelab.images.install_layer import install_in_image
from swelab.images.registry import Registry
from tests.unit.images.store_files import DIGEST, unpack_root


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "images", Registry())


def install(store, script="true"):
    return install_in_image(store, store.record(DIGEST), script)


@pytest.mark.parametrize(
    ("line", "kind"),
    [("cp: error writing 'x': No space left on device", NoRoom), ("cp: cannot stat 'x'", ImageError)],
)
def test_a_root_that_cannot_be_copied_is_one_line(store, tmp_path, monkeypatch, line, kind):
    unpack_root(store)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/cp"
    program.write_text(f'#!/bin/sh\necho "{line}" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(kind, match=f"install steps of image {DIGEST}") as error:
        install(store)
    assert type(error.value) is kind and "\n" not in str(error.value)


def test_a_disk_that_is_full_after_the_steps_is_one_line(store, monkeypatch):
    unpack_root(store)

    def link(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(install_layer, "_bwrap", lambda *_: (0, ""))
    monkeypatch.setattr(install_layer, "_link_same", link)
    with pytest.raises(NoRoom, match="became full"):
        install(store)


def test_a_link_of_the_image_leads_to_no_file_of_the_host(store, tmp_path, monkeypatch):
    root = unpack_root(store)
    host = tmp_path / "host"
    host.mkdir()
    for folder in (host, root / "etc"):
        (folder / "secret").write_text("host")
        os.utime(folder / "secret", ns=(1, 1))
    (root / "a").symlink_to(host)

    def steps(place, script, declared):
        (place / "a").unlink()
        (place / "a").mkdir()
        (place / "a/secret").write_text("same")
        os.utime(place / "a/secret", ns=(1, 1))
        return 0, ""

    monkeypatch.setattr(install_layer, "_bwrap", steps)
    after = store.folder / install(store).folder
    assert (after / "a/secret").read_text() == "same" and (host / "secret").stat().st_nlink == 1
    assert (after / "etc/secret").samefile(root / "etc/secret")


@pytest.mark.parametrize("target", ["absolute", "relative"])
def test_a_link_in_place_of_etc_leads_to_no_folder_of_the_host(store, tmp_path, monkeypatch, target):
    root = unpack_root(store)
    host = tmp_path / "host"
    host.mkdir()
    (root / "etc").rmdir()
    (root / "etc").symlink_to(host if target == "absolute" else "../" * 40 + str(host).lstrip("/"))
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(returncode=0, stdout=b"")

    monkeypatch.setattr(install_layer, "subprocess", SimpleNamespace(run=run, DEVNULL=0, PIPE=0, STDOUT=0))
    assert install_layer._bwrap(root, "true", {}) == (0, "")
    assert not list(host.iterdir()) and "--ro-bind" not in commands[0]
    inner = root / str(host).lstrip("/")  # the folder to which the link leads in the image
    inner.mkdir(parents=True)
    install_layer._bwrap(root, "true", {})
    assert not list(host.iterdir())
    assert commands[1][commands[1].index("/etc/hosts") + 1] == f"{host}/hosts" and (inner / "hosts").is_file()


def container(error, waits):
    """Returns an engine's API whose `wait` raises `error` after a while."""

    def wait(container, timeout):
        time.sleep(waits)
        raise error

    return SimpleNamespace(
        create_host_config=lambda **_: {},
        create_container=lambda *_, **__: "id",
        start=lambda _: None,
        wait=wait,
        logs=lambda _: b"last words",
        remove_container=lambda *_, **__: None,
    )


@pytest.mark.parametrize("error", [ReadTimeout("Read timed out."), ConnectionError("Read timed out.")])
def test_steps_in_a_container_that_take_too_long_are_a_reason(monkeypatch, error):
    monkeypatch.setattr(install_layer, "SECONDS", 0.05)
    api = container(error, 0.06)
    assert install_layer._run_in_container(api, "image", "true", "name:tag") == (124, "last words")


def test_an_engine_that_is_gone_during_the_steps_is_no_timeout(monkeypatch):
    api = container(ConnectionError("refused"), 0)
    api.inspect_image = lambda name: {"Id": "x"} if name == "x" else _missing(name)
    api.images = lambda all: [{"Id": DIGEST, "RepoDigests": []}]
    engine = SimpleNamespace(client=SimpleNamespace(api=api))
    image = SimpleNamespace(digest=DIGEST)
    with pytest.raises(EngineFailed, match="refused"):
        install_layer._in_engine(engine, image, "true", DIGEST)


def _missing(name):
    raise install_layer.ImageNotFound(name)
