"""Names of images and of their copies at mirrors."""

import pytest

from swelab.images.image_names import behind, is_file, parse_image_name
from swelab.records import InputError

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("swebench/sweb.eval.x86_64.a_1776_b-1:v2", "docker.io/swebench/sweb.eval.x86_64.a_1776_b-1:v2"),
        ("docker.io/swebench/x", "docker.io/swebench/x:latest"),
        ("docker://quay.io/a/b", "quay.io/a/b:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("127.0.0.1:5000/a/b:c", "127.0.0.1:5000/a/b:c"),
        (f"host.example/a@{DIGEST}", f"host.example/a@{DIGEST}"),
        (f"a/b:tag@{DIGEST}", f"docker.io/a/b@{DIGEST}"),
    ],
)
def test_names_are_read_as_docker_reads_them(text, full):
    assert str(parse_image_name(text)) == full


@pytest.mark.parametrize(
    "text", ["", "UPPER/x", "a//b", "a:b:c", "a@sha256:short", "../x", "a b", "-a", "a/b\n", "x:" + "t" * 129]
)
def test_what_is_no_name_is_one_line(text):
    with pytest.raises(InputError, match="is not the name of an image"):
        parse_image_name(text)


def test_a_mirror_takes_names_behind_its_prefix():
    assert str(behind(parse_image_name("a/b:c"), "mirror.example/")) == "mirror.example/a/b:c"
    assert (
        str(behind(parse_image_name("busybox"), "m.example:5000/hub"))
        == "m.example:5000/hub/library/busybox:latest"
    )
    assert (
        str(behind(parse_image_name(f"quay.io/a@{DIGEST}"), "m.example")) == f"m.example/quay.io/a@{DIGEST}"
    )
    assert behind(parse_image_name("a/b"), "") == parse_image_name("a/b")
    with pytest.raises(InputError, match="does not begin with a registry"):
        behind(parse_image_name("a/b"), "mirror/")


def test_apptainer_files_are_known_by_their_ending():
    assert is_file("images/django.sif") and not is_file("a/b:sif")
