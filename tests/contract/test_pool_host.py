"""An operator's work with a pool's hosts: pulling images, checking a server, changing nodes."""

import os
import shutil
from contextlib import closing

import pytest

from swelab.images.image_names import parse_image_name
from swelab.images.pull import open_puller
from swelab.images.registry import Registry, Transport
from tests.conftest import ROOT, run_program, run_python
from tests.contract import pool_servers
from tests.contract.registry import files, has_registry, running_registry

pytestmark = [pytest.mark.real, pytest.mark.full]


@pytest.fixture(scope="module")
def node(engine, tmp_path_factory):
    opened = pool_servers.exec_server(engine, tmp_path_factory.mktemp("host"))
    yield opened
    opened.stop()


def host(folder, *words, engine=None):
    told = {"DOCKER_HOST": engine.address} if engine else {}
    return run_program(
        [ROOT / "hosts/host.sh", *words], env={**os.environ, "SWELAB_SETTINGS": str(folder), **told}
    )


@pytest.fixture
def registry(tmp_path):
    if not has_registry():
        pytest.skip("Debian's docker-registry is not installed")
    (tmp_path / "registry").mkdir()
    with running_registry(tmp_path / "registry") as opened:
        opened.digest = opened.image("lab/calc", [files(testbed__a="one\n")])
        yield opened


def test_images_are_pulled_once_and_allowed(engine, node, registry, tmp_path):
    names = [f"{registry.host}/lab/calc:latest", f"{registry.host}/lab/absent:latest"]
    (tmp_path / "list").write_text(f"# what is needed\n{names[0]}\n\n{names[1]}  # nobody has it\n")
    done = host(tmp_path, "pull", tmp_path / "list", engine=engine)
    assert done.returncode == 1 and done.stdout == "1 pulled, 0 were there, 1 could not be had\n", done.stderr
    assert f"not pulled: {names[1]}" in done.stderr
    (tmp_path / "list").write_text(names[0])
    done = host(tmp_path, "pull", tmp_path / "list", engine=engine)
    assert (done.returncode, done.stdout) == (0, "0 pulled, 1 were there, 0 could not be had\n")
    assert (tmp_path / "images").read_text() == names[0] + "\n"
    assert names[0] in node.ask("/images")["images"]
    (tmp_path / "list").write_text("--privileged\n")
    done = host(tmp_path, "pull", tmp_path / "list", engine=engine)
    assert done.returncode == 2 and "is no name of an image" in done.stderr


def test_where_sandboxes_are_elsewhere_an_image_is_only_named(registry, tmp_path):
    name = parse_image_name(f"{registry.host}/lab/calc")
    with closing(Transport(patience=5)) as transport:
        puller = open_puller("remote", tmp_path, Registry(transport), "amd64")
        record = puller.pull(name, name, lambda count: None)
    assert (record["digest"], record["folder"], record["workdir"]) == (registry.digest, "", "/testbed")
    assert [path.name for path in tmp_path.iterdir()] == ["registry"]


def test_a_server_is_looked_at(node, tmp_path):
    shutil.copy(node.token_file, tmp_path / "node.token")
    done = host(tmp_path, "verify", node.url)
    assert done.returncode == 0 and done.stdout.startswith('healthz {"ok": true'), done.stderr
    assert "images {" in done.stdout and node.token not in done.stdout
    pool_servers.write_token(tmp_path / "node.token")
    done = host(tmp_path, "verify", node.url)
    assert done.returncode == 2 and "healthz is not well" in done.stderr
    done = host(tmp_path, "verify", "http://127.0.0.1:1")
    assert done.returncode == 2 and "does not answer" in done.stderr
    assert host(tmp_path, "destroy").returncode == 2


def test_the_nodes_by_hand(node, tmp_path):
    pool = pool_servers.pool_server([node], tmp_path / "pool")
    try:

        def act(*words, token=node.token_file):
            return run_python("-m", "scripts.pool", *words, "--pool", pool.url, "--token", token)

        done = act("status", token=pool.token_file)
        assert done.returncode == 0 and f"url={node.url}" in done.stdout and "total_leases=0" in done.stdout
        assert act("drain", node.url).stdout == f"drain: {node.url}\n"
        assert "draining=True" in act("status", token=pool.token_file).stdout
        assert act("leave", node.url).stdout == f"leave: {node.url}\n"
        assert act("join", node.url).stdout == f"join: {node.url}\n"
        wrong = [
            (act("join", node.url, token=pool.token_file), "this needs the token of a keeper"),
            (act("join", "http://127.0.0.1:1"), "cannot be reached"),
            (act("join"), "the arguments do not fit together"),
            (act("leave", "http://127.0.0.1:1"), "there is no such node"),
        ]
        for done, words in wrong:
            assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, (
                done.stderr
            )
    finally:
        pool.stop()


def test_servers_that_cannot_start_say_so_in_one_line(engine, node, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    monkeypatch.delenv("SWELAB_POOL_TOKEN_FILE", raising=False)
    token = str(node.token_file)
    port = node.url.rpartition(":")[2]
    two = ["--token", pool_servers.write_token(tmp_path / "own"), "--node-token", token]
    (tmp_path / "open").write_text("x" * 40)
    (tmp_path / "state").write_text("no database" * 100)
    tries = [
        (["exec_server"], "no token"),
        (["exec_server", "--token", tmp_path / "open"], "others can read the token"),
        (["exec_server", "--token", tmp_path / "none"], "cannot be read"),
        (["exec_server", "--token", token, "--images", tmp_path / "none"], "no such file"),
        (["exec_server", "--token", token, "--port", port], "cannot listen"),
        (["exec_server", "--token", token, "--port", 0, "--certificate", token], "certificate or key"),
        (["pool_server", "--token", token, "--node-token", tmp_path / "none"], "cannot be read"),
        (["pool_server", "--token", token, "--node-token", token], "clients have the nodes' token too"),
        (["pool_server", *two, "--state", tmp_path / "state"], "not a database"),
        (["pool_server", *two, "--state", tmp_path / "s", "--ttl", "0"], "more than 0, at most 86400"),
        (["exec_server", "--token", token, "--max-containers", 0], "more than 0, at most 10000"),
    ]
    for words, said in tries:
        done = run_python("-m", f"scripts.{words[0]}", *words[1:])
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    done = run_python("-m", "scripts.exec_server", "--token", token)
    assert done.returncode == 2 and "no container engine answers" in done.stderr
