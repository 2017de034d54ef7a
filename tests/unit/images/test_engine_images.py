"""Images of an engine that is not there: its answers are written by hand."""

from types import SimpleNamespace

import docker
import pytest
from docker.errors import APIError, ImageNotFound

from swelab.images.engine_images import EnginePuller
from swelab.images.errors import EngineFailed
from swelab.images.image_names import behind, parse_image_name

DIGEST = f"sha256:{7:064}"


class Registry:
    def resolve(self, source, architecture):
        return DIGEST, {"layers": []}


@pytest.fixture
def puller(monkeypatch):
    """A puller whose engine has the images in `puller.known`."""
    known = {}

    def inspect_image(name):
        if name not in known:
            raise ImageNotFound(f"no image {name}")
        if isinstance(known[name], Exception):
            raise known[name]
        return known[name]

    client = SimpleNamespace(
        info=lambda: {"DockerRootDir": "/nowhere"}, api=SimpleNamespace(inspect_image=inspect_image)
    )
    monkeypatch.setattr(docker, "from_env", lambda **_: client)
    opened = EnginePuller(Registry())
    opened.known = known
    return opened


def test_an_image_that_is_there_by_digest_needs_no_name_of_the_mirror(puller):
    name = parse_image_name(f"acme/x@{DIGEST}")
    puller.known[f"acme/x@{DIGEST}"] = {"Size": 5, "RepoDigests": [f"acme/x@{DIGEST}"]}
    record = puller.pull(name, behind(name, "mirror.example/"))
    assert record["digest"] == DIGEST and record["bytes"] == 5


def test_an_engine_that_fails_after_the_pull_is_one_line(puller, monkeypatch):
    name = parse_image_name("acme/x:1")
    monkeypatch.setattr(puller, "holds", lambda *_: True)
    with pytest.raises(EngineFailed, match="has no acme/x:1 after the pull"):
        puller.pull(name, name)
    puller.known["acme/x:1"] = APIError("the engine is ill")
    with pytest.raises(EngineFailed, match="acme/x:1: the engine is ill"):
        puller.pull(name, name)
