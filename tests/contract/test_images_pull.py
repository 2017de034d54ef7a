"""Images from a real registry through a faulty proxy, unpacked into a folder."""

import base64
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import stat
import threading
import time
from types import SimpleNamespace

import httpx
import pytest

from swelab.images import registry as client
from swelab.images.errors import (
    AccessRefused,
    EngineFailed,
    ImageBroken,
    ImageUnknown,
    NoRoom,
    ProgramMissing,
    RegistryDown,
    RegistryUnreachable,
)
from swelab.images.image_names import parse_image_name
from swelab.images.image_store import UNPACKED_RATIO, ImageStore
from swelab.images.pull import ApptainerPuller, file_record
from swelab.images.registry import Registry, Transport
from tests.contract.attacks import PATIENCE
from tests.contract.registry import INDEX, entry, faulty_proxy, files, has_registry, layer, running_registry

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not has_registry(), reason="Debian's docker-registry is not installed"),
]
NOISE = random.Random(7).randbytes(3 << 20)


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """The registry with one image of two layers, `lab/calc`."""
    with running_registry(tmp_path_factory.mktemp("registry")) as opened:
        opened.shared = layer((entry("usr/noise"), NOISE), (entry("etc/motd"), b"lower\n"))
        layers = [opened.shared, files(testbed__a="one\n", etc__motd="upper\n")]
        opened.digest, opened.bytes = opened.image("lab/calc", layers), sum(map(len, layers))
        yield opened


@pytest.fixture(autouse=True)
def slept(monkeypatch):
    """The waits of the client, in seconds. They take no real time."""
    waits = []
    clock = {"monotonic": lambda: sum(waits), "sleep": waits.append, "time": time.time}
    monkeypatch.setattr(client, "time", SimpleNamespace(**clock))
    return waits


def store(tmp_path, patience=10.0, rate_patience=10.0):
    return ImageStore(tmp_path / "images", Registry(Transport(patience, rate_patience)))


def pull(where, host, repository="lab/calc", tag="latest"):
    name = parse_image_name(f"{host}/{repository}:{tag}")
    return where.pull(name, name)


def nothing(answer):
    return False


def once(act, where="/blobs/"):
    """Returns a fault for the first request whose path contains `where`."""
    count = itertools.count()
    return lambda answer: where in answer.path and next(count) == 0 and (act(answer), True)[1]


def test_an_image_is_pulled_and_unpacked(registry, tmp_path):
    where = store(tmp_path)
    record = pull(where, registry.host)
    root = where.folder / record["folder"]
    assert record["digest"] == registry.digest and record["workdir"] == "/testbed"
    assert (root / "usr/noise").read_bytes() == NOISE
    assert (root / "etc/motd").read_text() == "upper\n"
    about = json.loads(root.with_name(root.name + ".json").read_text())
    assert (
        about["config"]["Env"] == ["PATH=/usr/bin:/bin", "COLOUR=blue"] and about["digest"] == registry.digest
    )
    assert not list((where.folder / "blobs").iterdir())


def test_shared_layers_lie_on_disk_once(registry, tmp_path):
    other = registry.image("lab/other", [registry.shared, files(testbed__b="two\n")])
    where = store(tmp_path)
    with faulty_proxy(registry.host, nothing) as proxy:
        first, second = pull(where, proxy.host), pull(where, proxy.host, "lab/other")
        fetched = [path for path, _ in proxy.requests if "/blobs/" in path]
    assert second["digest"] == other
    # two configs, two layers, and one more layer; the shared layer is not pulled again
    assert len(fetched) == 5
    noise = [os.stat(where.folder / record["folder"] / "usr/noise") for record in (first, second)]
    assert noise[0].st_ino == noise[1].st_ino and noise[0].st_nlink == 3


def test_what_is_there_is_not_pulled_again(registry, tmp_path):
    pull(store(tmp_path), registry.host)
    with faulty_proxy(registry.host, nothing) as proxy:
        pull(store(tmp_path), proxy.host)
        assert [path.split("/")[-2] for path, _ in proxy.requests] == ["manifests"]


