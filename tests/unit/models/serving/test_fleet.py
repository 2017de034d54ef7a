"""How servers are kept running. The servers are reduced to the parts that their keeper sees."""

import contextlib
import threading
from pathlib import Path

import pytest

from swelab.cluster import slurm
from swelab.configs.kinds.policy import Job
from swelab.models import ServingError
from swelab.models.serving import fleet as fleets
from swelab.models.serving import server_watchdog
from swelab.models.serving.engine import Weights
from swelab.models.serving.fleet import Fleet, serve_fleet, starts
from swelab.models.serving.server import Endpoint
from swelab.models.serving.server_watchdog import Server
from swelab.records import InputError
from tests.contract.attacks import PATIENCE, until

SETTINGS = {"context_length": 256, "max_total_tokens": 1024, "max_running_requests": 4}


class Scripted:
    """A server that starts or fails according to one word per start."""

    def __init__(self, *words):
        self.words, self.ports, self.ended = list(words), [], 0
        self.alive = threading.Event()

    @contextlib.contextmanager
    def __call__(self, port, ending):
        self.ports.append(port)
        word = self.words.pop(0) if self.words else "up"
        if word == "fails":
            raise ServingError("no room")
        self.alive.set()
        try:
            yield Endpoint("http://127.0.0.1:4242/v1", "key", "toy", alive=self.alive.is_set)
        finally:
            self.ended += 1


@pytest.fixture
def keep(monkeypatch, tmp_path):
    monkeypatch.setattr(server_watchdog, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(server_watchdog, "generates", lambda endpoint: True)
    running = []

    def run(*scripts):
        changed = threading.Condition()
        servers = [Server(f"server {n}", s, tmp_path / "log", changed) for n, s in enumerate(scripts)]
        running.append(Fleet(servers, changed))
        for server in running[-1].servers:
            server._ending.wait = lambda seconds, wait=server._ending.wait: wait(min(seconds, 0.01))
            server.start()
        return running[-1]

    yield run
    for fleet in running:
        fleet.end()
        assert not any(server.is_alive() for server in fleet.servers)


def test_a_server_that_ends_is_started_again_at_its_port(keep, tmp_path, capsys):
    script = Scripted()
    fleet = keep(script)
    fleet.await_first()
    (tmp_path / "log").write_text("MemoryError: no room")
    script.alive.clear()
    assert until(lambda: len(script.ports) == 2, PATIENCE) and fleet.alive()
    assert script.ports == [None, 4242]
    assert (tmp_path / "log.1").read_text() == "MemoryError: no room"
    assert "server 0: the model server has ended: MemoryError: no room; starting" in capsys.readouterr().err


def test_one_that_starts_again_is_up_when_it_has_the_current_weights(keep, monkeypatch):
    """The gate hears that the server is down before it starts, and up after its weights are replaced."""
    script, seen = Scripted(), []
    fleet = keep(script)
    (first,) = fleet.await_first()
    server = fleet.servers[0]
    server.on_change = lambda: seen.append("up" if server.endpoint else f"down, {len(script.ports)} starts")
    monkeypatch.setattr(
        server_watchdog, "replace", lambda endpoint, weights, *_: seen.append(weights.version)
    )
    monkeypatch.setattr(fleets, "replace", lambda endpoint, weights, *_: seen.append("published"))
    assert fleet.publish(Weights(Path("there"), "step-7")) == 1
    script.alive.clear()
    assert until(lambda: seen[-1:] == ["up"], PATIENCE)
    assert seen[:2] == ["published", "down, 1 starts"] and seen[-2:] == ["step-7", "up"]


def test_the_first_start_must_succeed(keep):
    fleet = keep(Scripted(), Scripted("fails"))
    with pytest.raises(ServingError, match="no room"):
        fleet.await_first()


def test_one_that_fails_again_and_again_is_given_up(keep):
    script = Scripted("up", *["fails"] * 9)
    fleet = keep(script)
    fleet.await_first()
    script.alive.clear()
    assert not fleet.alive()
    assert len(script.ports) == server_watchdog.RESTARTS + 1


def test_the_others_serve_on(keep):
    dying = Scripted("up", *["fails"] * 9)
    fleet = keep(dying, Scripted())
    fleet.await_first()
    dying.alive.clear()
    assert until(lambda: fleet.servers[0].fault, PATIENCE) and fleet.alive()


def test_a_mute_server_is_started_again(keep, monkeypatch):
    script = Scripted()
    fleet = keep(script)
    fleet.await_first()
    monkeypatch.setattr(server_watchdog, "generates", lambda endpoint: script.ended)
    assert until(lambda: script.ended, PATIENCE) and fleet.alive()


def test_gpus_are_dealt_out(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(fleets, "serve", lambda weights, **settings: seen.append(settings))
    for start, _ in starts(tmp_path, Job(servers=2, gpus=4), tmp_path / "server.log", {}):
        start(None, lambda: False)
    assert [each["extra_args"] for each in seen] == [
        ["--tp-size", "2", "--base-gpu-id", "0"],
        ["--tp-size", "2", "--base-gpu-id", "2"],
    ]
    assert [each["log"].name for each in seen] == ["server.log", "server1.log"]
    with pytest.raises(InputError, match="3 GPUs for 2 servers of a node"):
        starts(tmp_path, Job(servers=2, gpus=3), tmp_path / "server.log", {})


def test_several_nodes_need_a_job(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    job = Job(nodes=2)
    with (
        pytest.raises(slurm.SlurmError, match="several nodes, and no SLURM job"),
        serve_fleet(tmp_path, name="toy", job=job, log=tmp_path / "log", **SETTINGS),
    ):
        pass
