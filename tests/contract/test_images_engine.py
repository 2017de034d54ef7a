"""Images that are pulled into a real container engine through a faulty registry."""

import itertools
import shutil

import pytest

from swelab.images.engine_images import EnginePuller
from swelab.images.errors import EngineFailed, ImageUnknown, NoRoom
from swelab.images.image_names import behind, parse_image_name
from swelab.images.registry import Registry, Transport
from tests.contract.engine import engine_end, start_engine
from tests.contract.registry import faulty_proxy, files, has_registry, running_registry

pytestmark = [
    pytest.mark.full,
    pytest.mark.real,
    pytest.mark.skipif(not has_registry(), reason="Debian's docker-registry is not installed"),
]


@pytest.fixture(scope="module")
def dockerd():
    """An engine for this module only."""
    puller = start_engine()
    yield puller
    engine_end(puller)


@pytest.fixture
def puller(dockerd, monkeypatch):
    """Our puller for that engine."""
    monkeypatch.setenv("DOCKER_HOST", dockerd.address)
    return EnginePuller(Registry(Transport(patience=20, rate_patience=20)))


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A registry with `lab/calc`."""
    with running_registry(tmp_path_factory.mktemp("registry")) as opened:
        opened.digest = opened.image("lab/calc", [files(testbed__a="one\n")])
        yield opened


def test_an_image_is_pulled_by_digest_and_found_by_its_name(puller, registry, dockerd):
    name = parse_image_name(f"{registry.host}/lab/calc")
    assert not puller.holds(name, registry.digest)
    record = puller.pull(name, name)
    assert record == {
        "digest": registry.digest,
        "bytes": record["bytes"],
        "folder": "",
        "workdir": "/testbed",
    }
    assert puller.holds(name, registry.digest) and not puller.holds(name, "sha256:" + "0" * 64)
    assert (
        dockerd.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
        == f"{registry.host}/lab/calc:latest"
    )


def test_a_mirrors_image_gets_its_own_name_back(puller, registry, dockerd):
    digest = registry.image("mirror/swebench/calc", [files(testbed__a="mirrored\n")], tag="v1")
    name = parse_image_name("swebench/calc:v1")
    record = puller.pull(name, behind(name, f"{registry.host}/mirror/"))
    assert record["digest"] == digest and puller.holds(name, digest)
    assert "swebench/calc:v1" in dockerd.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()


def test_what_the_engine_has_costs_one_request(puller, registry):
    registry.image("lab/again", [files(testbed__a="again\n")])
    name = parse_image_name(f"{registry.host}/lab/again")
    puller.pull(name, name)
    with faulty_proxy(registry.host, lambda answer: False) as proxy:
        puller.pull(name, parse_image_name(f"{proxy.host}/lab/again"))
        assert len(proxy.requests) == 1


def test_a_quota_that_the_engine_meets_is_waited_for(puller, registry):
    registry.image("lab/limited", [files(testbed__a="limited\n")])
    words = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}'
    count = itertools.count()

    def limit(answer):
        engines = "docker" in answer.headers.get("User-Agent", "")
        if engines and "/manifests/" in answer.path and next(count) < 2:
            answer.answer(429, {"Content-Type": "application/json"}, words)
            return True
        return False

    with faulty_proxy(registry.host, limit) as proxy:
        name = parse_image_name(f"{proxy.host}/lab/limited")
        puller.pull(name, name)
    assert next(count) >= 2


def test_faults_are_typed(puller, registry, monkeypatch):
    with pytest.raises(ImageUnknown):
        puller.pull(
            parse_image_name(f"{registry.host}/lab/absent"), parse_image_name(f"{registry.host}/lab/absent")
        )
    registry.image("lab/big", [files(testbed__a="big\n")])
    real = shutil.disk_usage(puller.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real._replace(free=1 << 30))
    with pytest.raises(NoRoom, match="are free"):
        puller.pull(
            parse_image_name(f"{registry.host}/lab/big"), parse_image_name(f"{registry.host}/lab/big")
        )
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(EngineFailed, match="does not answer"):
        EnginePuller(Registry())