def test_a_layer_that_is_cut_off_goes_on_where_it_stopped(registry, tmp_path):
    cut = once(lambda answer: answer.relay(cut_after=1 << 20), shared_layer(registry))
    with faulty_proxy(registry.host, cut) as proxy:
        record = pull(store(tmp_path), proxy.host)
        ranges = [headers.get("Range") for path, headers in proxy.requests if shared_layer(registry) in path]
    assert (tmp_path / "images" / record["folder"] / "usr/noise").read_bytes() == NOISE
    assert ranges[0] is None and 0 < int(ranges[1].removeprefix("bytes=").rstrip("-")) <= 1 << 20


def shared_layer(registry):
    return hashlib.sha256(registry.shared).hexdigest()


def test_a_killed_pull_starts_where_bytes_are_missing(registry, tmp_path):
    where = store(tmp_path)
    (where.folder / "blobs" / shared_layer(registry)).write_bytes(registry.shared[:2000])
    with faulty_proxy(registry.host, nothing) as proxy:
        pull(where, proxy.host)
        assert "bytes=2000-" in [headers.get("Range") for _, headers in proxy.requests]


def test_wrong_bytes_are_fetched_anew_and_refused_in_the_end(registry, tmp_path):
    bad = once(lambda answer: answer.relay(flip=True), shared_layer(registry))
    with faulty_proxy(registry.host, bad) as proxy:
        pull(store(tmp_path / "once"), proxy.host)
    always = lambda answer: shared_layer(registry) in answer.path and (answer.relay(flip=True), True)[1]  # noqa: E731
    with (
        faulty_proxy(registry.host, always) as proxy,
        pytest.raises(ImageBroken, match="bytes sent as layer"),
    ):
        pull(store(tmp_path / "always"), proxy.host)


def test_a_manifest_with_another_digest_is_refused(registry, tmp_path):
    flip = once(lambda answer: answer.relay(flip=True), "/manifests/")
    with faulty_proxy(registry.host, flip) as proxy, pytest.raises(ImageBroken, match="another digest"):
        name = parse_image_name(f"{proxy.host}/lab/calc@{registry.digest}")
        store(tmp_path).pull(name, name)


def test_a_rate_limit_is_waited_for_as_long_as_it_says(registry, tmp_path, slept):
    limit = once(lambda answer: answer.answer(429, {"Retry-After": "8"}))
    with faulty_proxy(registry.host, limit) as proxy:
        pull(store(tmp_path), proxy.host)
    assert 8 <= sum(slept) < 9


def test_a_registry_that_fails_for_a_while_is_asked_again(registry, tmp_path):
    shaky = once(lambda answer: answer.answer(500))
    with faulty_proxy(registry.host, shaky) as proxy:
        pull(store(tmp_path / "a"), proxy.host)
    dead = faulty_proxy(registry.host, lambda answer: (answer.answer(503), True)[1])
    with dead as proxy, pytest.raises(RegistryDown, match="answers 503"):
        pull(store(tmp_path / "b", patience=1.5), proxy.host)


def test_nobody_there_and_nothing_there(registry, tmp_path, dead_port):
    nobody = f"127.0.0.1:{dead_port}"
    with pytest.raises(RegistryDown, match="does not answer"):
        pull(store(tmp_path, patience=0.1), nobody)
    with pytest.raises(RegistryUnreachable, match=f"{nobody} does not answer"):
        pull(store(tmp_path), nobody)
    with pytest.raises(ImageUnknown, match="manifests/absent"):
        pull(store(tmp_path), registry.host, tag="absent")


def with_tokens(host, passwords):
    """Returns a proxy's fault: a registry that requires a token, and the service that issues it."""

    def act(answer):
        if answer.path.startswith("/token"):
            given = answer.headers.get("Authorization", "")
            if passwords and given != f"Basic {passwords}":
                answer.answer(401)
            else:
                answer.answer(200, body=b'{"token": "t0ken"}')
            return True
        if answer.headers.get("Authorization") == "Bearer t0ken":
            return False
        realm = f'Bearer realm="http://{answer.headers["Host"]}/token",service="s",scope="x"'
        answer.answer(401, {"WWW-Authenticate": realm})
        return True

    return act


