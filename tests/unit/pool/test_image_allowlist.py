"""A caller may name images on the list, and no name that means another image in the engine."""

import contextlib

import pytest

from swelab.pool.image_allowlist import AllowedImages
from swelab.pool.request_schemas import CREATE, first_fault
from swelab.sandbox.docker_images import find_image
from swelab.sandbox.protocol import Image, ImageMissing

DIGEST = f"sha256:{'0' * 64}"


class Engine:
    """Counts the questions to it, and has one image."""

    address = "here"

    def __init__(self, told=None):
        self.asked_for, self.api = [], self
        self.told = told or {"Id": DIGEST, "RepoTags": ["swebench/good:latest"]}

    @contextlib.contextmanager
    def request(self, what):
        yield

    def inspect_image(self, name):
        self.asked_for.append(name)
        return self.told


@pytest.fixture
def allowed(tmp_path):
    (tmp_path / "images").write_text("swebench/*\n")
    return AllowedImages(tmp_path / "images")


@pytest.mark.parametrize(
    "name",
    [
        *("x/../../distribution/127.0.0.1:9/a/b", "swebench/../../version", "swebench/..", "swebench//x"),
        *("swebench/x/", "swebench/x?y=z", "swebench/x#y", "swebench/%2e%2e/x", "swebench/x\n", "", "/x"),
        *("swebench/x:a/b", "swebench/x@sha256:0", "swebench/.x", "swebench/x..y"),
    ],
)
def test_a_name_that_is_none_reaches_no_engine(allowed, name):
    engine = Engine()
    with pytest.raises(ImageMissing):
        allowed.find(engine, name, "", "/testbed")
    assert engine.asked_for == []
    assert first_fault(CREATE, {"image": name}) != ""
    with pytest.raises(ImageMissing):
        find_image(engine, Image(name, "sha256:" + "1" * 64))
    assert not any(".." in each or name in each for each in engine.asked_for if name)


def test_an_image_that_is_not_on_the_list_reaches_no_engine(allowed):
    engine = Engine()
    for name, digest in (
        ("other/image", ""),
        ("other/image:v1", DIGEST),
        (DIGEST, ""),
        ("a:1/swebench/x", ""),
    ):
        assert first_fault(CREATE, {"image": name}) == ""
        with pytest.raises(ImageMissing, match="not on this host's list"):
            allowed.find(engine, name, digest, "/testbed")
    assert engine.asked_for == []
    assert allowed.find(engine, "swebench/good", "", "/testbed").digest == DIGEST
    with pytest.raises(ImageMissing, match="not on this host's list"):  # the engine has it under another name
        allowed.find(Engine({"Id": DIGEST, "RepoTags": ["other/x:1"]}), "swebench/good", "", "/testbed")


@pytest.mark.parametrize(
    "line, name, tag",
    [
        ("docker.io/swebench/good:latest", "swebench/good", "swebench/good:latest"),
        ("docker.io/swebench/*", "docker.io/swebench/good", "swebench/good:latest"),
        ("swebench/good:latest", "docker.io/swebench/good:latest", "swebench/good:latest"),
        ("docker.io/library/python:3.11", "python:3.11", "python:3.11"),
    ],
)
def test_an_image_of_docker_hub_has_two_names(tmp_path, line, name, tag):
    (tmp_path / "images").write_text(f"{line}\n")
    allowed = AllowedImages(tmp_path / "images")
    assert allowed.find(Engine({"Id": DIGEST, "RepoTags": [tag]}), name, "", "/testbed").digest == DIGEST
    for other in ("ghcr.io/swebench/good", "localhost/swebench/good", "h:5000/python:3.11", DIGEST):
        with pytest.raises(ImageMissing, match="not on this host's list"):
            allowed.find(Engine({"Id": DIGEST, "RepoTags": [other]}), other, "", "/testbed")


@pytest.mark.parametrize("told", [[], {}, {"Id": 7}, "text"])
def test_an_engine_that_answers_something_else(allowed, told):
    engine = Engine()
    engine.told = told
    with pytest.raises(ImageMissing):
        allowed.find(engine, "swebench/good", "", "/testbed")


@pytest.mark.parametrize(
    "name",
    [
        *("swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest", "swelab-sandbox:latest", "python"),
        *("registry.example.org:5000/a/b__c:v1.2_3-4", f"ghcr.io/x/y@{DIGEST}", DIGEST, "localhost/x"),
    ],
)
def test_names_that_are_in_use(name):
    assert first_fault(CREATE, {"image": name}) == ""
