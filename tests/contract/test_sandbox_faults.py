"""Real faults of container engines: killed, full, without the image, left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from swelab.sandbox import (
    EngineDown,
    Image,
    ImageMissing,
    Limits,
    SandboxLost,
    container_owner,
    docker_container,
    open_backend,
    reap,
    sandbox_image,
)
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import EngineImages
from tests.conftest import ROOT, run_python
from tests.contract import engine as engines
from tests.contract.attacks import PATIENCE, SHORT, processes_with, program, text, token, until

pytestmark = [pytest.mark.real, pytest.mark.alone]


@pytest.fixture(scope="module")
def docker(engine):
    backend = open_backend("docker")
    sandbox_image.load_image(backend.engine)
    return backend


@pytest.mark.full
def test_an_engine_killed_and_restarted_is_down_and_then_works_again(engine, docker, tree):
    sleep, ended = token(), []
    box = docker.start(tree, limits=SHORT)

    def run():
        try:
            box.exec(f"sleep {sleep}", limits=Limits(wall_seconds=60))
        except SandboxLost as error:
            ended.append(error)

    runner = threading.Thread(target=run)
    runner.start()
    assert until(lambda: any(program(pid) == "sleep" for pid in processes_with(sleep)))
    try:
        engine.kill()
        runner.join(PATIENCE)
        assert [type(error) for error in ended] == [EngineDown], ended
        for act in (lambda: box.exec("true"), lambda: docker.start(tree)):
            with pytest.raises(EngineDown, match="does not answer|went away"):
                act()
        box.close()
    finally:
        engine.start()
    with docker.start(tree, limits=SHORT) as again:
        assert text(again.exec("cat a.txt")) == "hello\n"
    assert until(lambda: engine.containers() == [] and processes_with(sleep) == [])


def test_an_image_is_known_by_its_digest_alone(engine, docker, tree, image):
    wrong = "sha256:" + "0" * 64
    for missing in (Image(image.name, wrong), Image("nobody/nothing:v1", wrong), Image("!", "x")):
        with pytest.raises(ImageMissing, match="has no image"):
            docker.start(tree, image=missing)
    with docker.start(tree, image=Image("any/name:at-all", image.digest), limits=SHORT) as box:
        assert text(box.exec("cat a.txt")) == "hello\n"


@pytest.mark.full
def test_a_prepared_image_removed_meanwhile_is_made_again(engine, docker, tree, image):
    prepared = docker._images.prepare(docker.engine, image)
    engine.docker("rmi", "--force", prepared.id)
    with docker.start(tree, image=image, limits=SHORT) as box:
        assert text(box.exec("cat a.txt")) == "hello\n"


def test_no_record_of_a_sandbox_image(engine, docker, tree, monkeypatch, tmp_path):
    monkeypatch.setenv("SWELAB_SANDBOX_IMAGE", str(tmp_path / "image.json"))
    with pytest.raises(ImageMissing, match="rule build_sandbox_image"):
        docker.start(tree)


@pytest.mark.full
def test_a_sandbox_whose_disk_is_full_says_so(docker, tree, tmp_path):
    big = tmp_path / "big"
    big.mkdir()
    (big / "file").write_bytes(os.urandom(30 << 20))
    small = Limits(wall_seconds=20, disk_bytes=16 << 20)
    with pytest.raises(OSError, match="No space left on device") as caught:
        docker.start(big, limits=small)
    assert caught.value.errno == 28
    with docker.start(tree, limits=small) as box:
        with pytest.raises(OSError) as caught:
            box.put("new/file", b"x" * (30 << 20))
        assert caught.value.errno == 28
        assert box.exec("ls -A new").output == b"" and box.put("new/file", b"fits") is None


@pytest.mark.full
def test_an_engine_whose_disk_is_full_says_so(image_record, tree, monkeypatch):
    folder = Path(tempfile.mkdtemp(prefix="swelab-engine-"))  # a socket's path has at most 107 characters
    full = engines.TestEngine(folder)
    (folder / "data").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m", "none", folder / "data"], check=True)
    try:
        full.start()
        monkeypatch.setenv("DOCKER_HOST", full.address)
        monkeypatch.setenv("SWELAB_SANDBOX_IMAGE", str(image_record))
        with pytest.raises(OSError, match="no space left on device") as caught:
            open_backend("docker").start(tree)
        assert caught.value.errno == 28
    finally:
        engines.engine_end(full)


@pytest.mark.full
def test_the_wall_holds_when_the_container_does_not_answer(engine, docker, tree, monkeypatch):
    monkeypatch.setattr(docker_container, "_LATE_SECONDS", 1.0)
    with docker.start(tree, limits=SHORT) as box:
        init = int(engine.docker("inspect", "--format", "{{.State.Pid}}", box._lanes[0].id))
        os.kill(init, signal.SIGSTOP)
        started = time.monotonic()
        result = box.exec("sleep 60", limits=Limits(wall_seconds=0.5))
        assert (result.returncode, result.limit, result.timed_out) == (124, "wall", True)
        assert time.monotonic() - started < 10
        assert engine.containers() == []
        with pytest.raises(SandboxLost):
            box.exec("true")


OWNER = """
import sys, time
from pathlib import Path
from swelab.sandbox import open_backend
box = open_backend("docker").start(Path(sys.argv[1]))
print(box._lanes[0].id, flush=True)
time.sleep(600)
"""


@pytest.mark.full
def test_the_reaper_takes_what_has_lost_its_owner_and_nothing_else(engine, docker, tree, image):
    caller = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tree)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    orphan = caller.stdout.readline().strip()
    # The paused process cannot notice that its caller has ended.
    engine.docker("pause", orphan)
    name = docker._images.prepare(docker.engine, image).id
    foreign = engine.docker("run", "--detach", "--network=none", name, "sleep", "600")
    elsewhere = container_owner.labels()[container_owner.OWNER].replace(
        container_owner.this_process()["machine"] or "host", "another"
    )
    elsewhere = elsewhere.replace(container_owner.this_process()["boot"], "another-boot")
    run = ("run", "--detach", "--network=none")
    labelled = [
        engine.docker(*run, "--label", f"{container_owner.OWNER}={label}", name, "sleep", "99")
        for label in (elsewhere, "{not json")
    ]
    with docker.start(tree, limits=SHORT) as ours:
        kept = {foreign, *labelled, ours._lanes[0].id}
        assert reap.reap(DockerEngine()) == [] and set(engine.containers()) == kept | {orphan}
        caller.kill()
        caller.communicate()
        assert set(engine.containers()) == kept | {orphan}
        assert reap.reap(DockerEngine()) == [orphan]
        assert set(engine.containers()) == kept
        assert text(ours.exec("cat a.txt")) == "hello\n"
    for container in (foreign, *labelled):
        engine.docker("rm", "--force", container)
    assert engine.volumes() == []


@pytest.mark.full
def test_the_script_reaps_and_removes_prepared_images(engine, docker, tree, image):
    run_python("-m", "scripts.reap", "--images", env=os.environ)  # leftovers of other tests
    docker._images.forget(image)
    with docker.start(tree):
        done = run_python("-m", "scripts.reap", "--images", env=os.environ)
        assert done.stdout == "removed 0 containers\nremoved 0 prepared images\n", done.stderr
    done = run_python("-m", "scripts.reap", "--images", env=os.environ)
    assert done.stdout.startswith("removed 0 containers\nremoved ") and " 0 prep" not in done.stdout
    assert "swelab-prepared" not in engine.docker("images")
    with docker.start(tree) as box:
        assert text(box.exec("cat a.txt")) == "hello\n"
    assert sandbox_image.load_image(docker.engine).digest in engine.docker("images", "--no-trunc", "--quiet")


def test_what_an_engine_is_told_about_a_container(engine, docker, tree):
    with docker.start(tree, limits=SHORT) as box:
        told = docker.engine.api.inspect_container(box._lanes[0].id)
    host, config = told["HostConfig"], told["Config"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"]) == ("none", True, ["ALL"])
    assert "no-new-privileges" in host["SecurityOpt"] and host["AutoRemove"] and not host["Privileged"]
    assert host["PidsLimit"] == SHORT.processes + 4 and host["Binds"] is None
    assert host["Memory"] == SHORT.memory_bytes + SHORT.disk_bytes + SHORT.shm_bytes == host["MemorySwap"]
    assert {container_owner.OWNER, container_owner.RUN} <= config["Labels"].keys()
    mounts = {mount["Destination"]: (mount["Type"], mount["RW"]) for mount in told["Mounts"]}
    assert mounts.pop("/etc/hosts") == ("bind", False) and set(mounts.values()) == {("volume", True)}


def test_a_container_without_network_finds_itself_alone(docker, tree):
    listen = (
        "import socket; s = socket.create_server(('localhost', 0)); socket.create_connection(s.getsockname())"
    )
    outside = "import socket; socket.create_connection(('10.0.0.1', 80), 5)"
    with docker.start(tree, limits=SHORT) as box:
        told = docker.engine.api.inspect_container(box._lanes[0].id)
        assert told["Config"]["NetworkDisabled"] is True
        own = text(box.exec("readlink /proc/self/ns/net")).strip()
        assert own.startswith("net:[") and own != os.readlink("/proc/self/ns/net")
        assert text(box.exec("tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]
        assert text(box.exec("getent hosts sandbox; cat /etc/resolv.conf")).split()[0] == "127.0.0.1"
        assert box.exec(f'python -c "{listen}"').returncode == 0
        assert b"Network is unreachable" in box.exec(f'python -c "{outside}"').output
        assert box.exec("echo 10.0.0.1 elsewhere >>/etc/hosts").returncode == 1


@pytest.mark.parametrize("place", ["", "/no/such/layer/hosts"])
def test_an_engine_that_cannot_mount_the_file_of_names_gives_a_network_of_none(
    docker, tree, monkeypatch, place
):
    monkeypatch.setattr("swelab.sandbox.docker_images._hosts_of", lambda engine, prepared: place)
    monkeypatch.setattr(docker, "_images", EngineImages())
    with docker.start(tree, limits=SHORT) as box:
        told = docker.engine.api.inspect_container(box._lanes[0].id)
        assert not told["Config"].get("NetworkDisabled") and told["HostConfig"]["NetworkMode"] == "none"
        assert "localhost" in text(box.exec("cat /etc/hosts"))