def test_a_token_is_fetched_when_asked_for(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with faulty_proxy(registry.host, with_tokens(registry.host, "")) as proxy:
        pull(store(tmp_path / "open"), proxy.host)
        assert "/token?scope=repository%3Alab%2Fcalc%3Apull&service=s" in [path for path, _ in proxy.requests]
    account = base64.b64encode(b"me:secret").decode()
    with faulty_proxy(registry.host, with_tokens(registry.host, account)) as proxy:
        with pytest.raises(AccessRefused):
            pull(store(tmp_path / "none"), proxy.host)
        (tmp_path / "config.json").write_text(json.dumps({"auths": {proxy.host: {"auth": account}}}))
        pull(store(tmp_path / "known"), proxy.host)


def test_the_manifest_for_this_platform_is_taken(registry, tmp_path):
    answer = httpx.get(
        f"http://{registry.host}/v2/lab/calc/manifests/latest",
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
        timeout=PATIENCE,
    )
    mine = {
        "mediaType": answer.headers["Content-Type"],
        "digest": registry.digest,
        "size": len(answer.content),
    }
    offered = [{**mine, "platform": {"os": "linux", "architecture": "amd64"}}]
    registry.manifest("lab/calc", "many", {"schemaVersion": 2, "mediaType": INDEX, "manifests": offered})
    assert pull(store(tmp_path), registry.host, tag="many")["digest"] == registry.digest
    offered[0]["platform"] = {"os": "linux", "architecture": "s390x"}
    registry.manifest("lab/calc", "foreign", {"schemaVersion": 2, "mediaType": INDEX, "manifests": offered})
    with pytest.raises(ImageUnknown, match="there is one for linux/s390x"):
        pull(store(tmp_path), registry.host, tag="foreign")


def test_what_does_not_fit_is_refused_before_a_byte_is_fetched(registry, tmp_path, monkeypatch):
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real._replace(free=270 << 20))
    need = f"needs about {(1 + UNPACKED_RATIO) * registry.bytes / 1e6:.1f} MB"
    with faulty_proxy(registry.host, nothing) as proxy, pytest.raises(NoRoom, match=re.escape(need)):
        try:
            pull(store(tmp_path), proxy.host)
        finally:
            assert not [path for path, _ in proxy.requests if "/blobs/" in path]


def test_two_stores_on_one_folder_do_not_disturb_each_other(registry, tmp_path):
    with faulty_proxy(registry.host, nothing) as proxy:
        found = []
        pullers = [
            threading.Thread(target=lambda: found.append(pull(store(tmp_path), proxy.host))) for _ in range(4)
        ]
        for each in pullers:
            each.start()
        for each in pullers:
            each.join()
        fetched = [path for path, _ in proxy.requests if shared_layer(registry) in path]
    assert len(found) == 4 and found.count(found[0]) == 4 and len(fetched) == 1


def stand_in(folder, body):
    """Writes a stand-in for the program apptainer."""
    program = folder / "apptainer"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_an_apptainer_file_is_made_by_its_program(registry, tmp_path, monkeypatch):
    digest = registry.image("lab/small", [files(a="1")])
    name = parse_image_name(f"{registry.host}/lab/small")
    sifs = ApptainerPuller(tmp_path, Registry())
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(ProgramMissing, match=f"apptainer pull --arch amd64 .*docker://{name.base}@{digest}"):
        sifs.pull(name, name)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    stand_in(tmp_path, "echo no such thing >&2; exit 255")
    with pytest.raises(EngineFailed, match="apptainer: no such thing"):
        sifs.pull(name, name)
    stand_in(tmp_path, 'echo "$@" > "$4"')
    record = sifs.pull(name, name)
    made = tmp_path / record["folder"]
    assert record["digest"] == digest and made.name == f"{digest[7:]}.sif"
    assert made.read_text().split()[:3] == ["pull", "--arch", "amd64"]
    stand_in(tmp_path, "exit 1")
    assert sifs.pull(name, name) == record  # there already


def test_an_apptainer_file_that_a_row_names(tmp_path):
    with pytest.raises(ImageUnknown, match=r"no such file; make it with: apptainer pull .*x.sif"):
        file_record(str(tmp_path / "x.sif"))
    (tmp_path / "x.sif").write_bytes(b"sif")
    assert file_record(str(tmp_path / "x.sif"))["folder"] == str(tmp_path / "x.sif")
